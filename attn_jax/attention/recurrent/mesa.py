"""MesaNet: the context is the prediction, at the query, of a ridge regression of the values on the keys so far.

    H_t = a_t H_{t-1} + b_t k_t k_t'        G_t = a_t G_{t-1} + b_t k_t v_t'        context_t = G_t' (H_t + L)^-1 q_t

G_t' (H_t + L)^-1 is the matrix M that minimizes sum_j b_j a_{j+1} ... a_t |M k_j - v_j|^2 + trace(M L M'), where L is
the diagonal ridge. The delta rule takes one step of descent; this is the minimum (von Oswald 2025, arXiv 2506.05233).

It is linear attention with other queries, x_t = (H_t + L)^-1 q_t, solved exactly or by steps of conjugate gradient. A
step only needs products with H_t. These are linear attention too, with keys as values, so no H_t is computed for each
position of a chunk. With steps = 0 every H_t of a chunk is computed. If the memory is empty and there are fewer keys
than columns, Woodbury's identity gives smaller systems: with keys K and H_t = K' diag(s_t)^2 K,

    x_t = L^-1 (q_t - K' diag(s_t) (I + diag(s_t) K L^-1 K' diag(s_t))^-1 diag(s_t) K L^-1 q_t)
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from flax import struct

from attn_jax.attention import loops
from attn_jax.attention.linear_systems import conjugate_gradient, solve_positive
from attn_jax.attention.recurrent.linear import empty, products_of, write_and_read
from attn_jax.attention.recurrent.writes import Writes, faded_products
from attn_jax.types import Array, Float


class Moments(NamedTuple):
    """The memory: second moments of the keys, and cross moments of keys and values."""

    of_keys: Float[Array, "... dk dk"]
    of_values: Float[Array, "... dk dv"]


class Mesa(struct.PyTreeNode):
    """The rule of MesaNet. The decay is one number for all columns of a key, so H_t is symmetric.

    Attributes:
        ridge: the diagonal of L, positive.
        steps: steps of conjugate gradient; 0: exact solution.
    """

    ridge: float | Float[Array, "... dk"] = 1.0
    steps: int = struct.field(pytree_node=False, default=0)
    ordered: ClassVar[bool] = False  # without decay the order of the writes does not matter

    def start(self, writes: Writes) -> Moments:
        """Returns the empty memory for writes of these shapes.

        Raises:
            ValueError: log_decay has more than one column.
        """
        if writes.log_decay.shape[-1] != 1:
            raise ValueError(f"log_decay has {writes.log_decay.shape[-1]} columns; expected 1 for all of a key")
        return Moments(empty(writes, writes.keys.shape[-1]), empty(writes, writes.values.shape[-1]))

    def write(self, state: Moments, one: Writes) -> Moments:
        """Writes one position: keys [..., dk], values [..., dv], rates [...], log_decay [..., 1]."""
        kept, key = jnp.exp(one.log_decay)[..., None], (one.rates[..., None] * one.keys)[..., :, None]
        return Moments(
            kept * state.of_keys + key * one.keys[..., None, :], kept * state.of_values + key * one.values[..., None, :]
        )

    def read(self, state: Moments, query: Float[Array, "... q dk"]) -> Float[Array, "... q dv"]:
        """Reads the memory at queries."""
        return self._solve_at(state.of_keys, query) @ state.of_values

    def weights(self, query: Float[Array, "... q dk"], writes: Writes, causal: bool = True) -> Float[Array, "... q k"]:
        """Computes the weights W with context = W values: the weights of linear attention at the solved queries."""
        if causal:
            solved = self._solve_along(None, query, writes)
        else:
            total = jnp.cumsum(writes.log_decay, axis=-2)
            rated = writes.rates[..., None] * writes.keys
            solved = self._solve_at(write_and_read(None, rated, writes.keys, rated, total)[0], query)
        return products_of(solved, writes, causal) * writes.rates[..., None, :]

    def chunk(self, state: Moments | None, query: Float[Array, "... n dk"], writes: Writes):
        """Writes and reads n positions at once; returns (the state after them, their contexts)."""
        keys_before, values_before = (None, None) if state is None else (state.of_keys, state.of_values)
        solved = self._solve_along(keys_before, query, writes)
        total, rates = jnp.cumsum(writes.log_decay, axis=-2), writes.rates[..., None]
        of_keys, _ = write_and_read(keys_before, query, writes.keys, rates * writes.keys, total)
        of_values, context = write_and_read(values_before, solved, writes.keys, rates * writes.values, total)
        return Moments(of_keys, of_values), context

    def _solve_at(self, moments: Float[Array, "... dk dk"], query: Float[Array, "... q dk"]):
        """Solves (H + L) x = query for several queries and the same H."""
        if self.steps:
            return self._by_steps(lambda x: x @ moments, query)
        lead = jnp.broadcast_shapes(moments.shape[:-2], query.shape[:-2])
        return solve_positive(self._ridged(moments), jnp.broadcast_to(query, (*lead, *query.shape[-2:])).mT).mT

    def _solve_along(self, moments: Float[Array, "... dk dk"] | None, query: Float[Array, "... n dk"], writes: Writes):
        """Solves (H_t + L) x_t = query_t, where H_t is the memory after the first t writes to `moments`."""
        total, rated = jnp.cumsum(writes.log_decay, axis=-2), writes.rates[..., None] * writes.keys

        def times_moments(x: Array) -> Array:
            return write_and_read(moments, x, writes.keys, rated, total)[1]

        if self.steps:
            return self._by_steps(times_moments, query)
        fading = faded_products(jnp.ones_like(total), jnp.ones_like(total), total)
        if moments is None and writes.keys.shape[-2] < writes.keys.shape[-1]:
            return self._solve_by_keys(fading * writes.rates[..., None, :], query, writes.keys)
        along = jnp.einsum("...tj,...jd,...je->...tde", fading, rated, writes.keys)
        if moments is not None:
            along = along + jnp.exp(total)[..., None] * moments[..., None, :, :]
        return solve_positive(self._ridged(along, axes=1), query[..., None])[..., 0]

    def _solve_by_keys(
        self, weights: Float[Array, "... n n"], query: Float[Array, "... n dk"], keys: Float[Array, "... n dk"]
    ):
        """Solves (K' diag(w_t) K + L) x_t = query_t, one row of weights for each query."""
        positive = weights > 0  # the square root has no derivative at 0
        root = jnp.where(positive, jnp.sqrt(jnp.where(positive, weights, 1)), 0)
        scaled = keys / self._ridge
        products = root[..., :, None] * (scaled @ keys.mT)[..., None, :, :] * root[..., None, :]
        size = keys.shape[-2]
        matrix = products + jnp.broadcast_to(jnp.eye(size, dtype=products.dtype), products.shape)
        found = root * solve_positive(matrix, (root * (query @ scaled.mT))[..., None])[..., 0]
        return query / self._ridge - found @ scaled

    @property
    def _ridge(self) -> Array:
        """The ridge, with an added axis of positions."""
        ridge = jnp.asarray(self.ridge)
        return ridge[..., None, :] if ridge.ndim else ridge

    def _by_steps(self, times: Callable[[Array], Array], query: Float[Array, "... n dk"]) -> Float[Array, "... n dk"]:
        """Solves (H + L) x = query by conjugate gradient, where `times` multiplies by H."""
        ridge = loops.vary(jnp.broadcast_to(self._ridge, query.shape), query)
        return conjugate_gradient(lambda x: times(x) + ridge * x, query, self.steps)

    def _ridged(self, moments: Float[Array, "... dk dk"], axes: int = 0) -> Float[Array, "... dk dk"]:
        ridge = self._ridge if axes else jnp.asarray(self.ridge)
        diagonal = jnp.broadcast_to(ridge[..., None], moments.shape)
        return moments + diagonal * jnp.broadcast_to(jnp.eye(moments.shape[-1], dtype=moments.dtype), moments.shape)
