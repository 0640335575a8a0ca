"""Glimpses: crops of an image around a place, at one or more scales (Mnih 2014, arXiv 1406.6247, section 3.1).

A place is (row, column), each from -1, the upper or left edge of the image, to 1, the lower or right edge. The crop of
scale i covers size * 2^i pixels in each direction, averaged to size x size numbers; outside of the image it is black.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.dense import Dense
from attn_jax.types import Array, Dtype, Float, Int, UInt8


class PlaceGrid(NamedTuple):
    """Equal cells of an image, among which a policy chooses places, or in which glimpses are counted."""

    rows: int
    columns: int

    def cells(self, height: int, width: int) -> tuple[int, int]:
        """Returns (rows, columns), which do not depend on the size of the image."""
        return self.rows, self.columns

    def centres(self) -> Float[Array, "s 2"]:
        """Returns the place of the centre of each cell, row by row."""
        row, column = ((2 * jnp.arange(n, dtype=jnp.float32) + 1) / n - 1 for n in self)
        return jnp.stack(jnp.meshgrid(row, column, indexing="ij"), axis=-1).reshape(-1, 2)


def corner(place: Float[Array, "... 2"], image: tuple[int, int], side: int) -> Int[Array, "... 2"]:
    """Returns the pixel (top, left) of the square of `side` pixels whose centre is nearest to a place.

    The centre of a square with odd side is a pixel of the image; at the lower or right border, the last pixel.
    """
    size = jnp.broadcast_to(jnp.array(image), place.shape)
    nearest = jnp.floor(0.5 * (jnp.clip(place, -1, 1) + 1) * size - side / 2 + 0.5).astype(jnp.int32)
    return jnp.minimum(nearest, size - (side + 1) // 2)


def crop(
    pixels: UInt8[Array, "y x c"], place: Float[Array, "2"], size: int, num_scales: int
) -> Float[Array, "n size size c"]:
    """Returns the crops of all scales around a place, finest first, as numbers in [0, 1]."""
    found = []
    for scale in range(num_scales):
        side = size * 2**scale
        pad = side // 2 + 1
        padded = jnp.pad(pixels, ((pad, pad), (pad, pad), (0, 0)))
        top, left = corner(place, pixels.shape[:2], side) + pad
        part = jax.lax.dynamic_slice(padded, (top, left, 0), (side, side, pixels.shape[2])) / 255.0
        found.append(part.reshape(size, 2**scale, size, 2**scale, -1).mean(axis=(1, 3)))
    return jnp.stack(found)


def looked_at(
    place: Float[Array, "... 2"], image: tuple[int, int], size: int, grid: PlaceGrid
) -> Float[Array, "... rows columns"]:
    """Returns the share of the finest crop in each cell: weights that sum to one over the part inside of the image."""
    first = corner(place, image, size)
    parts = []
    for axis, (side, count) in enumerate(zip(image, grid, strict=True)):
        edges = jnp.linspace(0, side, count + 1, dtype=jnp.float32)
        begin = jnp.broadcast_to(first[..., axis, None], (*first.shape[:-1], count))
        lower, upper = (jnp.broadcast_to(x, begin.shape) for x in (edges[:-1], edges[1:]))
        parts.append(jnp.maximum(0, jnp.minimum(begin + size, upper) - jnp.maximum(begin, lower)))
    area = parts[0][..., :, None] * parts[1][..., None, :]
    return area / jnp.maximum(jnp.sum(area, axis=(-2, -1), keepdims=True), 1e-6)


class GlimpseSensor(nn.Module, kw_only=True):
    """g = relu(W [relu(W_crop crops); relu(W_place place)] + b): content and place of a glimpse (Mnih 2014, fig. 1 B).

    The place has no gradient, since small changes of it do not change the pixels of a crop.
    """

    size: int
    num_scales: int
    grid: PlaceGrid
    features: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, pixels: UInt8[Array, "b y x c"], place: Float[Array, "b 2"]) -> Float[Array, "b d"]:
        place = jax.lax.stop_gradient(place)
        crops = jax.vmap(lambda image, at: crop(image, at, self.size, self.num_scales))(pixels, place)
        what = nn.relu(Dense(features=self.features, dtype=self.dtype, name="what")(crops.reshape(len(crops), -1)))
        where = nn.relu(Dense(features=self.features, dtype=self.dtype, name="where")(place))
        both = jnp.concatenate([what, where], axis=-1)
        return nn.relu(Dense(features=self.features, dtype=self.dtype, name="both")(both))
