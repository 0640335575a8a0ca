"""Linear attention: a matrix stores values under their keys as a sum of outer products; a query reads by a product.

    S_t = exp(g_t) S_{t-1} + b_t k_t v_t'         context_t = S_t' q_t

S is [dk, dv] for any number of keys. The weights, which are not computed, are W_tj = b_j q_t . (exp(c_t - c_j) k_j) for
j <= t, where c is the cumulative log decay g. Without decay: Katharopoulos 2020 (arXiv 2006.16236), equations 16 to 20,
and the outer-product memory of Schmidhuber 1992. With one g for all positions: retention (Sun 2023, arXiv 2307.08621,
equation 6). With a g for each position and column of the keys: gated linear attention (Yang 2023, arXiv 2312.06635).
"""

from typing import ClassVar

import jax.numpy as jnp
from flax import struct

from attn_jax.attention.recurrent.writes import Writes, faded_products
from attn_jax.types import Array, Float


class Linear(struct.PyTreeNode):
    """The rule of linear attention.

    Attributes:
        normalized: the weights of each query are divided by their sum, for which the memory has an additional column,
            c = dv + 1.
    """

    normalized: bool = struct.field(pytree_node=False, default=False)
    ordered: ClassVar[bool] = False  # without decay the order of the writes does not matter

    def start(self, writes: Writes) -> Float[Array, "... dk c"]:
        """Returns the empty memory for writes of these shapes."""
        return empty(writes, writes.values.shape[-1] + self.normalized)

    def write(self, state: Float[Array, "... dk c"], one: Writes) -> Float[Array, "... dk c"]:
        """Writes one position: keys [..., dk], values [..., dv], rates [...], log_decay [..., g]."""
        update = one.rates[..., None] * self._values(one.values)
        return jnp.exp(one.log_decay)[..., None] * state + one.keys[..., :, None] * update[..., None, :]

    def read(self, state: Float[Array, "... dk c"], query: Float[Array, "... q dk"]) -> Float[Array, "... q dv"]:
        """Reads the memory at queries."""
        return self._divided(query @ state)

    def weights(self, query: Float[Array, "... q dk"], writes: Writes, causal: bool = True) -> Float[Array, "... q k"]:
        """Computes the weights W with context = W values; not causal: each query reads all writes, like `write_all`."""
        products = products_of(query, writes, causal) * writes.rates[..., None, :]
        if not self.normalized:
            return products
        return _safe_ratio(products, jnp.sum(products, axis=-1, keepdims=True))

    def chunk(self, state: Float[Array, "... dk c"] | None, query: Float[Array, "... n dk"], writes: Writes):
        """Writes and reads n positions at once; returns (the state after them, their contexts)."""
        total = jnp.cumsum(writes.log_decay, axis=-2)
        updates = writes.rates[..., None] * self._values(writes.values)
        state, context = write_and_read(state, query, writes.keys, updates, total)
        return state, self._divided(context)

    def _values(self, values: Float[Array, "... dv"]) -> Float[Array, "... dw"]:
        """Adds a column of ones: its context is the sum of the weights."""
        return jnp.concatenate([values, jnp.ones_like(values[..., :1])], axis=-1) if self.normalized else values

    def _divided(self, context: Float[Array, "... dw"]) -> Float[Array, "... dv"]:
        return _safe_ratio(context[..., :-1], context[..., -1:]) if self.normalized else context


def empty(writes: Writes, columns: int) -> Float[Array, "... dk c"]:
    """Returns a memory of zeros with a row for each column of the keys."""
    # Made from the writes, for their leading axes and the devices that these are on.
    values, decay = (jnp.sum(x, axis=(-2, -1), keepdims=True) for x in (writes.values, writes.log_decay))
    column = jnp.zeros_like(jnp.sum(writes.keys * writes.rates[..., None] * values * decay, axis=-2)[..., None])
    return jnp.broadcast_to(column, (*column.shape[:-1], columns))


def products_of(query: Float[Array, "... q dk"], writes: Writes, causal: bool) -> Float[Array, "... q k"]:
    """Computes decayed products q . k: causal, with 0 for later keys; or not causal, decayed by all later writes."""
    total = jnp.cumsum(writes.log_decay, axis=-2)
    if not causal:
        return jnp.einsum("...qd,...kd->...qk", query, writes.keys * jnp.exp(total[..., -1:, :] - total))
    return faded_products(query, writes.keys, total)


def write_and_read(
    state: Float[Array, "... dk dv"] | None,
    query: Float[Array, "... n dk"],
    keys: Float[Array, "... n dk"],
    updates: Float[Array, "... n dv"],
    total: Float[Array, "... n g"],
) -> tuple[Float[Array, "... dk dv"], Float[Array, "... n dv"]]:
    """Adds updates under their keys to a memory, and reads it after each; c is the cumulative log decay `total`.

    context_t = (exp(c_t) q_t)' S_0 + sum_{j <= t} q_t . (exp(c_t - c_j) k_j) u_j
    S_n = exp(c_n) S_0 + sum_j (exp(c_n - c_j) k_j) u_j'

    A `state` of None is an empty memory. Its products are left out not for speed alone: on a CPU XLA computes the sum
    of the two products wrongly if it knows that the memory is zero (jaxlib 0.10.2).
    """
    last = total[..., -1:, :]
    context = faded_products(query, keys, total) @ updates
    added = jnp.einsum("...kd,...kv->...dv", keys * jnp.exp(last - total), updates)
    if state is None:
        return added, context
    return jnp.exp(last)[..., 0, :, None] * state + added, (query * jnp.exp(total)) @ state + context


def _safe_ratio(x: Float[Array, "..."], total: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.where(total > 0, x / jnp.where(total > 0, total, 1), 0)
