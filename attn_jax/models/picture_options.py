"""Options of reading images: the map from pixels to a grid of vectors."""

import dataclasses

from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.layers.pictures import PLACES, ConvolutionGrid, PatchGrid, PictureEmbedding
from attn_jax.models.setting import Setting
from attn_jax.parts import Options, choice, option
from attn_jax.token_ids import SPECIAL
from attn_jax.types import Dtype


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvolutionGridOptions(Options):
    """Options of a convolutional network; the positions of its last layer are the cells."""

    channels: tuple = option((32, 32, 64, 64), "number of channels of each layer", each=int)
    kernels: tuple = option((5, 3, 3, 3), "side of the window of each layer", each=int)
    strides: tuple = option((2, 2, 2, 1), "step of each layer", each=int)

    def build(self, features: int, dtype: Dtype) -> ConvolutionGrid:
        """Builds the network.

        Raises:
            UserError: the tuples have different lengths, or a number is below 1.
        """
        layers = self.channels, self.kernels, self.strides
        if not layers[0] or len(set(map(len, layers))) > 1 or min(map(min, layers)) < 1:
            raise UserError(
                f"model.picture.grid.channels {layers[0]}, kernels {layers[1]} and strides {layers[2]}: expected a "
                "number of at least 1 for each layer, as many of each"
            )
        return ConvolutionGrid(features=features, channels=layers[0], kernels=layers[1], strides=layers[2], dtype=dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatchGridOptions(Options):
    """Options of linear maps of patches."""

    patch_size: int = option(8, "pixels of a side", at_least=1)

    def build(self, features: int, dtype: Dtype) -> PatchGrid:
        """Builds the map."""
        return PatchGrid(features=features, patch_size=self.patch_size, dtype=dtype)


GRIDS = {"cnn": ConvolutionGridOptions, "patches": PatchGridOptions}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PictureOptions(Options):
    """Options of the first layers of a model that reads images."""

    grid: Options = choice(GRIDS, "cnn", "cells of an image")
    places: str = option("learned", "encoding of the row and the column of a cell", choices=PLACES)

    def build(self, sizes: TextSizes, setting: Setting, features: int) -> PictureEmbedding | None:
        """Builds the embedding of images as vectors of `features` columns; None if sources are texts.

        Raises:
            UserError: the layers do not fit each other, patches do not divide the image, or `places` the width.
        """
        if sizes.image is None:
            return None
        if self.places == "sinusoidal" and features % 4:
            raise UserError(f"model.picture.places sinusoidal needs vectors whose width 4 divides, got {features}")
        grid = self.grid.build(features, setting.dtype)
        try:
            grid.cells(*sizes.image[:2])
        except ValueError as error:
            divisors = [n for n in range(2, sizes.image[0] + 1) if not sizes.image[0] % n and not sizes.image[1] % n]
            known = f"one of {', '.join(map(str, divisors))}" if divisors else "1"
            raise UserError(f"model.picture.grid.patch_size: {error}; expected {known}") from None
        return PictureEmbedding(
            grid=grid,
            places=PLACES[self.places](features=features),
            features=features,
            num_words=sizes.source_vocab_size if sizes.source_vocab_size > len(SPECIAL) else 0,
            dtype=setting.dtype,
        )
