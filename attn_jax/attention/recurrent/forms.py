"""Three ways to compute a fixed-size memory, equal in value and derivatives.

    dense       context = W values: O(n^2) time; W is available
    recurrent   a write and a read for each position: O(n) time, a memory of fixed size; for decoding
    chunked     dense within a chunk, with a memory between chunks: O(n size) time; for training

A rule (linear.py, delta.py, mesa.py) defines the writes and reads.
"""

from typing import Protocol, runtime_checkable

import jax.numpy as jnp

from attn_jax.attention import loops
from attn_jax.attention.recurrent.writes import Writes, map_writes
from attn_jax.types import Array, Float, PyTree


@runtime_checkable
class Rule(Protocol):
    """An update rule: writes and reads a memory of fixed size; to `chunk`, a state of None is an empty memory."""

    ordered: bool  # even without decay, the memory depends on the order of the writes

    def start(self, writes: Writes) -> PyTree: ...
    def write(self, state: PyTree, one: Writes) -> PyTree: ...
    def read(self, state: PyTree, query: Float[Array, "... q dk"]) -> Float[Array, "... q dv"]: ...
    def weights(self, query: Float[Array, "... q dk"], writes: Writes, causal: bool = True) -> Array: ...
    def chunk(self, state: PyTree | None, query: Float[Array, "... n dk"], writes: Writes) -> tuple: ...


def dense(
    rule: Rule, query: Float[Array, "... n dk"], writes: Writes
) -> tuple[Float[Array, "... n dv"], Float[Array, "... n n"]]:
    """Computes (context, weights); a query reads the writes up to its own position."""
    weights = rule.weights(query.astype(writes.keys.dtype), writes)
    return weights @ writes.values, weights


def recurrent(
    rule: Rule, query: Float[Array, "... n dk"], writes: Writes, state: PyTree = None
) -> tuple[PyTree, Float[Array, "... n dv"]]:
    """Computes (state after the writes, context) one position at a time, from `state`, by default an empty memory."""

    def step(state: PyTree, here: tuple) -> tuple[PyTree, Array]:
        query, one = here
        state = rule.write(state, one)
        return state, rule.read(state, query[..., None, :])[..., 0, :]

    state = rule.start(writes) if state is None else state
    state, context = loops.scan(step, state, _first(query.astype(writes.keys.dtype), writes, axis=-2))
    return state, jnp.moveaxis(context, 0, -2)


def chunked(
    rule: Rule, query: Float[Array, "... n dk"], writes: Writes, chunk_size: int, state: PyTree = None
) -> tuple[PyTree, Float[Array, "... n dv"]]:
    """Computes (state after the writes, context) chunk by chunk, from `state`, by default an empty memory.

    Any size works: the last chunk is padded with keys that are not written.

    Raises:
        ValueError: the chunk size is below 1.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size}; expected at least 1")
    length = query.shape[-2]
    size = max(1, min(chunk_size, length))
    missing = -length % size
    if state is None:
        state = rule.start(writes)  # checks the writes, too
        if length <= size:
            return rule.chunk(None, query.astype(writes.keys.dtype), writes)

    def cut(x: Array, axis: int) -> Array:
        x = jnp.pad(x, [(0, missing if i == axis % x.ndim else 0) for i in range(x.ndim)])
        axis = axis % x.ndim
        return x.reshape(*x.shape[:axis], x.shape[axis] // size, size, *x.shape[axis + 1 :])

    cuts = cut(query.astype(writes.keys.dtype), -2), map_writes(cut, writes)
    step = lambda state, here: rule.chunk(state, *here)  # noqa: E731
    state, context = loops.scan(step, state, _first(*cuts, axis=-3))
    context = jnp.moveaxis(context, 0, -3)
    context = context.reshape(*context.shape[:-3], length + missing, context.shape[-1])
    return state, context[..., :length, :]


def write_all(rule: Rule, writes: Writes) -> PyTree:
    """Writes all positions into an empty memory, which any query may then read: keys without causal order.

    With decay, a key fades with the positions after it, independent of the position of the query.

    Raises:
        ValueError: the memory of the rule depends on the order of the writes.
    """
    if rule.ordered:
        raise ValueError(f"{type(rule).__name__} needs causal keys: what it writes depends on the keys before")
    rule.start(writes)  # checks the writes
    return rule.chunk(None, jnp.zeros_like(writes.keys), writes)[0]


def _first(query: Array, writes: Writes, axis: int) -> tuple[Array, Writes]:
    """Moves the axis to scan over, `axis` of query and keys counted from the end, to the front."""
    return jnp.moveaxis(query, axis, 0), map_writes(lambda x, own: jnp.moveaxis(x, own + axis + 2, 0), writes)
