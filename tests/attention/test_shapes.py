"""Leading axes broadcast whatever the normalizer, and what does not fit is told by its name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax import attend
from attn_jax.attention import CAUSAL, MultiHead, build_attention
from attn_jax.attention.blockwise import blockwise_attention
from attn_jax.attention.recurrent import Delta, chunked, make_writes
from attn_jax.attention.recurrent.heads import RECURRENT, RecurrentHeads

RNG = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "keys", "values", "bias"),
    [
        ((2, 4, 5, 8), (2, 1, 6, 8), (2, 4, 6, 8), None),
        ((2, 4, 5, 8), (2, 1, 6, 8), (2, 1, 6, 8), None),
        ((5, 8), (6, 8), (3, 6, 7), None),
        ((3, 5, 8), (6, 8), (6, 8), None),
        ((2, 3, 5, 8), (1, 6, 8), (1, 6, 8), None),
        ((5, 8), (3, 6, 8), (3, 6, 8), None),
        ((5, 8), (6, 8), (6, 8), (4, 5, 6)),
    ],
)
def test_leading_axes_broadcast_in_the_fused_kernel(query, keys, values, bias):
    query, keys, values = normal(*query), normal(*keys), normal(*values)
    bias = None if bias is None else normal(*bias)

    def run(query, keys, values):
        scores = query @ jnp.swapaxes(keys, -1, -2) / np.sqrt(8) + (0 if bias is None else bias)
        attended, weights = attend(query, keys, values, bias=bias), jax.nn.softmax(scores)
        return attended.context, weights @ values, attended.weights, weights

    context, expected, weights, expected_weights = compiled(run)(query, keys, values)
    np.testing.assert_allclose(context, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weights, np.broadcast_to(expected_weights, weights.shape), rtol=1e-4)


@pytest.mark.slow
def test_the_last_row_of_blocks_is_that_of_the_last_query():
    def rows(query, keys):
        options = dict(mask=lambda q, k: k <= q + 2, block_size=2)
        found = blockwise_attention(lambda q, k: q @ k.T, query, keys, keys, **options)
        return found.rows([-1]), found.rows([2])

    np.testing.assert_allclose(*compiled(rows)(normal(3, 2), normal(5, 2)), rtol=1e-6)


def test_a_memory_without_positions_has_no_context():
    nothing = jnp.zeros((0, 3))
    writes = make_writes(nothing, nothing, rates=jnp.zeros(0))
    _, context = chunked(Delta(), nothing, writes, chunk_size=2)
    assert context.shape == (0, 3)


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "length"), [(0, 3), (2, 0)])
@pytest.mark.parametrize(
    "heads",
    [
        MultiHead(attention=build_attention(score="scaled_dot"), num_heads=2, features=4, gate=True),
        MultiHead(attention=build_attention(score="dot", block_size=2), num_heads=2, features=4, num_kv_heads=1),
        MultiHead(
            attention=build_attention(score="qk_norm", normalize="fusedmax", forget_heads=2), num_heads=2, features=4
        ),
        *(RecurrentHeads(kind=RECURRENT[name], num_heads=2, features=4) for name in ("linear", "gated_delta", "mesa")),
    ],
)
def test_heads_of_an_empty_batch_or_of_no_position(heads, batch, length):
    x, real, positions = normal(1, 3, 4), jnp.ones((1, 3), bool), jnp.arange(3)[None]
    heads = heads.clone(order=CAUSAL)
    params = params_of(heads, x, key_mask=real, positions=positions, method="extend")
    shape = (batch, length)
    nothing = {"key_mask": jnp.ones(shape, bool), "positions": jnp.zeros(shape, int), "method": "extend"}

    def run(x):
        attended = heads.apply({"params": params}, x, **nothing)[1]
        return attended.context, attended.weights

    context, weights = jax.eval_shape(run, jnp.zeros((*shape, 4)))
    assert context.shape == (*shape, 4) and weights.shape == (batch, 2, length, length)
