"""Softmax, and what every normalizer shares: the types of scores, mask and weights, and arithmetic in float32."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from attn_jax.types import Array, Bool, Float

Scores = Float[Array, "... k"]
Weights = Float[Array, "... k"]
Mask = Bool[Array, "... #k"] | None


def in_float32(normalize: Callable) -> Callable:
    """The same function, with float16 and bfloat16 scores computed in float32; the weights have the scores' type."""

    @functools.wraps(normalize)
    def wide(scores, mask=None, *args, **kwargs):
        computed = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
        return normalize(computed, mask, *args, **kwargs).astype(scores.dtype)

    return wide


@in_float32
def softmax(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = exp(scores_i) / sum_j exp(scores_j), the sum over the keys that the mask keeps."""
    if mask is None:
        return jax.nn.softmax(scores, axis=-1)
    mask = jnp.broadcast_to(mask, scores.shape)
    # An inner `where` keeps NaN and inf of masked keys out of the gradient as well.
    return jax.nn.softmax(jnp.where(mask, scores, 0.0), axis=-1, where=mask)
