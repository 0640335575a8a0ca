"""Forgetting attention: gates computed from the input lower the scores of earlier keys. Lin 2025 (arXiv 2503.02130)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.attention.blockwise import PositionFunction
from attn_jax.attention.dense import Dense
from attn_jax.attention.loops import by_compiler
from attn_jax.attention.maps import MapWrapper
from attn_jax.attention.parts import Call, NewKeys, add_bias
from attn_jax.types import Array, Dtype, Float, Int, PyTree, wide


def forgetting_bias(
    log_gates: Float[Array, "... k"], positions: Int[Array, "... q"], key_positions: Int[Array, "... k"] | None = None
) -> Float[Array, "... q k"]:
    """Computes the bias -|c_i - c_j| of the scores, where c is the cumulative sum of the log gates.

    Lin 2025 (arXiv 2503.02130), equation 5: the weight of key j is multiplied by the gates of all positions after it up
    to the query. It generalizes ALiBi, which has the gate exp(-slope) everywhere. Because of the absolute value,
    without a causal mask the weight of keys after the query decreases as well. A position after the last key counts as
    the position of the last key. Keys are in the order of their positions, by default 0, 1, 2, ...
    """
    total, at_query = _totals(log_gates, positions, key_positions)
    return -jnp.abs(at_query[..., :, None] - total[..., None, :])


def forgetting_bias_at(
    log_gates: Float[Array, "... k"], positions: Int[Array, "... q"], key_positions: Int[Array, "... k"] | None = None
) -> PositionFunction:
    """Returns `forgetting_bias` as a function of indices (query [q, 1], key [k]), for blocks: no [q, k] is made."""
    total, at_query = _totals(log_gates, positions, key_positions)
    return lambda query, key: -jnp.abs(at_query[..., query] - total[..., None, key])


def _totals(
    log_gates: Float[Array, "... k"], positions: Int[Array, "... q"], key_positions: Int[Array, "... k"] | None
) -> tuple[Float[Array, "... k"], Float[Array, "... q"]]:
    """Computes c at all keys and at the queries."""
    total = jnp.cumsum(log_gates, axis=-1)
    # Index of the last key at or before each query. A missing key counts as an open gate, log gate 0.
    if key_positions is not None:
        positions = _count_up_to(key_positions, positions) - 1
    lead = jnp.broadcast_shapes(total.shape[:-1], positions.shape[:-1])
    index = jnp.broadcast_to(positions, (*lead, positions.shape[-1]))
    return total, jnp.take_along_axis(jnp.broadcast_to(total, (*lead, total.shape[-1])), index, axis=-1, mode="clip")


_count_up_to = by_compiler(
    jnp.vectorize(
        lambda key, query: jnp.searchsorted(key, query, side="right", method="scan_unrolled"), signature="(k),(q)->(q)"
    )
)


class ForgetGates(nn.Module, kw_only=True):
    """log sigmoid(W x + b): one gate for each key head and position.

    b starts at 0, where gates are near one half, as in the authors' code. With a `decay_time` T the gate starts at
    exp(-1 / T), so that T positions lower a weight to 1 / e: the start of Lin 2025 for gates without W. With gates of
    one half the weight of a key 20 positions away is 2^-20, too small for a gradient.
    """

    num_heads: int
    decay_time: float = 0.0
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "... k d"]) -> Float[Array, "... h k"]:
        rate = 1 / self.decay_time if self.decay_time else 0.0
        start = -rate - np.log1p(-np.exp(-rate)) if rate else 0.0  # the logit of exp(-rate)
        gates = Dense(features=self.num_heads, bias_init=nn.initializers.constant(start), dtype=self.dtype)(x)
        return jax.nn.log_sigmoid(wide(jnp.swapaxes(gates, -2, -1)))


class Forgetting(MapWrapper, kw_only=True):
    """Adds the bias -|c_i - c_j| to the scores, c the cumulative log gates of the inputs; see `forgetting_bias`.

    Each key head has its own gates.

    Attributes:
        num_heads: number of heads.
        decay_time: see ForgetGates.
        dtype: type of the products.

    Raises:
        ValueError: there are no inputs (MultiHead passes them), or no positions.
    """

    num_heads: int
    decay_time: float = 0.0
    dtype: Dtype = jnp.float32
    counts_keys = True  # the gates of all keys between a key and the query

    def setup(self):
        self.gates = ForgetGates(num_heads=self.num_heads, decay_time=self.decay_time, dtype=self.dtype)

    def prepare(self, new: NewKeys) -> PyTree:
        if new.inputs is None:
            raise ValueError("forget gates are made of the inputs of heads; expected MultiHead, or prepare(inputs=...)")
        # A masked key gets log gate 0: it forgets nothing.
        gates = jnp.where(new.key_mask, self.gates(new.inputs), 0)
        return gates[..., None], self.of.prepare(new)

    def read_by(self, call: Call) -> PyTree:
        return call.keys[0], self.of.read_by(self.enter(call))

    def enter(self, call: Call) -> Call:
        """Returns the call with the bias of the gates, for the map inside."""
        if call.positions is None:
            raise ValueError("a memory with forget gates needs the positions of the queries: positions=...")
        given = call.keys[0][..., 0], call.positions, call.key_positions
        return add_bias(call._replace(keys=call.keys[1]), forgetting_bias(*given), forgetting_bias_at(*given))
