"""Readings: from weights over the values to a context."""

import jax.numpy as jnp

from attn_jax.types import Array, Float


def expectation(weights: Float[Array, "... q k"], values: Float[Array, "... k d"]) -> Float[Array, "... q d"]:
    """Soft attention: context_q = sum_k weights_qk values_k, the mean value under the weights."""
    return jnp.einsum("...qk,...kd->...qd", weights, values)


READINGS = {"expectation": expectation}
