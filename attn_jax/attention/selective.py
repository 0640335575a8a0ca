"""Selective attention: a query may decide that later queries no longer need a key.

    W_ij = normalize_j(score_ij - F_ij), F_ij = sum_{l < i} S_lj, S_lj = max(score_lj, 0); i, l are queries, j a key

Leviathan 2024 (arXiv 2410.02703). S reuses one head's scores, so it adds no parameters; all heads of the layer subtract
F. A query selects neither the first key, which stays as a sink, nor its own. F never decreases along the queries, which
have to be in causal order.
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
    """Computes S: what each query selects for later ones to leave out.

    Args:
        scores: of the head that selects.
        mask: True where a query may attend to a key; the first of these it does not select. A query that may not attend
            to its own key is padding, and selects nothing.
        positions: of the queries.
        key_positions: in increasing order; None: 0, 1, 2, ...
    """
    key_positions = jnp.arange(scores.shape[-1]) if key_positions is None else key_positions
    _, keys, queries = same_axes(scores, key_positions[..., None, :], positions[..., :, None])
    own = keys == queries
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


class Selective(MapWrapper, kw_only=True):
    """A map of which the first head selects keys, which later queries of all heads attend to less.

    What earlier queries have selected is kept with the keys, [..., 1, k, 1], so a memory goes on from where it was
    read. F is an array [q, k], also block by block.

    Raises:
        ValueError: no heads; no positions; a map with two scores for each key.
    """

    changes_keys = True

    def prepare(self, new: NewKeys) -> PyTree:
        first = new.keys[..., :1, :, :1]
        return jnp.zeros(first.shape, wide(first).dtype), self.of.prepare(new)

    def read_by(self, call: Call) -> PyTree:
        selected = call.keys[0] + jnp.sum(self._selections(call), axis=-2)[..., None]
        return selected, self.of.read_by(self.enter(call))

    def enter(self, call: Call) -> Call:
        """Returns the call of the map inside, with the bias -F."""
        left_out = selected_before(self._selections(call), call.keys[0][..., 0])
        return add_bias(call._replace(keys=call.keys[1]), -left_out)

    def _selections(self, call: Call) -> Float[Array, "... 1 q k"]:
        """Computes what the first head selects."""
        if call.positions is None:
            raise ValueError("selective attention needs the positions of the queries: positions=...")
        if not call.head_axes:
            raise ValueError("selective attention selects by the first head of several; expected MultiHead")

        def first(x: Array, axes: int) -> Array:
            """Takes the first head of an array with so many axes after those of the heads."""
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
