"""The gate of a context, computed from the input of the queries."""

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.dense import Dense
from attn_jax.types import Array, Dtype, Float


class ContextGate(nn.Module, kw_only=True):
    """context * sigmoid(W x + b), elementwise, where x is the input from which queries are computed.

    Qiu 2025 (arXiv 2505.06708), the gate after the read ("G1"): it can close for a context, so no key is needed as an
    attention sink. Unlike the paper, it has a bias.
    """

    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, context: Float[Array, "... q dv"], x: Float[Array, "... q d"]) -> Float[Array, "... q dv"]:
        return context * nn.sigmoid(Dense(features=context.shape[-1], dtype=self.dtype)(x)).astype(context.dtype)
