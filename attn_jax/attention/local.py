"""Local attention: a window of keys around a centre, instead of all of them (Luong 2015, section 3.2).

A window is a module: window(query [..., q, d], positions [..., q], key_mask [..., k]) gives a mask
[..., q, k] of the keys within `size` of the centre and a factor [..., q, k] that multiplies the
weights. Positions count from 0; a key further than `size` from the centre gets weight 0.
"""

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.types import Array, Bool, Float, Int


class LocalM(nn.Module):
    """Monotonic: the centre of target position t is source position t.

    The factor is 1. Once t has run more than `size` past the end, no key is left and the context is zero.
    """

    size: int

    def __call__(
        self, query: Float[Array, "... q d"], positions: Int[Array, "... q"], key_mask: Bool[Array, "... k"]
    ) -> tuple[Bool[Array, "... q k"], Float[Array, "... q k"]]:
        distance = _distance(positions.astype(jnp.float32), key_mask)
        return jnp.abs(distance) <= self.size, jnp.ones_like(distance)


class LocalP(nn.Module):
    """Predictive: the centre is p = (length - 1) * sigmoid(v . tanh(W query)), with length the number of real keys.

    Positions count from 0 here, hence length - 1 where the paper, counting to S, writes S. The factor is
    exp(-(s - p)^2 / (2 sigma^2)) with sigma = size / 2 (equations 9 and 10). The gradient reaches W and v through
    it; the hard edge of the window has none.
    """

    size: int
    features: int

    @nn.compact
    def __call__(
        self, query: Float[Array, "... q d"], positions: Int[Array, "... q"], key_mask: Bool[Array, "... k"]
    ) -> tuple[Bool[Array, "... q k"], Float[Array, "... q k"]]:
        hidden = jnp.tanh(nn.Dense(self.features, use_bias=False, name="position")(query))
        fraction = nn.sigmoid(nn.Dense(1, use_bias=False, name="vector")(hidden)[..., 0])
        last = jnp.maximum(jnp.sum(key_mask, axis=-1, keepdims=True) - 1, 0)
        distance = _distance(fraction * last, key_mask)
        return jnp.abs(distance) <= self.size, jnp.exp(-0.5 * jnp.square(distance / (self.size / 2)))


def _distance(centre: Float[Array, "... q"], key_mask: Bool[Array, "... k"]) -> Float[Array, "... q k"]:
    return jnp.arange(key_mask.shape[-1], dtype=jnp.float32) - centre[..., None]


WINDOWS = {"local_m": LocalM, "local_p": LocalP}
