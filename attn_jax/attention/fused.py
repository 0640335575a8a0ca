"""Fused kernel: softmax(scale query . key + bias) values in one call, without the weights.

`jax.nn.dot_product_attention` is one compiled computation on a CPU or TPU and cuDNN's flash attention on a GPU. It
computes the same function as the explicit formula, so `Attention` uses it where score, normalizer and reading allow.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from attn_jax.attention.arguments import check_memory
from attn_jax.attention.masks import causal, causal_mask, checked_masks, joint_mask, with_axes
from attn_jax.types import Array, Bool, Dtype, Float

CUDNN_WIDTH = 128  # of a head, at most
CUDNN_STEP = 8  # a width is a multiple of it
MASKED = -1e4  # score of a masked key, of which exp is 0
SMALLEST_SCALE = 1e-5  # with which the columns of a mask stay finite in float16


def implementation_of(dtype: Dtype, width: int, *lengths: int) -> str:
    """Chooses "cudnn" where device, type, width of a head and numbers of queries and keys allow it, else "xla".

    cuDNN has no gradient where there is a mask and one of the lengths is odd.
    """
    half = jnp.dtype(dtype) in (jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16))
    fits = half and width <= CUDNN_WIDTH and width % CUDNN_STEP == 0 and not any(length % 2 for length in lengths)
    return "cudnn" if fits and jax.default_backend() == "gpu" else "xla"


@checked_masks
def fused_attention(
    query: Float[Array, "... q d"],
    keys: Float[Array, "... k d"],
    values: Float[Array, "... k dv"],
    *,
    scale: float,
    key_mask: Bool[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | Callable | None = None,
    bias: Float[Array, "... #q k"] | None = None,
) -> Float[Array, "... q dv"]:
    """Computes softmax(scale query . key + bias) values over the unmasked keys; a row without keys gives zeros.

    Leading axes broadcast: heads, or groups of heads that share a key ([..., g, r, q, d] and [..., g, 1, k, d]).

    Args:
        query, keys, values: of one type.
        scale: factor of the product.
        key_mask: [..., k], True for keys that every query may attend to.
        mask: True where a query may attend to a key: an array [..., q, k], or the function `causal`, with which a
            kernel leaves out later keys without an array of all pairs. Where both are given, both hold.
        bias: is added to the scores, [..., q, k]; -inf leaves a key out.

    Raises:
        ValueError: shapes that do not fit, or a mask that is not boolean.
    """
    check_memory(keys, values, key_mask)
    key_mask = jnp.broadcast_to(True if key_mask is None else key_mask, keys.shape[:-1])
    arrays = (query, keys, values, *(() if bias is None else (bias,)))
    lead = jnp.broadcast_shapes(*(x.shape[:-2] for x in arrays))
    of_keys, in_order = mask is None or mask is causal, mask is causal
    scores = (*lead, query.shape[-2], keys.shape[-2])
    mask = joint_mask(key_mask, None if of_keys else mask, scores)
    if not math.prod(scores):  # no kernel is needed for nothing
        return jnp.zeros((*lead, query.shape[-2], values.shape[-1]), values.dtype)
    one = keys.ndim > 2 and values.ndim > 2 and keys.shape[-3] == values.shape[-3] == 1
    shared = len(lead) >= 2 and one and lead[-1] > 1
    if len(lead) > 1:
        batch, heads = (lead[:-2], lead[-2:]) if shared else (lead[:-1], lead[-1:])
    else:
        batch, heads = lead, (1,)

    def flat(x: Array, own: tuple[int, ...]) -> Array:  # [batch, heads, n, d]
        x = jnp.broadcast_to(x, (*(batch + own if len(lead) > 1 else lead), *x.shape[-2:]))
        return x.reshape(math.prod(batch), math.prod(own), *x.shape[-2:])

    def to_heads(x: Array, own: tuple[int, ...]) -> Array:  # [batch, n, heads, d]
        return jnp.swapaxes(flat(x, own), 1, 2)

    own = (heads[0], 1) if shared else heads
    num_queries, num_keys, width = query.shape[-2], keys.shape[-2], values.shape[-1]
    kernel, dtype = implementation_of(query.dtype, query.shape[-1], num_queries, num_keys), values.dtype
    if kernel == "xla" and dtype == jnp.float16:  # a product of float16 with sums in float32 is not compiled on a CPU
        query, keys, values = (x.astype(jnp.float32) for x in (query, keys, values))
    fits = query.shape[-1] + CUDNN_STEP <= CUDNN_WIDTH and scale > SMALLEST_SCALE
    if kernel == "cudnn" and of_keys and bias is None and fits:
        # As an array [queries, keys] the mask would be read, and a gradient for it written: more than all else. With a
        # bias there is one anyway; and a bias without a mask keeps its one row, and its one batch under jax.vmap.
        empty = ~_has_keys(mask, num_queries, in_order)
        query, keys, values = mask_by_column(query, keys, values, mask, scale)
        pairs = None
    else:
        mask = mask & with_axes(causal_mask(num_queries, num_keys), mask.ndim) if in_order else mask
        if bias is not None:  # a row of -inf would be NaN
            bias = with_axes(bias, mask.ndim)
            mask, bias = mask & (bias > -jnp.inf), jnp.where(bias > -jnp.inf, bias, 0)
        # A row without keys would make some kernels divide by zero: it attends to all, and its context is set to 0.
        empty = ~jnp.any(mask, axis=-1, keepdims=True)
        pairs = jnp.broadcast_to(mask | empty, (*lead, num_queries, num_keys))
        if kernel == "cudnn":
            # Under jax.vmap over parameters alone mask and bias are not mapped, and the kernel would get those of one
            # seed beside the queries of all; this 0 is mapped.
            nothing = 0 * jax.lax.stop_gradient(with_axes(query[..., :1], mask.ndim))
            bias = jnp.broadcast_to(nothing if bias is None else bias.astype(query.dtype) + nothing, pairs.shape)
    context = jax.nn.dot_product_attention(
        to_heads(query, heads),
        to_heads(keys, own),
        to_heads(values, own),
        bias=None if bias is None else flat(jnp.broadcast_to(bias, (*lead, *bias.shape[-2:])), heads),
        mask=None if pairs is None else flat(pairs, heads),
        scale=scale,
        is_causal=in_order and pairs is None,
        implementation=kernel,
    )
    context = jnp.swapaxes(context, 1, 2).reshape(*lead, num_queries, context.shape[-1])[..., :width]
    return jnp.where(empty, 0, context).astype(dtype)


@checked_masks
def mask_by_column(
    query: Float[Array, "... q d"],
    keys: Float[Array, "... k d"],
    values: Float[Array, "... k dv"],
    mask: Bool[Array, "... 1 k"],
    scale: float,
) -> tuple[Float[Array, "... q e"], Float[Array, "... k e"], Float[Array, "... k ev"]]:
    """Adds CUDNN_STEP columns, of which the first adds MASKED to the score of every masked key.

        scale (query, sqrt(-MASKED / scale), 0, ...) . (key, -sqrt(-MASKED / scale), 0, ...)
            = scale query . key + MASKED

    The kernel needs values of the same width, so they get columns of zeros.
    """
    root = math.sqrt(-MASKED / scale)
    first = (jnp.arange(CUDNN_STEP) == 0) * root
    of_query = jnp.broadcast_to(first.astype(query.dtype), (*query.shape[:-1], CUDNN_STEP))
    of_keys = jnp.where(jnp.swapaxes(mask, -1, -2), 0, -with_axes(first, mask.ndim)).astype(keys.dtype)
    lead = jnp.broadcast_shapes(of_keys.shape[:-1], keys.shape[:-1])
    keys = jnp.concatenate([jnp.broadcast_to(x, (*lead, x.shape[-1])) for x in (keys, of_keys)], axis=-1)
    values = jnp.concatenate([values, jnp.zeros((*values.shape[:-1], CUDNN_STEP), values.dtype)], axis=-1)
    return jnp.concatenate([query, of_query], axis=-1), keys, values


def _has_keys(mask: Bool[Array, "... 1 k"], num_queries: int, in_order: bool) -> Bool[Array, "... #q 1"]:
    """Tells which queries may attend to a key at all."""
    if not in_order:
        return jnp.any(mask, axis=-1, keepdims=True)
    so_far = jax.lax.cummax(mask.astype(jnp.int32), axis=mask.ndim - 1) > 0
    last = jnp.minimum(jnp.arange(num_queries), mask.shape[-1] - 1)
    return jnp.swapaxes(so_far[..., last], -1, -2)
