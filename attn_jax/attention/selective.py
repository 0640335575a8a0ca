"""Selective attention: a query may decide that later queries no longer need a key.

    W_ij = normalize_j(score_ij - F_ij), F_ij = sum_{l < i} S_lj, S_lj = max(score_lj, 0); i, l are queries, j a key

Leviathan 2024 (arXiv 2410.02703). S reuses the scores of one head, so it adds no parameters; all heads of the layer
subtract F. A query selects neither the first key, which stays as a sink, nor its own key. F never decreases along the
queries, which must be in causal order.
"""

import jax
import jax.numpy as jnp

from attn_jax.attention.maps import MapWrapper
from attn_jax.attention.masks import checked_masks, same_axes
from attn_jax.attention.parts import Call, NewKeys, add_bias
from attn_jax.types import Array, Bool, Float, Int, PyTree, wide


@checked_masks
def selections(
    scores: Float[Array, "... q k"],
    mask: Bool[Array, "... #q k"],
    positions: Int[Array, "... q"],
    key_positions: Int[Array, "... k"] | None = None,
) -> Float[Array, "... q k"]:
    """Computes S: how strongly each query selects each key for later queries to ignore.

    Args:
        scores: scores of the selecting head.
        mask: True where a query may attend to a key; the first such key is never selected. A query that may not attend
            to its own key is padding, and selects nothing.
        positions: positions of the queries.
        key_positions: positions of the keys, increasing; None: 0, 1, 2, ...
    """
    key_positions = jnp.arange(scores.shape[-1]) if key_positions is None else key_positions
    _, keys, queries = same_axes(scores, key_positions[..., None, :], positions[..., :, None])
    own = keys == queries
    others = mask & ~own & (jnp.cumsum(mask, axis=-1) > 1) & jnp.any(mask & own, axis=-1, keepdims=True)
    scores = wide(scores)  # float32 keeps the precision of sums of many small scores
    return jnp.where(others, jax.nn.relu(jnp.where(others, scores, 0.0)), 0.0)


def selected_before(
    selected: Float[Array, "... q k"], start: Float[Array, "... k"] | None = None
) -> Float[Array, "... q k"]:
    """Computes F: the sum of the selections of earlier queries, plus `start`, from queries before these."""
    earlier = jnp.concatenate([jnp.zeros_like(selected[..., :1, :]), selected[..., :-1, :]], axis=-2)
    total = jnp.cumsum(earlier, axis=-2)
    return total if start is None else total + start[..., None, :]


class Selective(MapWrapper, kw_only=True):
    """A map whose first head selects keys, which later queries of all heads attend to less.

    The selections of earlier queries are stored with the keys, [..., 1, k, 1], so that later reads of a memory continue
    from them. F is an array [q, k], also in computation by blocks.

    Raises:
        ValueError: there are no heads; there are no positions; the map has two scores for each key.
    """

    changes_keys = True
    counts_keys = True  # selections of all earlier queries

    def prepare(self, new: NewKeys) -> PyTree:
        first = new.keys[..., :1, :, :1]
        return jnp.zeros(first.shape, wide(first).dtype), self.of.prepare(new)

    def read_by(self, call: Call) -> PyTree:
        selected = call.keys[0] + jnp.sum(self._selections(call), axis=-2)[..., None]
        return selected, self.of.read_by(self.enter(call))

    def enter(self, call: Call) -> Call:
        """Returns the call with the bias -F, for the map inside."""
        left_out = selected_before(self._selections(call), call.keys[0][..., 0])
        return add_bias(call._replace(keys=call.keys[1]), -left_out)

    def _selections(self, call: Call) -> Float[Array, "... 1 q k"]:
        """Computes the selections of the first head."""
        if call.positions is None:
            raise ValueError("selective attention needs the positions of the queries: positions=...")
        if not call.head_axes:
            raise ValueError("selective attention selects by the first head of several; expected MultiHead")

        def first(x: Array, axes: int) -> Array:
            """Returns the first head of an array with `axes` axes after the axes of heads."""
            before = x.ndim - axes - call.head_axes
            return x[(slice(None),) * before + (slice(1),) * call.head_axes]

        one = call._replace(
            query=first(call.query, 2),
            keys=jax.tree.map(lambda x: first(x, 2), call.keys[1]),
            key_mask=first(call.key_mask, 1),
            allowed=first(call.allowed, 2),
            bias=None,
            bias_at=None,
            positions=first(call.positions, 1),
            key_positions=None if call.key_positions is None else first(call.key_positions, 1),
        )
        return selections(self.of.scores(one), one.allowed, one.positions, one.key_positions)
