"""Images as sequences of vectors, which attention reads like embedded words: a grid of cells, row by row.

    pixels uint8 [b, y, x, c] -> grid [b, rows, columns, d] -> + positions -> [b, rows columns, d]

A grid has methods `cells(height, width)`, the number of rows and columns, and `edges(height, width)`, the borders of
the cells, where each pixel belongs to the cell with the nearest receptive field centre. The words of a question follow
the cells, as further keys.
"""

import math

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from attn_jax.attention.dense import Dense
from attn_jax.attention.masks import checked_masks
from attn_jax.layers.embedding import Table
from attn_jax.layers.encoder import Encoder
from attn_jax.layers.pooling import mean_state
from attn_jax.layers.positions import sinusoids
from attn_jax.layers.windows import Conv
from attn_jax.types import Array, Bool, Dtype, Float, Picture


class ConvolutionGrid(nn.Module, kw_only=True):
    """Blocks of convolution, layer norm and relu; the output of the last block is mapped to `features` columns.

    Layer i has `channels[i]` channels, a window of `kernels[i]` squared and stride `strides[i]`; borders are padded
    with zeros, so a grid has ceil(height / product of the strides) rows. They are the annotations of an image of Xu
    2015 (arXiv 1502.03044), section 3.1.1, where the network was pretrained on ImageNet.
    """

    features: int
    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Dtype = jnp.float32

    def cells(self, height: int, width: int) -> tuple[int, int]:
        """Returns (rows, columns) of the grid of an image."""
        for stride in self.strides:
            height, width = -(-height // stride), -(-width // stride)
        return height, width

    def edges(self, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the edges of rows and of columns in pixels: a pixel is in the cell whose centre is nearest.

        The centre of a cell is the centre of its receptive field, which is not the middle of an equal part of the
        image: if an odd number of zeros is added to the borders, the end gets one more, which moves the centres by half
        a step of the previous layer.
        """
        return self._edges(height), self._edges(width)

    def _edges(self, size: int) -> np.ndarray:
        first, step, count = 0.5, 1, size  # centre of the first cell and distance to the next, in pixels
        for kernel, stride in zip(self.kernels, self.strides, strict=True):
            after = -(-count // stride)
            before = max((after - 1) * stride + kernel - count, 0) // 2  # zeros added at the beginning
            first, step, count = first + step * ((kernel - 1) / 2 - before), step * stride, after
        centres = first + step * np.arange(count)
        return np.concatenate([[0.0], (centres[1:] + centres[:-1]) / 2, [float(size)]])

    @property
    def receptive_field(self) -> int:
        """The side of the square of pixels that a cell depends on: sum_i (kernel_i - 1) prod_{j < i} stride_j + 1."""
        before = [math.prod(self.strides[:i]) for i in range(len(self.strides))]
        return 1 + sum((kernel - 1) * step for kernel, step in zip(self.kernels, before, strict=True))

    @nn.compact
    def __call__(self, x: Float[Array, "b y x c"]) -> Float[Array, "b rows columns d"]:
        for index, (width, kernel, stride) in enumerate(zip(self.channels, self.kernels, self.strides, strict=True)):
            square = {"sizes": (kernel, kernel), "strides": (stride, stride)}
            layer = Conv(features=width, **square, dtype=self.dtype, name=f"layer_{index}")
            x = nn.relu(nn.LayerNorm(dtype=self.dtype, name=f"norm_{index}")(layer(x)))
        return Dense(features=self.features, dtype=self.dtype, name="output")(x)


class PatchGrid(nn.Module, kw_only=True):
    """A linear map of each patch of pixels: Dosovitskiy 2021 (arXiv 2010.11929), equation 1, without the class token.

    Raises:
        ValueError: from `cells`, patches of this size do not divide the image.
    """

    features: int
    patch_size: int
    dtype: Dtype = jnp.float32

    def cells(self, height: int, width: int) -> tuple[int, int]:
        """Returns (rows, columns) of the grid of an image."""
        if height % self.patch_size or width % self.patch_size:
            raise ValueError(f"patches of {self.patch_size} pixels do not divide an image of {width} x {height}")
        return height // self.patch_size, width // self.patch_size

    def edges(self, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the edges of rows and of columns in pixels."""
        return tuple(self.patch_size * np.arange(n + 1.0) for n in self.cells(height, width))

    @property
    def receptive_field(self) -> int:
        """The side of the square of pixels that a cell depends on."""
        return self.patch_size

    @nn.compact
    def __call__(self, x: Float[Array, "b y x c"]) -> Float[Array, "b rows columns d"]:
        rows, columns = self.cells(*x.shape[1:3])
        size = self.patch_size
        patches = x.reshape(len(x), rows, size, columns, size, -1).swapaxes(2, 3)
        return Dense(features=self.features, dtype=self.dtype)(patches.reshape(len(x), rows, columns, -1))


class NoPlaces(nn.Module, kw_only=True):
    """No positions: the place of a cell shows only in its pixels, such as the border of the image."""

    features: int

    def __call__(self, grid: Float[Array, "b rows columns d"]) -> Float[Array, "b rows columns d"]:
        """Returns the grid with the positional encoding of each cell added."""
        return grid


class SinusoidalPlaces(NoPlaces, kw_only=True):
    """Sinusoids of the row in the first half of the columns d, of the column in the second (Parmar 2018, 1802.05751).

    Raises:
        ValueError: the number of columns d is not a multiple of four.
    """

    def __call__(self, grid):
        if self.features % 4:
            raise ValueError(f"sinusoids of rows and columns need a width that 4 divides, got {self.features}")
        rows, columns = (sinusoids(jnp.arange(n), self.features // 2).astype(grid.dtype) for n in grid.shape[1:3])
        both = jnp.broadcast_arrays(rows[:, None], columns[None])
        return grid + jnp.concatenate(both, axis=-1)[None]


class LearnedPlaces(NoPlaces, kw_only=True):
    """A learned vector for each row and one for each column, added: m + n vectors for m n cells."""

    @nn.compact
    def __call__(self, grid):
        init = nn.initializers.normal(0.1)
        rows = self.param("rows", init, (grid.shape[1], self.features), jnp.float32).astype(grid.dtype)
        columns = self.param("columns", init, (grid.shape[2], self.features), jnp.float32).astype(grid.dtype)
        return grid + rows[None, :, None] + columns[None, None]


PLACES = {"none": NoPlaces, "sinusoidal": SinusoidalPlaces, "learned": LearnedPlaces}


class PictureEmbedding(nn.Module, kw_only=True):
    """Embeds a Picture: the cells of the grid, then the words of the question with a vector that marks them as words.

    Pixels become numbers in [-1, 1] here, on the device.
    """

    grid: ConvolutionGrid | PatchGrid
    places: NoPlaces
    features: int
    num_words: int = 0  # 0: there are no questions
    pad: int = 0
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, picture: Picture) -> tuple[Float[Array, "b s d"], Bool[Array, "b s"]]:
        """Returns (embedded cells and words, True at all but the padding of the question)."""
        pixels = picture.pixels.astype(self.dtype) / 127.5 - 1
        cells = self.places(self.grid(pixels))
        cells = cells.reshape(len(cells), -1, self.features)
        mask = jnp.ones(cells.shape[:2], bool)
        if not self.num_words:
            return cells, mask
        table = Table(
            num_embeddings=self.num_words,
            features=self.features,
            embedding_init=nn.initializers.normal(1.0),
            dtype=self.dtype,
            name="words",
        )
        kind = self.param("word", nn.initializers.normal(0.1), (self.features,), jnp.float32).astype(self.dtype)
        words = table(picture.words) + kind[None, None]
        return jnp.concatenate([cells, words], axis=1), jnp.concatenate([mask, picture.words != self.pad], axis=1)


class Unchanged(Encoder, kw_only=True):
    """The identity encoder: returns (mean of the embeddings, embeddings)."""

    @checked_masks
    @nn.compact
    def __call__(
        self, embedded: Float[Array, "b s d"], mask: Bool[Array, "b s"], *, train: bool = False
    ) -> tuple[Float[Array, "b d"], Float[Array, "b s d"]]:
        return mean_state(embedded, mask), embedded
