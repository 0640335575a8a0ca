"""Regularizers of the attention weights, summed over a target.

Xu 2015 (arXiv 1502.03044), and the coverage of See 2017 (arXiv 1704.04368).
"""

import dataclasses

import jax.numpy as jnp

from attn_jax.attention.information import entropy
from attn_jax.attention.masks import checked_masks
from attn_jax.outputs.pointer import coverage_loss
from attn_jax.types import Array, Bool, Float, wide


@dataclasses.dataclass(frozen=True)
class Penalties:
    """Computes for a target doubly_stochastic * sum_i (1 - sum_t a_ti)^2 - entropy * sum_t H(a_t)
        + coverage * sum_t sum_i min(a_ti, c_ti), where c_ti = sum_{u < t} a_ui.

    The first term (section 4.2.1) favours reading all keys equally. As the weights of a target sum to its number of
    tokens C (for normalizers that sum to one), it is a constant + sum_i (sum_t a_ti)^2, with the same gradient if 1 is
    replaced by any other number, such as C / keys. It flattens each map and keeps two tokens from reading the same key,
    which is wrong if two words name the same object. The second term (section 4.1) keeps sampled attention from
    converging too early. The third term (See 2017, equation 12) penalizes reading a key twice; it is at most the number
    of target tokens.
    """

    doubly_stochastic: float = 0.0
    entropy: float = 0.0
    coverage: float = 0.0

    @checked_masks
    def __call__(
        self, weights: Float[Array, "b t s"], *, real: Bool[Array, "b t"], key_mask: Bool[Array, "b s"]
    ) -> Float[Array, "b t"]:
        """Computes the terms [b, t]; the term of the whole target is at its first token, so that the sum is right."""
        weights = jnp.where(real[..., None], wide(weights), 0)  # widened to float32, as a part of the loss
        missing = jnp.where(key_mask, 1 - jnp.sum(weights, axis=1), 0)
        whole = self.doubly_stochastic * jnp.sum(jnp.square(missing), axis=-1)
        first = (jnp.arange(weights.shape[1]) == 0) & real
        terms = jnp.where(first, whole[:, None], 0) - self.entropy * jnp.where(real, entropy(weights), 0)
        return terms + self.coverage * coverage_loss(weights)
