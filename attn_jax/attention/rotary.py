"""Rotary positions: queries and keys are rotated, so that a score depends only on the distance of their positions."""

import jax.numpy as jnp

from attn_jax.attention.maps import MapWrapper
from attn_jax.attention.masks import with_axes
from attn_jax.attention.parts import Call, NewKeys
from attn_jax.types import Array, Float, Int, PyTree

BASE = 10_000.0  # base of the wavelengths, which grow from 2 pi to 2 pi BASE


def angles(positions: Int[Array, "... n"], features: int) -> Float[Array, "... n f"]:
    """position / BASE^(2 i / features) for i = 0 .. ceil(features / 2) - 1, in radians."""
    frequencies = BASE ** -(jnp.arange(0, features, 2, dtype=jnp.float32) / features)
    return positions[..., None].astype(jnp.float32) * with_axes(frequencies, positions.ndim + 1)


def rotate(x: Float[Array, "... n w"], positions: Int[Array, "... n"]) -> Float[Array, "... n w"]:
    """Rotates columns i and i + w / 2 by the i-th angle of the position (Su 2021, arXiv 2104.09864).

    The product of a rotated query and a rotated key depends on their positions only through the distance. The paper
    rotates columns 2 i and 2 i + 1; this differs only in the order of columns, which a learned projection can permute.

    Raises:
        ValueError: the width w is odd.
    """
    width = x.shape[-1]
    if width % 2:
        raise ValueError(f"rotary positions rotate pairs of columns; expected x of even width, got shape {x.shape}")
    angle = with_axes(angles(positions, width), x.ndim)
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


class Rotary(MapWrapper, kw_only=True):
    """A map of rotated queries and keys; see `rotate`. Pieces that the map compares separately are rotated separately.

    Raises:
        ValueError: a piece has odd width; there are no positions.
    """

    def prepare(self, new: NewKeys) -> PyTree:
        positions = jnp.arange(new.keys.shape[-2]) if new.positions is None else new.positions
        return self.of.prepare(new._replace(keys=self._rotated(new.keys, positions)))

    def enter(self, call: Call) -> Call:
        """Returns the call with rotated queries."""
        if call.positions is None:
            raise ValueError("rotary attention needs the positions of the queries: positions=...")
        return call._replace(query=self._rotated(call.query, call.positions))

    def _rotated(self, x: Float[Array, "... n w"], positions: Int[Array, "... n"]) -> Float[Array, "... n w"]:
        if self.num_pieces == 1:
            return rotate(x, positions)
        return jnp.concatenate([rotate(piece, positions) for piece in jnp.split(x, self.num_pieces, axis=-1)], axis=-1)
