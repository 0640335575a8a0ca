"""Fused kernel: softmax(scale query . key + bias) values in one call, without returning the weights.

`jax.nn.dot_product_attention` is one compiled computation on a CPU or TPU and cuDNN's flash attention on a GPU. It
computes the same function as the explicit formula, so `Attention` uses it if score, normalizer and reading allow.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from attn_jax.attention.arguments import check_memory
from attn_jax.attention.masks import causal, causal_mask, checked_masks, joint_mask, with_axes
from attn_jax.types import Array, Bool, Dtype, Float

CUDNN_WIDTH = 128  # largest width of a head
CUDNN_STEP = 8  # widths are multiples of this
MASKED = -1e4  # score of a masked key, whose exp is 0
SMALLEST_SCALE = 1e-5  # smallest scale for which the columns of `mask_by_column` stay finite in float16


def implementation_of(dtype: Dtype, width: int, *lengths: int) -> str:
    """Chooses "cudnn" if the device, type, head width and numbers of queries and keys allow it, else "xla".

    cuDNN has no gradient with a mask if one of the lengths is odd.
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

    Leading axes broadcast: heads, or groups of heads that share keys ([..., g, r, q, d] and [..., g, 1, k, d]).

    Args:
        query, keys, values: arrays of the same type.
        scale: factor of the product.
        key_mask: [..., k], True for keys that every query may attend to.
        mask: True where a query may attend to a key: an array [..., q, k], or the function `causal`, with which a
            kernel skips later keys without an array of all pairs. A key needs to be True in both masks.
        bias: [..., q, k], added to the scores; a key with bias -inf is masked.

    Raises:
        ValueError: shapes do not fit, or a mask is not boolean.
    """
    check_memory(keys, values, key_mask)
    key_mask = jnp.broadcast_to(True if key_mask is None else key_mask, keys.shape[:-1])
    arrays = (query, keys, values, *(() if bias is None else (bias,)))
    lead = jnp.broadcast_shapes(*(x.shape[:-2] for x in arrays))
    of_keys, in_order = mask is None or mask is causal, mask is causal
    scores = (*lead, query.shape[-2], keys.shape[-2])
    mask = joint_mask(key_mask, None if of_keys else mask, scores)
    if not math.prod(scores):  # nothing to compute
        return jnp.zeros((*lead, query.shape[-2], values.shape[-1]), values.dtype)
    # The kernel takes [batch, n, heads, d]. If r query heads share one key head (axes [..., g, 1, k, d]), the last two
    # leading axes are the heads, so that keys and values keep g heads and are not repeated r times.
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
    # XLA on a CPU cannot compile a product of float16 arrays with float32 sums.
    if kernel == "xla" and dtype == jnp.float16:
        query, keys, values = (x.astype(jnp.float32) for x in (query, keys, values))
    fits = query.shape[-1] + CUDNN_STEP <= CUDNN_WIDTH and scale > SMALLEST_SCALE
    # How to pass the mask to the kernel: as extra columns of queries and keys, or as an array [queries, keys].
    if kernel == "cudnn" and of_keys and bias is None and fits:
        # cuDNN would read a mask of [queries, keys] and write a gradient for it, which costs more than everything else.
        # With a bias there is such a gradient anyway; and a bias without a mask stays one row, and one batch under
        # jax.vmap.
        empty = ~_has_keys(mask, num_queries, in_order)
        query, keys, values = mask_by_column(query, keys, values, mask, scale)
        pairs = None
    else:
        mask = mask & with_axes(causal_mask(num_queries, num_keys), mask.ndim) if in_order else mask
        if bias is not None:  # a row of -inf would give NaN
            bias = with_axes(bias, mask.ndim)
            mask, bias = mask & (bias > -jnp.inf), jnp.where(bias > -jnp.inf, bias, 0)
        # Some kernels divide by zero in a row without keys. Such a row attends to all keys; its context is set to 0.
        empty = ~jnp.any(mask, axis=-1, keepdims=True)
        pairs = jnp.broadcast_to(mask | empty, (*lead, num_queries, num_keys))
        if kernel == "cudnn":
            # Under jax.vmap over parameters only, mask and bias have no mapped axis, and the kernel would use the
            # arrays of one seed for the queries of all seeds. This 0 has the mapped axis.
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
    """Adds CUDNN_STEP columns. The first one adds MASKED to the score of every masked key:

        scale (query, sqrt(-MASKED / scale), 0, ...) . (key, -sqrt(-MASKED / scale), 0, ...)
            = scale query . key + MASKED

    The kernel needs values of the same width, so values get columns of zeros.
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
    """Returns True for queries that may attend to at least one key."""
    if not in_order:
        return jnp.any(mask, axis=-1, keepdims=True)
    so_far = jax.lax.cummax(mask.astype(jnp.int32), axis=mask.ndim - 1) > 0
    last = jnp.minimum(jnp.arange(num_queries), mask.shape[-1] - 1)
    return jnp.swapaxes(so_far[..., last], -1, -2)
