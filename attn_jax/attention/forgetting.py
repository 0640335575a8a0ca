"""Forgetting attention: gates of the input lower the scores of earlier keys. Lin 2025 (arXiv 2503.02130)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.blockwise import PositionFunction
from attn_jax.attention.maps import MapWrapper
from attn_jax.attention.parts import Call, NewKeys, add_bias
from attn_jax.types import Array, Dtype, Float, Int, PyTree, wide


def forgetting_bias(
    log_gates: Float[Array, "... k"], positions: Int[Array, "... q"], key_positions: Int[Array, "... k"] | None = None
) -> Float[Array, "... q k"]:
    """Computes -|c_i - c_j| for queries at these positions, c the cumulative sum of the log gates: added to the scores.

    Lin 2025 (arXiv 2503.02130), equation 5: the weight of key j is multiplied by the gates of all positions after it up
    to the query. It is ALiBi with a slope that depends on the data; where all gates are exp(-slope) it is ALiBi.
    Because of the absolute value it also decreases for keys after the query, where there is no causal mask. A position
    after the last key counts as that of the last key. Keys are in the order of their positions, by default 0, 1, 2, ...
    """
    total, at_query = _totals(log_gates, positions, key_positions)
    return -jnp.abs(at_query[..., :, None] - total[..., None, :])


def forgetting_bias_at(
    log_gates: Float[Array, "... k"], positions: Int[Array, "... q"], key_positions: Int[Array, "... k"] | None = None
) -> PositionFunction:
    """Returns `forgetting_bias` as a function of places, (query [q, 1], key [k]): block by block no [q, k] is made."""
    total, at_query = _totals(log_gates, positions, key_positions)
    return lambda query, key: -jnp.abs(at_query[..., query] - total[..., None, key])


def _totals(
    log_gates: Float[Array, "... k"], positions: Int[Array, "... q"], key_positions: Int[Array, "... k"] | None
) -> tuple[Float[Array, "... k"], Float[Array, "... q"]]:
    """Computes c at all keys and at the queries."""
    total = jnp.cumsum(log_gates, axis=-1)
    if key_positions is not None:  # the place of the last key up to the query; keys that are not there have open gates
        positions = _count_up_to(key_positions, positions) - 1
    lead = jnp.broadcast_shapes(total.shape[:-1], positions.shape[:-1])
    index = jnp.broadcast_to(positions, (*lead, positions.shape[-1]))
    return total, jnp.take_along_axis(jnp.broadcast_to(total, (*lead, total.shape[-1])), index, axis=-1, mode="clip")


_count_up_to = jnp.vectorize(
    lambda key, query: jnp.searchsorted(key, query, side="right", method="scan_unrolled"), signature="(k),(q)->(q)"
)


class ForgetGates(nn.Module, kw_only=True):
    """log sigmoid(W x + b): one gate for each head of keys and each position."""

    num_heads: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "... k d"]) -> Float[Array, "... h k"]:
        gates = nn.Dense(self.num_heads, dtype=self.dtype)(x)
        return jax.nn.log_sigmoid(wide(jnp.swapaxes(gates, -2, -1)))


class Forgetting(MapWrapper, kw_only=True):
    """Adds -|c_i - c_j| to the scores, c the cumulative log gates of the inputs; see `forgetting_bias`.

    Each head of keys has its gates.

    Raises:
        ValueError: no inputs, which MultiHead gives; no positions.
    """

    num_heads: int
    dtype: Dtype = jnp.float32

    def setup(self):
        self.gates = ForgetGates(num_heads=self.num_heads, dtype=self.dtype)

    def prepare(self, new: NewKeys) -> PyTree:
        if new.inputs is None:
            raise ValueError("forget gates are made of the inputs of heads; expected MultiHead, or prepare(inputs=...)")
        # A masked key forgets nothing, as if it were not there.
        gates = jnp.where(new.key_mask, self.gates(new.inputs), 0)
        return gates[..., None], self.of.prepare(new)

    def read_by(self, call: Call) -> PyTree:
        return call.keys[0], self.of.read_by(self.enter(call))

    def enter(self, call: Call) -> Call:
        """Returns the call of the map inside, with the bias of the gates."""
        if call.positions is None:
            raise ValueError("a memory with forget gates needs the positions of the queries: positions=...")
        given = call.keys[0][..., 0], call.positions, call.key_positions
        return add_bias(call._replace(keys=call.keys[1]), forgetting_bias(*given), forgetting_bias_at(*given))
