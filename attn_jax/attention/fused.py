"""Fused kernel: softmax(scale query . key + bias) values in one call, without the weights.

`jax.nn.dot_product_attention` is one compiled computation on a CPU or TPU and cuDNN's flash attention on a GPU. It
computes the same function as the explicit formula, so `Attention` uses it where score, normalizer and reading allow.
"""

import math

import jax
import jax.numpy as jnp

from attn_jax.types import Array, Bool, Dtype, Float

CUDNN_WIDTH = 128  # of a head, at most; a multiple of 8


def implementation_of(dtype: Dtype, width: int, *lengths: int) -> str:
    """Chooses "cudnn" where device, type, width of a head and numbers of queries and keys allow it, else "xla".

    cuDNN has no gradient where there is a mask and one of the lengths is odd.
    """
    half = jnp.dtype(dtype) in (jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16))
    fits = half and width <= CUDNN_WIDTH and width % 8 == 0 and not any(length % 2 for length in lengths)
    return "cudnn" if fits and jax.default_backend() == "gpu" else "xla"


def fused_attention(
    query: Float[Array, "... q d"],
    keys: Float[Array, "... k d"],
    values: Float[Array, "... k dv"],
    mask: Bool[Array, "... #q k"],
    bias: Float[Array, "... #q k"] | None,
    scale: float,
) -> Float[Array, "... q dv"]:
    """Computes softmax(scale query . key + bias) values over the unmasked keys; a row without keys gives zeros.

    Leading axes broadcast: heads, or groups of heads that share a key ([..., g, r, q, d] and [..., g, 1, k, d]).
    """
    arrays = (query, keys, values, mask, *(() if bias is None else (bias,)))
    lead = jnp.broadcast_shapes(*(x.shape[:-2] for x in arrays))
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
    # A row without keys would make some kernels divide by zero: it attends to all keys, and its context is set to 0.
    empty = ~jnp.any(mask, axis=-1, keepdims=True)
    mask = jnp.broadcast_to(mask | empty, (*lead, *mask.shape[-2:]))
    context = jax.nn.dot_product_attention(
        to_heads(query, heads),
        to_heads(keys, own),
        to_heads(values, own),
        bias=None if bias is None else flat(jnp.broadcast_to(bias, (*lead, *bias.shape[-2:])), heads),
        mask=jnp.broadcast_to(flat(mask, heads), (math.prod(batch), math.prod(heads), query.shape[-2], keys.shape[-2])),
        scale=scale,
        implementation=implementation_of(query.dtype, query.shape[-1], query.shape[-2], keys.shape[-2]),
    )
    context = jnp.swapaxes(context, 1, 2).reshape(*lead, query.shape[-2], values.shape[-1])
    return jnp.where(empty, 0, context)
