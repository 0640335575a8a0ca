"""Log decays and rates, computed from the input."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.dense import Dense
from attn_jax.types import Array, Dtype, Float, wide

SOFTENED = 16.0  # exponent 1 / 16: a gate sigmoid(.)^(1/16) is near 1 at initialization, so the memory decays slowly


class FixedDecay(nn.Module, kw_only=True):
    """g_h = log(1 - 2^(-5 - h)) for head h = 0, 1, ...: no parameters. Sun 2023 (arXiv 2307.08621), equation 8."""

    num_heads: int
    width: int  # width of a head
    dtype: Dtype = jnp.float32

    def __call__(self, x: Float[Array, "... k d"]) -> Float[Array, "... h k 1"]:
        decay = jnp.log1p(-(2.0 ** (-5 - jnp.arange(self.num_heads, dtype=jnp.float32))))
        return jnp.broadcast_to(decay[:, None, None], (*x.shape[:-2], self.num_heads, x.shape[-2], 1))


class HeadDecay(nn.Module, kw_only=True):
    """g = log sigmoid(W x + b) / 16, one for each head and position.

    The gate of gated linear attention (Yang 2023, arXiv 2312.06635), here with one gate per head.
    """

    num_heads: int
    width: int  # width of a head
    dtype: Dtype = jnp.float32

    @property
    def columns(self) -> int:
        """Number of gates per head."""
        return 1

    @nn.compact
    def __call__(self, x: Float[Array, "... k d"]) -> Float[Array, "... h k g"]:
        gates = wide(Dense(features=self.num_heads * self.columns, dtype=self.dtype)(x))
        gates = gates.reshape(*gates.shape[:-1], self.num_heads, self.columns)
        return jax.nn.log_sigmoid(jnp.swapaxes(gates, -3, -2)) / SOFTENED


class ColumnDecay(HeadDecay, kw_only=True):
    """g = log sigmoid(W x + b) / 16, one for each head, position and column of the keys. Yang 2023."""

    @property
    def columns(self) -> int:
        """Number of gates per head."""
        return self.width


class Rates(nn.Module, kw_only=True):
    """b = sigmoid(W x), one for each head and position. Yang 2024 (arXiv 2406.06484)."""

    num_heads: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "... k d"]) -> Float[Array, "... h k"]:
        rates = wide(Dense(features=self.num_heads, use_bias=False, dtype=self.dtype)(x))
        return jax.nn.sigmoid(jnp.swapaxes(rates, -2, -1))
