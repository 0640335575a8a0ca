"""Axes are added explicitly: each mechanism also where JAX refuses arrays of different ranks, gradients included."""

import jax
import jax.numpy as jnp
import pytest
from test_derivatives import made
from test_loops import CASES, X, prepared

from attn_jax.attention import SCORES, MultiHead, build_attention
from attn_jax.attention.fused import fused_attention, mask_by_column
from attn_jax.attention.hard.estimators import combine
from attn_jax.attention.hard.monotonic import MonotonicSelection, log_transition
from attn_jax.attention.hard.readings import READINGS
from attn_jax.attention.local import LocalM, LocalP
from attn_jax.attention.masks import causal, causal_mask
from attn_jax.attention.signed import Subtract

B, N, D = X.shape
WINDOWS = LocalM(size=2), LocalP(size=2, features=3)
BIAS, ORDER, PLACES = jnp.ones((N, N)), causal_mask(N), jnp.broadcast_to(jnp.arange(N), (B, N))


def attended(options, **call):
    def context(x):
        module = build_attention(**dict(score="scaled_dot") | options)
        return module.init_with_output(jax.random.key(0), x, x, **dict(key_mask=jnp.ones(N, bool)) | call)[0].context

    return context


def heads(attention=(), call=(), **options):
    module = MultiHead(attention=build_attention(score="scaled_dot", **dict(attention)), features=8, **options)
    return lambda x: module.init_with_output(jax.random.key(0), x, x, positions=PLACES, **dict(call))[0].context


def sampled(name):
    def surrogate(x):
        log_weights = jax.nn.log_softmax(x)
        sample = READINGS[name](jax.random.key(0), log_weights)
        return combine(sample, jnp.sin(sample.rows @ jnp.ones(D)), log_weights=log_weights)

    return surrogate


def of_heads(kernel):
    """The function of queries [b, h, n, d], keys [b, 1, n, d] of all heads, and what is one for all."""
    return lambda x: kernel(jnp.stack([x, -x], axis=1), x[:, None], x[:, None])


MECHANISMS = {
    f"score {name}": attended(dict(score=made(SCORES[name]), normalize="kernel_sum"))
    for name in sorted(SCORES)
    if name not in ("general", "location", "tanh_key")
}
MECHANISMS |= {
    "a bias for all": attended({}, bias=BIAS, mask=ORDER),
    "a bias for all, by blocks": attended(dict(block_size=2), bias=BIAS, mask=ORDER),
    "a bias of places, by blocks": attended(dict(block_size=2), bias=lambda q, k: (k[None] - q) / N, mask=causal),
    "iterations": attended(dict(iterations=2)),
    "one pass over some keys": attended(dict(top_keys=2, keys_per_block=2)),
    "monotonic": attended(
        dict(monotonic=MonotonicSelection()), previous=jnp.ones((B, N, N)), key_mask=jnp.ones((B, N), bool), mask=ORDER
    ),
    "heads": heads(num_heads=4, call=dict(bias=BIAS, mask=ORDER)),
    "heads that share keys": heads(num_heads=4, num_kv_heads=2, call=dict(bias=BIAS, mask=ORDER)),
    "heads with gates": heads(dict(forget_heads=4), num_heads=4, gate=True, call=dict(bias=BIAS, mask=causal)),
    "heads with gates, by blocks": heads(
        dict(block_size=2, forget_heads=4), num_heads=4, call=dict(bias=lambda q, k: k[None] - q, mask=causal)
    ),
    "selective heads": heads(dict(selective=True), num_heads=4, call=dict(bias=BIAS, mask=ORDER)),
    "differences": heads(dict(difference=Subtract()), num_heads=2),
    "fused": of_heads(lambda *x: fused_attention(*x, scale=1.0, bias=BIAS, mask=causal)),
    "fused, pairs": of_heads(lambda *x: fused_attention(*x, scale=1.0, bias=BIAS, mask=ORDER)),
    "fused, columns": of_heads(lambda *x: mask_by_column(*x, mask=jnp.ones((B, 1, 1, N), bool), scale=1.0)),
    "jumps": lambda x: log_transition(x, jnp.ones(D, bool), monotonic=True, jumps=jnp.ones(3)),
}
MECHANISMS |= {f"window {type(x).__name__}": attended(dict(window=x), positions=PLACES) for x in WINDOWS}
MECHANISMS |= {f"reading {name}": sampled(name) for name in sorted(READINGS)}


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_axes_of_every_mechanism_are_added_explicitly(name):
    total = lambda x: sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(MECHANISMS[name](x)))  # noqa: E731
    with jax.numpy_rank_promotion("raise"):
        assert jax.eval_shape(jax.grad(total), X).shape == X.shape


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_axes_within_every_loop_are_added_explicitly(case):
    with jax.numpy_rank_promotion("raise"):
        total, params = prepared(case)
        assert jax.eval_shape(jax.grad(total, 1), params, X).shape == X.shape
