"""Selective attention: a query may decide that later queries no longer need a key.

    W_ij = normalize_j(score_ij - F_ij), F_ij = sum_{l < i} S_lj, S_lj = max(score_lj, 0); i, l are queries, j a key

Leviathan 2024 (arXiv 2410.02703). S reuses one head's scores, so it adds no parameters; all heads of the layer subtract
F. A query selects neither the first key, which stays as a sink, nor its own. F never decreases along the queries, which
have to be in causal order.
"""

import jax
import jax.numpy as jnp

from attn_jax.attention.masks import checked_masks, with_axes
from attn_jax.types import Array, Bool, Float, Int, wide


@checked_masks
def selections(
    scores: Float[Array, "... q k"], mask: Bool[Array, "... #q k"], positions: Int[Array, "... q"]
) -> Float[Array, "... q k"]:
    """Computes S: what each query selects for later ones to leave out.

    Args:
        scores: of the head that selects.
        mask: True where a query may attend to a key; the first of these it does not select. A query that may not attend
            to its own key is padding, and selects nothing.
        positions: of the queries among the keys.
    """
    own = with_axes(jnp.arange(scores.shape[-1]), scores.ndim) == with_axes(positions[..., :, None], scores.ndim)
    others = mask & ~own & (jnp.cumsum(mask, axis=-1) > 1) & jnp.any(mask & own, axis=-1, keepdims=True)
    scores = wide(scores)  # sums of many small ones keep their digits
    return jnp.where(others, jax.nn.relu(jnp.where(others, scores, 0.0)), 0.0)


def selected_before(
    selected: Float[Array, "... q k"], start: Float[Array, "... k"] | None = None
) -> Float[Array, "... q k"]:
    """Computes F: what the queries before each one have selected, added to `start`, of queries before all of these."""
    earlier = jnp.concatenate([jnp.zeros_like(selected[..., :1, :]), selected[..., :-1, :]], axis=-2)
    total = jnp.cumsum(earlier, axis=-2)
    return total if start is None else total + start[..., None, :]
