"""Local attention: a window of keys around a centre instead of all keys (Luong 2015, section 3.2).

A window is a module: window(query [..., q, d], positions [..., q], key_mask=[..., k], key_positions=[..., k] or None)
returns a mask [..., q, k] of the keys within `size` of the centre, and a factor [..., q, k] that multiplies the
weights, so the weights need not sum to one. Positions count from 0. Without key_positions, the position of a key is
its rank among the unmasked keys: masking a key has the same effect as deleting it.
"""

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.masks import checked_masks
from attn_jax.parts import option
from attn_jax.types import Array, Bool, Float, Int, wide


class LocalM(nn.Module, kw_only=True):
    """Monotonic window, "local-m": the centre of target position t is source position t.

    Luong 2015 (arXiv 1508.04025), section 3.2. The factor is 1. If t is more than `size` past the end, no key is in the
    window and the context is zero.

    Raises:
        ValueError: a size below 1.
    """

    size: int = option(10, "largest distance of a key from the centre", at_least=1)

    sums_to_one = False

    def __post_init__(self):
        _check_size(self.size)
        super().__post_init__()

    @checked_masks
    def __call__(
        self,
        query: Float[Array, "... q d"],
        positions: Int[Array, "... q"],
        *,
        key_mask: Bool[Array, "... k"],
        key_positions: Int[Array, "... k"] | None = None,
    ) -> tuple[Bool[Array, "... q k"], Float[Array, "... q k"]]:
        distance = _distance(positions.astype(jnp.float32), key_mask, key_positions)
        return jnp.abs(distance) <= self.size, jnp.ones_like(distance)


class LocalP(nn.Module, kw_only=True):
    """Predictive window, "local-p": the centre is p = (length - 1) * sigmoid(v . tanh(W query)).

    Luong 2015 (arXiv 1508.04025), section 3.2. length is the number of unmasked keys. Positions count from 0, so length
    - 1 replaces the S of the paper. The factor is exp(-(s - p)^2 / (2 sigma^2)) with sigma = size / 2 (equations 9 and
    10). W and v are trained through the factor; the edge of the window has no gradient.

    Raises:
        ValueError: a size below 1.
    """

    size: int = option(10, "largest distance of a key from the centre", at_least=1)
    features: int = option(256, "width of the hidden layer", at_least=1)

    sums_to_one = False

    def __post_init__(self):
        _check_size(self.size)
        super().__post_init__()

    @checked_masks
    @nn.compact
    def __call__(
        self,
        query: Float[Array, "... q d"],
        positions: Int[Array, "... q"],
        *,
        key_mask: Bool[Array, "... k"],
        key_positions: Int[Array, "... k"] | None = None,
    ) -> tuple[Bool[Array, "... q k"], Float[Array, "... q k"]]:
        hidden = jnp.tanh(nn.Dense(self.features, use_bias=False, name="position")(query))
        fraction = nn.sigmoid(nn.Dense(1, use_bias=False, name="vector")(hidden)[..., 0])
        last = jnp.maximum(jnp.sum(key_mask, axis=-1, keepdims=True) - 1, 0)
        distance = _distance(wide(fraction) * last, key_mask)
        return jnp.abs(distance) <= self.size, jnp.exp(-0.5 * jnp.square(distance / (self.size / 2)))


def _distance(
    centre: Float[Array, "... q"], key_mask: Bool[Array, "... k"], key_positions: Int[Array, "... k"] | None = None
) -> Float[Array, "... q k"]:
    positions = jnp.cumsum(key_mask, axis=-1) - 1 if key_positions is None else key_positions
    return positions[..., None, :].astype(centre.dtype) - centre[..., None]


def _check_size(size: int) -> None:
    """Raises a ValueError for a size below one key on each side: the factor would be 0 / 0 at the centre."""
    if size < 1:
        raise ValueError(f"size of the window is {size}; expected at least 1")


WINDOWS = {"local_m": LocalM, "local_p": LocalP}
