"""Entmax-1.5 attention block by block in one kernel: no array of all queries and keys is written to memory.

    weights = max(s / 2 - tau, 0)^2,  tau such that they sum to one        s = scale query . key

Peters 2019 (arXiv 1905.05702) with alpha = 1.5; tiles and the derivative as in AdaSplash, Goncalves 2025
(arXiv 2502.12082). A block of queries passes over the keys once for the largest score, TURNS times for tau and once for
the context. With u = max(s / 2 - tau, 0) the derivative by the scores is

    u (dW - (u . dW) / sum(u)),    and u . dW = (sum_k u_k value_k) . dcontext,

so the forward pass also keeps mean = sum_k u_k value_k / sum(u), and no pass over a row of the gradient is needed.

Written with Pallas for Triton, which jax 0.12 deprecates; elsewhere it is interpreted, which is slow and for tests. It
has been lowered for a GPU, but not run on one yet. The same weights with any score and mask, in plain JAX:
attn_jax.attention.blockwise.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from attn_jax.attention.masks import checked_masks
from attn_jax.types import Array, Bool, Float, Int

TURNS = 8  # Newton's steps for tau, which converge quadratically
BLOCK = 64  # queries, and keys, of a tile
LEAST_WIDTH = 16  # of a product of tiles; widths are powers of two
TAU = 1.0  # tau is at most this far below half of the largest score


class Setting(NamedTuple):
    """Options of a call that are constants of its compiled kernel."""

    scale: float
    causal: bool
    num_keys: int  # before padding
    interpret: bool


@checked_masks
def entmax15_attention(
    query: Float[Array, "... q d"],
    keys: Float[Array, "... k d"],
    values: Float[Array, "... k dv"],
    *,
    scale: float,
    key_mask: Bool[Array, "... k"] | None = None,
    causal: bool = False,
    interpret: bool | None = None,
) -> Float[Array, "... q dv"]:
    """Computes entmax15(scale query . key) values over the unmasked keys; a row without keys gives zeros.

    Sums are in float32, whatever the type of the arrays. Memory grows with q + k, not with q k.

    Args:
        query, keys, values: arrays with the same leading axes, such as batch and heads.
        scale: factor of the product.
        key_mask: True for keys that every query may attend to; its leading axes broadcast.
        causal: query i attends to keys up to i.
        interpret: run without a compiled kernel; None: unless the device is a GPU.

    Raises:
        ValueError: the leading axes of the arrays differ.
    """
    lead = query.shape[:-2]
    if keys.shape[:-2] != lead or values.shape[:-2] != lead:
        shapes = ", ".join(str(x.shape) for x in (query, keys, values))
        raise ValueError(f"query, keys and values of shapes {shapes}; expected the same leading axes")
    num_queries, num_keys, width = query.shape[-2], keys.shape[-2], values.shape[-1]
    key_mask = jnp.broadcast_to(True if key_mask is None else key_mask, (*lead, num_keys))
    if not query.size or not keys.size:
        return jnp.zeros((*lead, num_queries, width), values.dtype)
    interpret = jax.default_backend() != "gpu" if interpret is None else interpret
    setting = Setting(scale, causal, num_keys, interpret)
    parts = [_padded(x.reshape(-1, *x.shape[-2:])) for x in (query, keys, values)]
    allowed = _to_blocks(key_mask.reshape(-1, num_keys), axis=1)
    context = _attend(setting, *parts, allowed.astype(jnp.int8))
    return context[:, :num_queries, :width].reshape(*lead, num_queries, width)


def _padded(x: Float[Array, "n t d"]) -> Float[Array, "n T D"]:
    """Adds zeros: whole blocks along t, and a power of two along d."""
    width = max(LEAST_WIDTH, 1 << (x.shape[-1] - 1).bit_length())
    return _to_blocks(jnp.pad(x, ((0, 0), (0, 0), (0, width - x.shape[-1]))), axis=1)


def _to_blocks(x: Array, axis: int) -> Array:
    missing = -x.shape[axis] % BLOCK
    return jnp.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(setting, query, keys, values, allowed):
    return _forward(setting, query, keys, values, allowed)[0]


def _forward(setting, query, keys, values, allowed):
    n, q, _ = query.shape
    of_queries, wide = _block(query), _block(values)
    row = pl.BlockSpec((None, BLOCK), lambda i, j: (i, j))
    context, mean, tau = pl.pallas_call(
        functools.partial(_forward_kernel, setting),
        grid=(n, q // BLOCK),
        in_specs=[of_queries, _whole(keys), _whole(values), _whole(allowed)],
        out_specs=[wide, wide, row],
        out_shape=[
            jax.ShapeDtypeStruct((n, q, values.shape[-1]), values.dtype),
            jax.ShapeDtypeStruct((n, q, values.shape[-1]), jnp.float32),
            jax.ShapeDtypeStruct((n, q), jnp.float32),
        ],
        **_how(setting),
    )(query, keys, values, allowed)
    return context, (query, keys, values, allowed, mean, tau)


def _backward(setting, kept, d_context):
    query, keys, values, allowed, mean, tau = kept
    n, q, _ = query.shape
    d_context = d_context.astype(jnp.float32)
    level = jnp.sum(d_context * mean, axis=-1)
    row = pl.BlockSpec((None, BLOCK), lambda i, j: (i, j))
    d_query = pl.pallas_call(
        functools.partial(_query_kernel, setting),
        grid=(n, q // BLOCK),
        in_specs=[_block(query), _whole(keys), _whole(values), _whole(allowed), _block(d_context), row, row],
        out_specs=_block(query),
        out_shape=jax.ShapeDtypeStruct(query.shape, query.dtype),
        **_how(setting),
    )(query, keys, values, allowed, d_context, tau, level)
    d_keys, d_values = pl.pallas_call(
        functools.partial(_key_kernel, setting),
        grid=(n, keys.shape[1] // BLOCK),
        in_specs=[_whole(query), _block(keys), _block(values), row, _whole(d_context), _whole(tau), _whole(level)],
        out_specs=[_block(keys), _block(values)],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (keys, values)],
        **_how(setting),
    )(query, keys, values, allowed, d_context, tau, level)
    return d_query, d_keys, d_values, None


_attend.defvjp(_forward, _backward)


def _how(setting: Setting) -> dict:
    if setting.interpret:
        return {"interpret": True}
    return {"compiler_params": triton.CompilerParams(num_warps=4, num_stages=2)}


def _block(x: Array) -> pl.BlockSpec:
    """The block j of the rows of item i."""
    return pl.BlockSpec((None, BLOCK, x.shape[-1]), lambda i, j: (i, j, 0))


def _whole(x: Array) -> pl.BlockSpec:
    """All rows of item i, of which a kernel loads blocks."""
    return pl.BlockSpec((None, *x.shape[1:]), lambda i, j: (i, *(0 for _ in x.shape[1:])))


def _half_scores(
    setting: Setting,
    query: Float[Array, "q d"],
    keys: Float[Array, "k d"],
    allowed: Int[Array, " k"],
    first_query: Int[Array, ""],
    first_key: Int[Array, ""],
) -> Float[Array, "q k"]:
    """Computes s / 2 of a tile; -inf for masked keys."""
    products = triton.dot(query, keys, trans_b=True)
    keep = jnp.broadcast_to(allowed[None, :] != 0, products.shape)
    if setting.causal:
        q = first_query + jax.lax.broadcasted_iota(jnp.int32, products.shape, 0)
        k = first_key + jax.lax.broadcasted_iota(jnp.int32, products.shape, 1)
        keep &= k <= q
    return jnp.where(keep, products.astype(jnp.float32) * (setting.scale / 2), -jnp.inf)


def _over_keys(setting: Setting, query, number, keys_ref, allowed_ref, step: Callable, start):
    """Folds step(carry, half scores, keys) over the blocks of keys that the queries of block `number` may attend to."""
    first_query, blocks = number * BLOCK, keys_ref.shape[0] // BLOCK
    if setting.causal:
        blocks = jnp.minimum(blocks, number + 1)

    def body(j, carry):
        at = pl.ds(j * BLOCK, BLOCK)
        half = _half_scores(setting, query, keys_ref[at, :], allowed_ref[at], first_query, j * BLOCK)
        return step(carry, half, at)

    return jax.lax.fori_loop(0, blocks, body, start)


def _forward_kernel(setting, query_ref, keys_ref, values_ref, allowed_ref, context_ref, mean_ref, tau_ref):
    query = query_ref[...]
    over_keys = functools.partial(_over_keys, setting, query, pl.program_id(1), keys_ref, allowed_ref)
    largest = over_keys(
        lambda most, half, _: jnp.maximum(most, jnp.max(half, axis=1)), jnp.full(BLOCK, -jnp.inf, jnp.float32)
    )
    largest = jnp.where(largest == -jnp.inf, 0.0, largest)

    # |u| is convex in tau and falls; Newton's steps for |u| = 1 from below never pass the root.
    def turn(_, tau):
        def sums(carry, half, _):
            u = jnp.maximum(half - tau[:, None], 0.0)
            return carry[0] + jnp.sum(u, axis=1), carry[1] + jnp.sum(u * u, axis=1)

        first, second = over_keys(sums, (jnp.zeros(BLOCK, jnp.float32), jnp.zeros(BLOCK, jnp.float32)))
        norm = jnp.sqrt(second)
        return tau + jnp.where(first > 0, (norm - 1) * norm / jnp.where(first > 0, first, 1.0), 0.0)

    tau = jax.lax.fori_loop(0, TURNS, turn, largest - TAU)

    def read(carry, half, at):
        u = jnp.maximum(half - tau[:, None], 0.0)
        values = values_ref[at, :]
        context, mean, first, second = carry
        context += triton.dot((u * u).astype(values.dtype), values)
        mean += triton.dot(u.astype(values.dtype), values)
        return context, mean, first + jnp.sum(u, axis=1), second + jnp.sum(u * u, axis=1)

    nothing = jnp.zeros((BLOCK, values_ref.shape[1]), jnp.float32)
    context, mean, first, second = over_keys(
        read, (nothing, nothing, jnp.zeros(BLOCK, jnp.float32), jnp.zeros(BLOCK, jnp.float32))
    )
    context_ref[...] = (context / jnp.where(second > 0, second, 1.0)[:, None]).astype(context_ref.dtype)
    mean_ref[...] = mean / jnp.where(first > 0, first, 1.0)[:, None]
    tau_ref[...] = tau


def _query_kernel(
    setting, query_ref, keys_ref, values_ref, allowed_ref, d_context_ref, tau_ref, level_ref, d_query_ref
):
    d_context, tau, level = d_context_ref[...], tau_ref[...], level_ref[...]

    def step(total, half, at):
        u = jnp.maximum(half - tau[:, None], 0.0)
        d_weights = triton.dot(d_context, values_ref[at, :].astype(jnp.float32), trans_b=True)
        return total + triton.dot(u * (d_weights - level[:, None]), keys_ref[at, :].astype(jnp.float32))

    start = jnp.zeros(query_ref.shape, jnp.float32)
    total = _over_keys(setting, query_ref[...], pl.program_id(1), keys_ref, allowed_ref, step, start)
    d_query_ref[...] = (setting.scale * total).astype(d_query_ref.dtype)


def _key_kernel(
    setting, query_ref, keys_ref, values_ref, allowed_ref, d_context_ref, tau_ref, level_ref, d_keys_ref, d_values_ref
):
    keys, values, first_key = keys_ref[...], values_ref[...].astype(jnp.float32), pl.program_id(1) * BLOCK

    def step(j, carry):
        at = pl.ds(j * BLOCK, BLOCK)
        query, d_context = query_ref[at, :], d_context_ref[at, :]
        half = _half_scores(setting, query, keys, allowed_ref[...], j * BLOCK, first_key)
        u = jnp.maximum(half - tau_ref[at][:, None], 0.0)
        d_weights = triton.dot(d_context, values, trans_b=True)
        d_scores = u * (d_weights - level_ref[at][:, None])
        d_keys = triton.dot(d_scores, query.astype(jnp.float32), trans_a=True)
        return carry[0] + d_keys, carry[1] + triton.dot(u * u, d_context, trans_a=True)

    start = jnp.zeros(keys_ref.shape, jnp.float32), jnp.zeros(values_ref.shape, jnp.float32)
    begin = pl.program_id(1) if setting.causal else 0  # earlier queries do not see these keys
    d_keys, d_values = jax.lax.fori_loop(begin, query_ref.shape[0] // BLOCK, step, start)
    d_keys_ref[...] = (setting.scale * d_keys).astype(d_keys_ref.dtype)
    d_values_ref[...] = d_values.astype(d_values_ref.dtype)
