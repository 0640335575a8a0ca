"""Selection of keys by their scores, before any normalizer.

Sparse attention with a fixed number of keys: keys that are not selected are masked, and masking a key equals removing
it.
"""

import jax
import jax.numpy as jnp

from attn_jax.attention.masks import check_mask, checked_masks
from attn_jax.types import Array, Bool, Float


@checked_masks
def top_keys_mask(
    scores: Float[Array, "... k"], mask: Bool[Array, "... #k"], number: int, keys_per_block: int = 1
) -> Bool[Array, "... k"]:
    """Returns the mask of the `number` unmasked keys with the largest scores in each row; of equal scores, the first.

    Zhao 2019 (arXiv 1912.11637), explicit sparse transformer: softmax over these keys. The choice has no gradient; the
    scores of the chosen keys have the gradient of the normalizer. A row with fewer keys keeps all of them.

    With `keys_per_block` above 1, returns the unmasked keys of the `number` blocks with the largest mean score. Block i
    consists of `keys_per_block` keys from i * keys_per_block on, and the mean is over its unmasked keys. For a score
    that is linear in the key this is the score of the mean key, as in mixture of block attention (Lu 2025, arXiv
    2502.13189), which also always keeps the block of the query.
    """
    check_mask(mask, scores.shape, axes=1)
    mask = jnp.broadcast_to(mask, scores.shape)
    if keys_per_block > 1:
        padding = [(0, 0)] * (scores.ndim - 1) + [(0, -scores.shape[-1] % keys_per_block)]
        blocks = (*scores.shape[:-1], -1, keys_per_block)
        real = mask & (scores > -jnp.inf)  # a key out of reach of a compact kernel has the score -inf
        count = jnp.sum(jnp.pad(real, padding).reshape(blocks), axis=-1)
        total = jnp.sum(jnp.pad(jnp.where(real, scores, 0.0), padding).reshape(blocks), axis=-1)
        chosen = top_keys_mask(total / jnp.maximum(count, 1), count > 0, number)
        return mask & jnp.repeat(chosen, keys_per_block, axis=-1)[..., : scores.shape[-1]]
    falling = jax.lax.stop_gradient(jnp.where(mask, -scores, jnp.inf))
    rank = jnp.argsort(jnp.argsort(falling, axis=-1), axis=-1)  # stable: of equal scores the first has the lower rank
    return mask & (rank < number)
