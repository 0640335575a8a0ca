"""Caches of keys: which keys a query may attend to, and what is kept of them.

Order is read from positions, never from an index. A cache has a place for each position of a sequence; or, where no
query attends beyond the latest few keys, it is a ring of these: always in the order of their positions, so that
normalizers which depend on the order of keys see no difference. Writing, growing, taking rows of the batch and
reordering them are one tree.map each.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.blockwise import PositionFunction
from attn_jax.attention.masks import causal, same_axes
from attn_jax.attention.memory import Memory
from attn_jax.types import Array, Bool, Float, Int, PyTree


class Order(NamedTuple):
    """Order of a sequence: the keys that a query may attend to, by the positions of both."""

    mask: PositionFunction | None  # (query, key) -> True where it may; None: everywhere
    latest: int = 0  # number of latest keys beyond which no query attends; 0: any number

    def room(self, length: int) -> int:
        """Returns the number of keys to keep of a sequence of at most `length`."""
        return min(self.latest, length) if self.latest else length

    def allowed(self, query: Int[Array, "... q"], key: Int[Array, "... k"]) -> Bool[Array, "... q k"] | None:
        """Returns the mask for queries and keys at these positions; None for everywhere."""
        return None if self.mask is None else self.mask(query[..., :, None], key[..., None, :])


EVERYWHERE, CAUSAL = Order(None), Order(causal)


def latest(count: int) -> Order:
    """Returns the causal order in which a query attends to the latest `count` keys, its own included."""
    return Order(partial(_near, count), count)


def _near(count: int, query: Int[Array, "... q 1"], key: Int[Array, "... k"]) -> Bool[Array, "... q k"]:
    query, key = same_axes(query, key)
    return (key <= query) & (key > query - count)


@struct.dataclass
class Entries:
    """Cached keys and values: each leaf has the batch on axis 0, and the keys on axis -2."""

    positions: Int[Array, "b ... k 1"]  # -1: no key; one for all heads
    keys: PyTree  # what the map prepared: leaves [b, ..., k, c]
    values: Float[Array, "b ... k w"]

    @classmethod
    def of(cls, memory: Memory) -> "Entries":
        """Returns what is kept of a memory with positions, [b, k] or [b, h, k]."""
        here = memory.key_mask if memory.key_mask.ndim == 2 else memory.key_mask[:, :1]
        return cls(jnp.where(here, memory.positions, -1)[..., None], memory.keys, memory.values)

    def memory(self) -> Memory:
        """Returns the memory that attention reads."""
        positions = self.positions[..., 0]
        key_mask = jnp.broadcast_to(positions >= 0, self.values.shape[:-1])
        # Increasing, also where there is no key.
        return Memory(self.keys, self.values, key_mask, jax.lax.cummax(positions, axis=positions.ndim - 1))


def grow(entries: Entries, order: Order, length: int) -> Entries:
    """Makes room for a sequence of this length, of which `entries` are the beginning."""
    room, num_keys = order.room(length), entries.positions.shape[-2]
    if order.latest:
        return latest_of(_in_order(_join(_none(entries, max(room - num_keys, 0)), entries)), room)
    return _join(entries, _none(entries, max(room - num_keys, 0)))


def add(cache: Entries, new: Entries, order: Order) -> Entries:
    """Adds new keys: at the places of their positions, or where the latest are enough behind all keys there are.

    A key whose place a cache does not have is not written.
    """
    if order.latest:
        return _in_order(_join(cache, new))
    room, at = cache.positions.shape[-2], new.positions.reshape(len(new.positions), -1)
    if at.shape[-1] == 1:
        return jax.tree.map(lambda old, one: jnp.where(_is_at(at, old), one, old), cache, new)
    at = jnp.where(at < 0, room, at)
    put = jax.vmap(lambda old, one, place: old.at[..., place, :].set(one, mode="drop"))
    return jax.tree.map(lambda old, one: put(old, one, at), cache, new)


def latest_of(entries: Entries, number: int) -> Entries:
    """Returns the last so many entries."""
    return jax.tree.map(lambda x: x[..., x.shape[-2] - number :, :], entries)


def _join(old: Entries, new: Entries) -> Entries:
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=-2), old, new)


def _in_order(entries: Entries) -> Entries:
    """Sorts entries by position; those without a key come first."""
    index = jnp.argsort(entries.positions, axis=-2)
    return jax.tree.map(lambda x: jnp.take_along_axis(x, index, axis=-2), entries)


def _none(like: Entries, number: int) -> Entries:
    """Returns so many entries without a key."""
    none = jax.tree.map(lambda x: jnp.zeros((*x.shape[:-2], number, x.shape[-1]), x.dtype), like)
    return none.replace(positions=none.positions - 1)


def _is_at(place: Int[Array, "b 1"], leaf: Array) -> Bool[Array, "..."]:
    """Tells where along its axis of keys a leaf [b, ..., k, c] has this place."""
    along = jax.lax.broadcasted_iota(jnp.int32, leaf.shape, leaf.ndim - 2)
    return along == place.reshape(-1, *[1] * (leaf.ndim - 1))
