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
    """Computes, of a target, doubly_stochastic * sum_i (1 - sum_t a_ti)^2 - entropy * sum_t H(a_t)
        + coverage * sum_t sum_i min(a_ti, c_ti), where c_ti = sum_{u < t} a_ui.

    The first (section 4.2.1) asks that every key be read as much as every other. As the weights of a target sum to its
    number of tokens C (for normalizers that sum to one), it is a constant + sum_i (sum_t a_ti)^2, with the same
    gradient for any other number in the place of 1, such as C / keys. It makes each map flat and keeps two tokens from
    reading one key, which is wrong where two words name one object. The second (section 4.1) keeps sampled attention
    from settling too early.
    The third (See 2017, equation 12) asks that no key be read twice; it is at most the number of target tokens.
    """

    doubly_stochastic: float = 0.0
    entropy: float = 0.0
    coverage: float = 0.0

    @checked_masks
    def __call__(
        self, weights: Float[Array, "b t s"], *, real: Bool[Array, "b t"], key_mask: Bool[Array, "b s"]
    ) -> Float[Array, "b t"]:
        """Computes the terms; that of the whole target stands at its first token, so that their sum is right."""
        weights = jnp.where(real[..., None], wide(weights), 0)  # they are part of the loss
        missing = jnp.where(key_mask, 1 - jnp.sum(weights, axis=1), 0)
        whole = self.doubly_stochastic * jnp.sum(jnp.square(missing), axis=-1)
        first = (jnp.arange(weights.shape[1]) == 0) & real
        terms = jnp.where(first, whole[:, None], 0) - self.entropy * jnp.where(real, entropy(weights), 0)
        return terms + self.coverage * coverage_loss(weights)
