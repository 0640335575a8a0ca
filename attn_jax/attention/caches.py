"""Caches of keys: which keys a query may attend to, and which keys are stored.

Masks are functions of positions, never of indices in the cache. A cache has one place for each position of a sequence.
If queries attend only to the latest few keys, the cache is instead a buffer of these keys, sorted by position, so that
normalizers which depend on the order of keys give the same result. Writing to a cache, growing it, selecting rows of
the batch and reordering rows are one tree.map each.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax.experimental import checkify

from attn_jax.attention.blockwise import PositionFunction
from attn_jax.attention.loops import by_compiler
from attn_jax.attention.masks import causal, same_axes
from attn_jax.attention.memory import Memory
from attn_jax.types import Array, Bool, Float, Int, PyTree


class Order(NamedTuple):
    """Order of a sequence: a mask of the keys that a query may attend to, as a function of both positions.

    Attributes:
        mask: (query, key) -> True if the query may attend to the key; None: always.
        latest: number of latest keys that a query may attend to; 0: all.
    """

    mask: PositionFunction | None
    latest: int = 0

    def room(self, length: int) -> int:
        """Returns the number of keys to store for a sequence of at most `length`."""
        return min(self.latest, length) if self.latest else length

    def allowed(self, query: Int[Array, "... q"], key: Int[Array, "... k"]) -> Bool[Array, "... q k"] | None:
        """Returns the mask for queries and keys at these positions; None if all pairs are allowed."""
        return None if self.mask is None else self.mask(query[..., :, None], key[..., None, :])


class Branch(NamedTuple):
    """The next tokens of the beams of a sentence, whose keys have places in one cache; see models/transformer/beams.py.

    Attributes:
        place: place of the first of these keys in the cache; the others follow.
        seen: True for the keys that a beam reads: of the tokens of its own hypothesis.
    """

    place: Int[Array, ""]
    seen: Bool[Array, "b n k"]


EVERYWHERE, CAUSAL = Order(None), Order(causal)


def latest(count: int) -> Order:
    """Returns the causal order in which a query attends to the latest `count` keys, including its own position."""
    return Order(partial(_near, count), count)


def _near(count: int, query: Int[Array, "... q 1"], key: Int[Array, "... k"]) -> Bool[Array, "... q k"]:
    query, key = same_axes(query, key)
    return (key <= query) & (key > query - count)


class Entries(struct.PyTreeNode):
    """Cached keys and values: each leaf has the batch on axis 0, and the keys on axis -2."""

    positions: Int[Array, "b ... k 1"]  # -1: empty entry; the same for all heads
    keys: PyTree  # result of the map's `prepare`: leaves [b, ..., k, c]
    values: Float[Array, "b ... k w"]

    @classmethod
    def of(cls, memory: Memory) -> "Entries":
        """Returns the entries of a memory with positions [b, k] or [b, h, k]."""
        here = memory.key_mask if memory.key_mask.ndim == 2 else memory.key_mask[:, :1]
        return cls(jnp.where(here, memory.positions, -1)[..., None], memory.keys, memory.values)

    def memory(self) -> Memory:
        """Returns the memory of these entries, for attention."""
        positions = self.positions[..., 0]
        key_mask = jnp.broadcast_to(positions >= 0, self.values.shape[:-1])
        # Empty entries repeat the position before them, since a Memory needs increasing positions.
        return Memory(self.keys, self.values, key_mask, jax.lax.cummax(positions, axis=positions.ndim - 1))


def grow(entries: Entries, order: Order, length: int) -> Entries:
    """Makes room for a sequence of this length that begins with `entries`."""
    room, num_keys = order.room(length), entries.positions.shape[-2]
    if order.latest:
        return latest_of(_in_order(_join(_none(entries, max(room - num_keys, 0)), entries)), room)
    return _join(entries, _none(entries, max(room - num_keys, 0)))


def add(cache: Entries, new: Entries, order: Order) -> Entries:
    """Adds new keys at their positions; a cache of the latest keys grows by the new keys and is sorted again.

    A key whose position is beyond the cache is not written.

    Raises:
        ValueError: there is such a key, and positions are known: not in jax.jit; see `check_room`.
    """
    if order.latest:
        return _in_order(_join(cache, new))
    room, at = cache.positions.shape[-2], new.positions.reshape(len(new.positions), -1)
    check_room(at, room)
    if at.shape[-1] == 1:
        return jax.tree.map(lambda old, one: jnp.where(_is_at(at, old), one, old), cache, new)
    at = jnp.where(at < 0, room, at)
    put = by_compiler(jax.vmap(lambda old, one, place: old.at[..., place, :].set(one, mode="drop")))
    return jax.tree.map(lambda old, one: put(old, one.astype(old.dtype), at), cache, new)


def add_at(cache: Entries, new: Entries, place: Int[Array, ""]) -> Entries:
    """Writes new keys at this place and the places after it, the same in all rows: in one piece, in place."""
    put = jax.lax.dynamic_update_slice_in_dim
    return jax.tree.map(lambda old, one: put(old, one.astype(old.dtype), place, old.ndim - 2), cache, new)


def check_room(positions: Int[Array, "b n"], room: int) -> None:
    """Checks that a cache of `room` places has these positions.

    In jax.jit, where they are unknown, they are checked with jax.enable_checks(True) and checkify.checkify(function)
    of jax.experimental, which returns the error.

    Raises:
        ValueError: there is a position beyond the cache.
    """
    message = "position {last} is beyond a cache of {room} places; expected a longer one: start(batch, length) or grow"
    if not isinstance(positions, jax.core.Tracer):
        if positions.size and (last := int(positions.max())) >= room:
            raise ValueError(message.format(last=last, room=room))
    elif jax.config.jax_enable_checks:
        last = jnp.max(positions, initial=-1)
        checkify.debug_check(last < room, message, last=last, room=jnp.asarray(room))


def latest_of(entries: Entries, number: int) -> Entries:
    """Returns the last `number` entries."""
    return jax.tree.map(lambda x: x[..., x.shape[-2] - number :, :], entries)


def _join(old: Entries, new: Entries) -> Entries:
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=-2), old, new)


def _in_order(entries: Entries) -> Entries:
    """Sorts entries by position; empty entries come first."""
    index = jnp.argsort(entries.positions, axis=-2)
    return jax.tree.map(lambda x: jnp.take_along_axis(x, index, axis=-2), entries)


def _none(like: Entries, number: int) -> Entries:
    """Returns `number` empty entries."""
    none = jax.tree.map(lambda x: jnp.zeros((*x.shape[:-2], number, x.shape[-1]), x.dtype), like)
    return none.replace(positions=none.positions - 1)


def _is_at(place: Int[Array, "b 1"], leaf: Array) -> Bool[Array, "..."]:
    """Returns a mask of the leaf [b, ..., k, c] that is True at this place along the axis of keys."""
    along = jax.lax.broadcasted_iota(jnp.int32, leaf.shape, leaf.ndim - 2)
    return along == place.reshape(-1, *[1] * (leaf.ndim - 1))
