"""Scores and elementwise normalizers: forward mode, and derivatives of second order in two ways.

Those of other normalizers, of hard attention, of recurrent memories and of options of attention are with their tests.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, params_of

from attn_jax.attention import NORMALIZERS, SCORES, build_attention
from attn_jax.attention.names import required_options

RNG = np.random.default_rng(0)
QUERY, KEYS = RNG.normal(0, 0.8, (2, 3)), RNG.normal(0, 0.8, (4, 3))
MASK = jnp.asarray([[True, True, False, True]])
OPTIONS = {"features": 3, "query_features": 3, "max_length": 4, "width": (3.0,), "num_features": 4}
ZERO = {"boxcar", "constant", "hardmax"}  # their weights are steps, or constant
ELSEWHERE = {"sparsemax", "entmax15", "entmax", "learned_entmax"}  # a closed form, in test_entmax.py
ELSEWHERE |= {"softmax_one", "learned_sink", "unnormalized_sigmoid", "softpick", "stick_breaking"}  # test_sinks.py
ELSEWHERE |= {"chain", "segments", "contextual_softmax"}  # test_structured.py, test_contextual.py


def made(kind):
    """A score, with what it needs and a width at which every key is in reach."""
    wanted = {"features", "width"} & set(kind.__dataclass_fields__) | set(required_options(kind))
    return kind(**{name: OPTIONS[name] for name in wanted})


def total_of(attentions):
    """The sum of sines of all weights, as a function of queries and keys."""
    given = [jnp.asarray(x, jnp.float32) for x in (QUERY, KEYS)]
    params = [jax.tree.map(jnp.asarray, params_of(attention, *given)) for attention in attentions]

    def total(query, keys):
        call = lambda attention, p: attention.apply({"params": p}, query, keys, mask=MASK).weights  # noqa: E731
        return sum(jnp.sum(jnp.sin(3 * call(*pair))) for pair in zip(attentions, params, strict=True))

    return total


@pytest.mark.slow
def test_of_every_score():
    scores = [made(kind) for name, kind in SCORES.items() if name not in ZERO]
    attentions = [build_attention(score=s, normalize="kernel_sum" if s.compact else "softmax") for s in scores]
    check_derivatives(total_of(attentions), QUERY, KEYS)


@pytest.mark.slow
def test_of_elementwise_normalizers():
    names = [name for name in NORMALIZERS if name not in ZERO | ELSEWHERE]
    check_derivatives(total_of([build_attention(score="dot", normalize=name) for name in names]), QUERY, KEYS)


@pytest.mark.slow
def test_steps_have_a_gradient_of_zero():
    one = lambda name: build_attention(score="dot", normalize=name) if name in NORMALIZERS else None  # noqa: E731
    hard = total_of([one("hardmax"), build_attention(score=made(SCORES["constant"]), normalize="kernel_sum")])
    assert all(np.all(x == 0) for x in jax.grad(hard, (0, 1))(*(jnp.asarray(x, jnp.float32) for x in (QUERY, KEYS))))
