"""A query without any key: zeros and no gradient, from a mask as from a bias of -inf, and no NaN on the way there.

And axes are added explicitly: each mechanism also where JAX refuses arrays of different ranks.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of
from test_derivatives import made

from attn_jax.attention import NORMALIZERS, SCORES, MultiHead, build_attention
from attn_jax.attention.fused import fused_attention, mask_by_column
from attn_jax.attention.hard.estimators import combine
from attn_jax.attention.hard.monotonic import MonotonicSelection, forward, log_transition
from attn_jax.attention.hard.readings import READINGS, log_of
from attn_jax.attention.local import LocalM, LocalP
from attn_jax.attention.masks import causal, causal_mask
from attn_jax.attention.recurrent import Delta, Linear, Mesa, chunked, make_writes, recurrent
from attn_jax.attention.signed import Subtract
from attn_jax.layers.pooling import StructuredPooling
from attn_jax.layers.rnn import CELLS, Recurrence

RNG = np.random.default_rng(0)
QUERY, KEYS, VALUES = (jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in ((3, 4), (5, 4), (5, 4)))
MASK = jnp.asarray(RNG.random((3, 5)) > 0.4).at[1].set(False).at[:, 0].set([True, False, True])
BIAS = jnp.where(MASK, jnp.asarray(RNG.normal(size=(3, 5)), jnp.float32), -jnp.inf)
# By blocks as a whole, and one of each form that blocks have; test_blockwise.py compares the values of all.
CASES = [(name, 0) for name in sorted(NORMALIZERS)]
CASES += [(name, 2) for name in ("softmax", "softmax_one", "learned_entmax", "sparsemax", "kernel_sum", "sigmoid")]


def total(attention, given, params, query, keys, values, bias):
    call = {"bias": bias} if given == "bias" else {"mask": MASK, "bias": jnp.where(MASK, bias, 0.0)}
    attended = attention.apply(params, query, keys, values, **call)
    context, weights = attended.context, attended.weights
    return jnp.sum(jnp.sin(context)) + jnp.sum(weights**2), (context, weights)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "block_size"), CASES)
def test_of_every_normalizer(name, block_size):
    """Each operation by itself, since inside of jit a NaN that is thrown away is not noticed."""
    attention = build_attention(score="dot", normalize=name, block_size=block_size)
    arrays = {"params": params_of(attention, QUERY, KEYS, VALUES)}, QUERY, KEYS, VALUES, BIAS
    found = {}
    with jax.debug_nans(True):
        for given in ("mask", "bias"):
            grad = jax.value_and_grad(lambda *x: total(attention, given, *x), argnums=tuple(range(5)), has_aux=True)  # noqa: B023
            found[given] = grad(*arrays)
    (_, (context, weights)), gradients = jax.device_get(found["bias"])
    assert not np.any(context[1]) and not np.any(weights[1])
    assert np.any(context[0]) and not np.any(np.where(MASK, 0, gradients[-1]))
    assert not np.any(gradients[1][1])
    for x, y in zip(*(jax.tree.leaves(x) for x in found.values()), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


X = jnp.asarray(RNG.normal(size=(3, 5, 4)), jnp.float32).at[1].set(0)  # of equal keys every score is the largest
KEY_MASK = jnp.asarray([[True, True, True, False, False]] * 2 + [[False] * 5])
PLACES, ORDER = jnp.broadcast_to(jnp.arange(5), (3, 5)), causal_mask(5)
OF_PAIRS = jnp.ones((5, 5))
WINDOWS = LocalM(size=2), LocalP(size=2, features=3)
POOLING = StructuredPooling(attention=build_attention(score="scaled_dot"), num_queries=2, features=4)


def applied(module, *arguments, **call):
    return module.apply({"params": params_of(module, *arguments, **call)}, *arguments, **call)


def attended(call=(), **options):
    module = build_attention(**dict(score="scaled_dot") | options)
    return lambda x: applied(module, x, x, key_mask=KEY_MASK, **dict(call))


def heads(attention=(), call=(), **options):
    module = MultiHead(attention=build_attention(score="scaled_dot", **dict(attention)), features=8, **options)
    return lambda x: applied(module, x, x, key_mask=KEY_MASK, positions=PLACES, **dict(call)).context


def hard(name):
    def surrogate(x):
        log_weights = log_of(attended()(x).weights)
        sample = READINGS[name](jax.random.key(0), log_weights)
        return sample.rows @ x[:, None], combine(sample, jnp.sin(sample.rows @ jnp.ones(5)), log_weights=log_weights)

    return surrogate


def written(rule, form):
    def context(x):
        rates = {"rates": jnp.abs(x[..., 0]), "log_decay": -jnp.abs(x[..., :1])}
        options = {"chunk_size": 2} if form is chunked else {}
        return form(rule, jnp.cos(x), make_writes(x, jnp.sin(x), key_mask=KEY_MASK, **rates), **options)

    return context


def paths(x):
    transitions = log_transition(x, KEY_MASK[:, None, :4], monotonic=True)
    return jnp.exp(-forward(transitions, jnp.abs(x), jnp.ones(x.shape[:2], bool)).nll)


MECHANISMS = {f"window {type(x).__name__}": attended({"positions": PLACES}, window=x) for x in WINDOWS}
# Of the others, these have the samplers and relaxed rows; test_readings.py looks at the rows of all.
READ = "adaptive coupled gapped gumbel_rao implicit_mle rebar reinmax_cv stochastic_sum_and_sample stratified top"
MECHANISMS |= {f"reading {name}": hard(name) for name in (*READ.split(), "unordered_set")}
MECHANISMS |= {
    f"{rule} {form.__name__}": written(rule, form)
    for rule, form in (
        (Linear(normalized=True), chunked),
        (Delta(), chunked),
        (Mesa(), recurrent),
        (Mesa(steps=3), chunked),
    )
}
MECHANISMS |= {
    f"cell {name}": lambda x, cell=cell: applied(Recurrence(cell=cell, features=3), x, KEY_MASK)[1]
    for name, cell in CELLS.items()
    if name in ("gru", "peephole_lstm")
}
MECHANISMS |= {
    "monotonic": attended({"previous": jnp.full((3, 5, 5), 0.2), "mask": ORDER}, monotonic=MonotonicSelection()),
    "paths": paths,
    "iterations": attended(iterations=2),
    "largest scores": attended(top_keys=2),
    "largest scores of blocks": attended(top_keys=2, keys_per_block=2),
    "heads that share keys": heads(num_heads=4, num_kv_heads=2, call=dict(bias=OF_PAIRS, mask=ORDER)),
    "heads with gates": heads(dict(forget_heads=4), num_heads=4, gate=True, call=dict(bias=OF_PAIRS, mask=causal)),
    "heads with gates, by blocks": heads(
        dict(block_size=2, forget_heads=4), num_heads=4, call=dict(bias=lambda q, k: k[None] - q, mask=causal)
    ),
    "selective heads": heads(dict(selective=True), num_heads=4, call=dict(bias=OF_PAIRS, mask=ORDER)),
    "differences": heads(dict(difference=Subtract()), num_heads=2),
    "pooling": lambda x: applied(POOLING, x, key_mask=KEY_MASK),
}


def total_of(mechanism):
    return lambda x: sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(mechanism(x)))


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_of_every_mechanism_no_number_is_nan(name):
    with jax.debug_nans(True):
        assert np.all(np.isfinite(jax.grad(total_of(MECHANISMS[name]))(X)))


def of_heads(kernel):
    """The function of queries [b, h, n, d], keys [b, 1, n, d] of all heads, and what is one for all."""
    return lambda x: kernel(jnp.stack([x, -x], axis=1), x[:, None], x[:, None])


OF_RANKS = (
    MECHANISMS
    | {f"reading {name}": hard(name) for name in READINGS}
    | {
        f"score {name}": attended(score=made(SCORES[name]), normalize="kernel_sum")
        for name in SCORES
        if name not in ("general", "location", "tanh_key")
    }
)
OF_RANKS |= {
    "a bias for all": attended(dict(bias=OF_PAIRS, mask=ORDER)),
    "a bias for all, by blocks": attended(dict(bias=OF_PAIRS, mask=ORDER), block_size=2),
    "a bias of places, by blocks": attended(dict(bias=lambda q, k: (k[None] - q) / 5, mask=causal), block_size=2),
    "heads": heads(num_heads=4, call=dict(bias=OF_PAIRS, mask=ORDER)),
    "fused": of_heads(lambda *x: fused_attention(*x, scale=1.0, bias=OF_PAIRS, mask=causal)),
    "fused, pairs": of_heads(lambda *x: fused_attention(*x, scale=1.0, bias=OF_PAIRS, mask=ORDER)),
    "fused, columns": of_heads(lambda *x: mask_by_column(*x, mask=jnp.ones((3, 1, 1, 5), bool), scale=1.0)),
    "jumps": lambda x: log_transition(x, jnp.ones(4, bool), monotonic=True, jumps=jnp.ones(3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_RANKS)
def test_axes_of_every_mechanism_are_added_explicitly(name):
    with jax.numpy_rank_promotion("raise"):
        assert jax.eval_shape(jax.grad(total_of(OF_RANKS[name])), X).shape == X.shape


@pytest.mark.parametrize("given", ["key_mask", "bias"])
def test_of_the_fused_kernel(given):
    """A bias of -inf is a mask, also over whole rows; its gradient is 0 there."""
    allowed = jnp.broadcast_to(KEY_MASK[:, None], (3, 5, 5))
    bias = jnp.where(allowed, jnp.cos(X @ jnp.swapaxes(X, 1, 2)), -jnp.inf if given == "bias" else 0.0)
    call = {"key_mask": KEY_MASK} if given == "key_mask" else {}
    total = lambda x, bias: jnp.sum(jnp.sin(fused_attention(x, x, x, scale=1.0, bias=bias, **call)))  # noqa: E731
    plain = lambda x, bias: jnp.sum(jnp.sin(build_attention(score="dot").apply({}, x, x, bias=bias, **call).context))  # noqa: E731
    found, expected = (compiled(jax.value_and_grad(f, argnums=(0, 1)))(X, bias) for f in (total, plain))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    assert not np.any(found[1][1][2]) and np.any(found[1][1][0])
