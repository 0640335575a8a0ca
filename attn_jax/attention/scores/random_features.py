"""The score of Performers: the logarithm of a random-feature estimate of the softmax kernel."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from attn_jax.attention.random_features import log_features, orthogonal_directions
from attn_jax.attention.scores.base import Keys, Query, Score, Scores, same_width
from attn_jax.parts import option
from attn_jax.types import Array, Float, wide


class RandomFeatures(Score, kw_only=True):
    """log(phi(query) . phi(key)), whose softmax gives the weights of the Performer; see attention/random_features.py.

    Choromanski 2020 (arXiv 2009.14794). An estimate of the scaled dot product with `num_features` orthogonal directions
    that are fixed, not learned. It shows the weights, which the linear form does not compute, for comparison with the
    exact weights; like any score it takes quadratic time.

    Attributes:
        seed: seed of the directions.
    """

    num_features: int = option(64, "number of random directions", at_least=1)
    seed: int = 0

    widens: ClassVar[bool] = True

    def features(self, x: Float[Array, "... n d"]) -> Float[Array, "... n m"]:
        """Computes log phi(x) for x / d^(1/4)."""
        directions = orthogonal_directions(jax.random.key(self.seed), self.num_features, x.shape[-1])
        return log_features(wide(x) / x.shape[-1] ** 0.25, directions)

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        same_width(self, query, projected_keys)
        of_query, of_keys = self.features(query), self.features(projected_keys)
        # Factored to avoid overflow: the largest feature of each query and of each key is scaled to 1.
        largest = [jax.lax.stop_gradient(jnp.max(x, axis=-1, keepdims=True)) for x in (of_query, of_keys)]
        parts = [jnp.exp(x - m) for x, m in zip((of_query, of_keys), largest, strict=True)]
        product = jnp.einsum("...qm,...km->...qk", *parts)
        product = jnp.maximum(product, jnp.finfo(product.dtype).tiny)
        return jnp.log(product) + largest[0] + jnp.swapaxes(largest[1], -1, -2)


RANDOM = {"random_features": RandomFeatures}
