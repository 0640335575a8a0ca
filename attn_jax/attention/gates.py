"""The gate of a context, computed from what the query is made of."""

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.types import Array, Dtype, Float


class ContextGate(nn.Module, kw_only=True):
    """context * sigmoid(W x + b), elementwise, x the input that the queries are made of.

    Qiu 2025 (arXiv 2505.06708), the gate after the read-out ("G1"): a context can be left unused, so no key is needed
    as a sink. A bias is added here.
    """

    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, context: Float[Array, "... q dv"], x: Float[Array, "... q d"]) -> Float[Array, "... q dv"]:
        return context * nn.sigmoid(nn.Dense(context.shape[-1], dtype=self.dtype)(x)).astype(context.dtype)
