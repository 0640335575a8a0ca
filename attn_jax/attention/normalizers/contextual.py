"""Softmax over scores with contextual positions: the distance to a key counts only the keys that matter."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.masks import checked_masks
from attn_jax.attention.normalizers.base import (
    Mask,
    NormalizerModule,
    Query,
    Scores,
    Weights,
    full_mask,
    normalizer,
    softmax,
)
from attn_jax.attention.normalizers.parametric import per_head
from attn_jax.parts import option
from attn_jax.types import Array, Float, wide


@normalizer
def contextual_softmax(scores: Scores, mask: Mask, products: Float[Array, "... p"]) -> Weights:
    """weights = softmax(scores_i + products[p_i]), p_i = sum_{j >= i} sigmoid(scores_j), linear between integers.

    `products` are dot products of the query with the vectors of positions 0, 1, ...; positions beyond use the last one.
    The sum is over unmasked keys: under a causal mask, from key i up to the query.
    """
    keep = full_mask(scores, mask)
    gates = jnp.where(keep, jax.nn.sigmoid(jnp.where(keep, scores, 0.0)), 0.0)
    position = jax.lax.cumsum(gates, axis=gates.ndim - 1, reverse=True)
    position = jnp.minimum(position, products.shape[-1] - 1)
    below = jnp.floor(position).astype(jnp.int32)
    above = jnp.minimum(below + 1, products.shape[-1] - 1)
    lower, upper = (jnp.take_along_axis(products.astype(scores.dtype), i, axis=-1) for i in (below, above))
    return softmax(scores + lower + (position - below) * (upper - lower), keep)


class ContextualSoftmax(NormalizerModule, kw_only=True):
    """softmax(scores_i + query . e[p_i]), p_i = sum_{j >= i} sigmoid(scores_j): contextual_softmax with learned e.

    CoPE: Golovneva 2024 (arXiv 2405.18719). e has a vector for each head and position, and starts at 0, which is
    softmax. In the paper all heads share e.

    Attributes:
        num_heads: number of learned sets of vectors.

    Raises:
        ValueError: less than two positions; called without a query.
    """

    num_positions: int = option(64, "number of positions, 0 .. num_positions - 1", at_least=2)
    num_heads: int = 1

    def __post_init__(self):
        if self.num_positions < 2:
            raise ValueError(f"num_positions is {self.num_positions}; expected at least 2")
        super().__post_init__()

    @checked_masks
    @nn.compact
    def __call__(self, scores: Scores, mask: Mask = None, query: Query = None) -> Weights:
        if query is None:
            raise ValueError("ContextualSoftmax multiplies positions with the query, and was called without one")
        shape = (self.num_heads, self.num_positions, query.shape[-1])
        vectors = self.param("positions", nn.initializers.zeros, shape, jnp.float32)
        query = query[..., None, :, :] if query.ndim < scores.ndim else query
        vectors = vectors[0] if self.num_heads == 1 else per_head(vectors, scores)
        query = wide(query)
        products = query @ jnp.swapaxes(vectors, -1, -2)
        return contextual_softmax(scores, mask, jnp.broadcast_to(products, (*scores.shape[:-1], self.num_positions)))
