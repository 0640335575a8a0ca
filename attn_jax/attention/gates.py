"""Gates computed from the input of attention: forget gates of earlier keys, and a gate of the context."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.blockwise import PositionFunction
from attn_jax.types import Array, Dtype, Float, Int, wide


def forgetting_bias(log_gates: Float[Array, "... k"], positions: Int[Array, "... q"]) -> Float[Array, "... q k"]:
    """Computes -|c_i - c_j| for queries at these positions, c the cumulative sum of the log gates: added to the scores.

    Lin 2025 (arXiv 2503.02130), equation 5: the weight of key j is multiplied by the gates of all positions after it up
    to the query. It is ALiBi with a slope that depends on the data; where all gates are exp(-slope) it is ALiBi.
    Because of the absolute value it also decreases for keys after the query, where there is no causal mask. A position
    after the last key counts as that of the last key.
    """
    total, at_query = _totals(log_gates, positions)
    return -jnp.abs(at_query[..., :, None] - total[..., None, :])


def forgetting_bias_at(log_gates: Float[Array, "... k"], positions: Int[Array, "... q"]) -> PositionFunction:
    """Returns `forgetting_bias` as a function of places, (query [q, 1], key [k]): block by block no [q, k] is made."""
    total, at_query = _totals(log_gates, positions)
    return lambda query, key: -jnp.abs(at_query[..., query] - total[..., None, key])


def _totals(
    log_gates: Float[Array, "... k"], positions: Int[Array, "... q"]
) -> tuple[Float[Array, "... k"], Float[Array, "... q"]]:
    """Computes c at all keys and at the queries."""
    total = jnp.cumsum(log_gates, axis=-1)
    lead = jnp.broadcast_shapes(total.shape[:-1], positions.shape[:-1])
    index = jnp.broadcast_to(positions, (*lead, positions.shape[-1]))
    return total, jnp.take_along_axis(jnp.broadcast_to(total, (*lead, total.shape[-1])), index, axis=-1, mode="clip")


class ForgetGates(nn.Module, kw_only=True):
    """log sigmoid(W x + b): one gate for each head of keys and each position."""

    num_heads: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "... k d"]) -> Float[Array, "... h k"]:
        gates = nn.Dense(self.num_heads, dtype=self.dtype)(x)
        return jax.nn.log_sigmoid(wide(jnp.swapaxes(gates, -2, -1)))


class ContextGate(nn.Module, kw_only=True):
    """context * sigmoid(W x + b), elementwise, x the input that the queries are made of.

    Qiu 2025 (arXiv 2505.06708), the gate after the read-out ("G1"): a context can be left unused, so no key is needed
    as a sink. A bias is added here.
    """

    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, context: Float[Array, "... q dv"], x: Float[Array, "... q d"]) -> Float[Array, "... q dv"]:
        return context * nn.sigmoid(nn.Dense(context.shape[-1], dtype=self.dtype)(x)).astype(context.dtype)
