"""Pooling: from the states of a sequence to one vector.

    pooling(states [b, s, d], key_mask=[b, s], train) -> (vector [b, r d], weights [b, r, s], penalty [b])

r is `num_queries`. The penalty is a term for the loss, zero unless `has_penalty`.
"""

from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention import Attention
from attn_jax.attention.masks import checked_masks
from attn_jax.types import Array, Bool, Float, wide, widest


@checked_masks
def mean_state(states: Float[Array, "b n d"], mask: Bool[Array, "b n"]) -> Float[Array, "b d"]:
    """Returns the mean of the states where the mask is True; zeros if it is False everywhere."""
    count = jnp.maximum(jnp.sum(mask, axis=-1, keepdims=True), 1)
    return jnp.sum(jnp.where(mask[..., None], states, 0), axis=-2) / count.astype(states.dtype)


class MeanPooling(nn.Module, kw_only=True):
    """The mean of the states: attention with equal weights."""

    num_queries: ClassVar[int] = 1
    has_penalty: ClassVar[bool] = False

    @checked_masks
    def __call__(self, states: Float[Array, "b s d"], *, key_mask: Bool[Array, "b s"], train: bool = False):
        """Returns (vector [b, d], weights [b, 1, s], penalty [b])."""
        weights = (key_mask / jnp.maximum(jnp.sum(key_mask, axis=-1, keepdims=True), 1)).astype(widest(states))
        return mean_state(states, key_mask), weights[:, None], jnp.zeros(len(states), weights.dtype)


class StructuredPooling(nn.Module, kw_only=True):
    """M = A H: the contexts of r learned queries, concatenated. Lin 2017 (arXiv 1703.03130), section 2.1.

    The penalty |A A' - I|^2 (Frobenius norm, section 2.2) keeps the queries from attending to the same states.
    """

    attention: Attention
    num_queries: int
    features: int  # width of a query
    has_penalty: ClassVar[bool] = True

    @checked_masks
    @nn.compact
    def __call__(self, states: Float[Array, "b s d"], *, key_mask: Bool[Array, "b s"], train: bool = False):
        """Returns (vector [b, r d], weights [b, r, s], penalty [b])."""
        init = nn.initializers.normal(self.features**-0.5)
        queries = self.param("queries", init, (self.num_queries, self.features), jnp.float32).astype(states.dtype)
        queries = jnp.broadcast_to(queries, (len(states), *queries.shape))
        rng = self.make_rng("sample") if train and self.attention.needs_rng else None
        attended = self.attention(queries, self.attention.prepare(states, key_mask=key_mask), rng=rng, train=train)
        weights = wide(attended.weights)
        overlap = jnp.einsum("bqs,bks->bqk", weights, weights) - jnp.eye(self.num_queries, dtype=weights.dtype)[None]
        vector = attended.context.reshape(len(states), -1)
        return vector, weights, jnp.sum(jnp.square(overlap), axis=(-2, -1))
