"""Options of encoders and Transformer layers, shared by several families, and the construction of their modules."""

import dataclasses
from functools import partial
from typing import ClassVar

import flax.linen as nn

from attn_jax.attention import Attention
from attn_jax.attention.signed import Subtract
from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.layers.convolution import Convolution
from attn_jax.layers.pictures import PictureEmbedding, Unchanged
from attn_jax.layers.positions import POSITIONS, NoPositions
from attn_jax.layers.rnn import CELLS, RNN, Cell
from attn_jax.layers.transformer import ACTIVATIONS, NORM_FIRST, TransformerLayer, TransformerStack
from attn_jax.models.attention_options import HeadsOptions, HeadsSetting, width_of_head
from attn_jax.models.family import IMAGES
from attn_jax.models.mixer_options import PLACES
from attn_jax.models.picture_options import PictureOptions
from attn_jax.models.setting import Setting
from attn_jax.parts import Options, Recipe, choice, option, section
from attn_jax.types import Dtype

WITHOUT_ATTENTION = tuple(name for name, kind in POSITIONS.items() if not kind.needs_attention)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackOptions(Options):
    """Options of a stack of Transformer layers."""

    num_layers: int = option(1, "number of layers", at_least=1, at_most=1000)
    num_heads: int = option(4, "number of attention heads", at_least=1)
    num_kv_heads: int = option(
        0, "number of heads of keys and values, each shared by a group of query heads; 0: num_heads", at_least=0
    )
    feed_forward_size: int = option(1024, "hidden width of the feed-forward layers", at_least=1)
    norm: str = option(
        "pre", "layer norm before each sublayer (pre) or after each residual sum (post)", choices=NORM_FIRST
    )
    activation: str = option("relu", "activation of the feed-forward layers", choices=ACTIVATIONS)
    positions: Recipe = choice(POSITIONS, "sinusoidal", "encoding of positions")
    remat: bool = option(False, "recompute the activations of a layer in the backward pass: less memory, more time")
    short_convolution: ClassVar[int] = 0

    def describe(self, attention: HeadsOptions, features: int) -> tuple[Attention, int] | None:
        """Returns the attention module to describe to a user, and the width of its queries; None for a fixed memory."""
        if not attention.kept:
            return None
        width = width_of_head(features, self.num_heads, self.num_kv_heads)
        return attention.build(width, num_heads=self.num_heads), width

    def build_stack(
        self,
        *,
        features: int,
        dropout: float,
        dtype: Dtype,
        attention: HeadsOptions,
        source_attention: HeadsOptions | None = None,
        causal: bool = False,
    ) -> TransformerStack:
        """Builds Transformer layers.

        Args:
            features: width of the states.
            dropout: rate.
            dtype: type of the computation.
            attention: options of self-attention.
            source_attention: options of attention to the source; None: no such attention.
            causal: mask later positions.

        Raises:
            UserError: a width does not fit the heads.
        """
        width = width_of_head(features, self.num_heads, self.num_kv_heads)
        norm_first = NORM_FIRST[self.norm]
        positions = build_positions(self.positions, self.num_heads, causal, features)
        halved = attention.kept and attention.has(Subtract)
        rotated = width // 2 if halved else width  # each half of a difference is rotated separately
        if positions.rotary and rotated % 2:
            half = ", of which a difference has two" if halved else ""
            raise UserError(f"positions rotary need heads of even width, got {rotated}{half}")
        heads = HeadsSetting(self.num_heads, self.num_kv_heads, features, dtype)
        make_own = partial(attention.build_heads, heads._replace(causal=causal, positions=positions))
        make_own()  # builds once now, to report wrong options before the first layer is called
        make_source = source_attention and partial(source_attention.build_heads, heads)
        if make_source:
            make_source()
        return TransformerStack(
            make_layer=partial(
                TransformerLayer,
                make_attention=make_own,
                features=features,
                feed_forward_size=self.feed_forward_size,
                make_source_attention=make_source,
                norm_first=norm_first,
                convolution=self.short_convolution,
                activation=ACTIVATIONS[self.activation],
                dropout=dropout,
                dtype=dtype,
            ),
            positions=positions,
            num_layers=self.num_layers,
            features=features,
            norm_first=norm_first,
            remat=self.remat,
            dropout=dropout,
            dtype=dtype,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CausalStackOptions(StackOptions):
    """Options of a stack of causal Transformer layers."""

    short_convolution: int = option(
        0, "positions that the input of self-attention is mixed over; 0: none", at_least=0, at_most=1000
    )


def build_positions(recipe: Recipe, num_heads: int, causal: bool, features: int) -> NoPositions:
    """Builds the positional encoding of embeddings with `features` columns."""
    return recipe.build(num_heads=num_heads, features=features, causal=causal, error=longer_than_positions)


def longer_than_positions(message: str) -> UserError:
    """Returns the error for a sequence with more tokens than positions."""
    return UserError(f"{message}; set a larger max_length of the positions, or sinusoidal, rotary or relative ones")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceEncoderOptions(Options):
    """Options of an encoder of the source. A subclass defines `build`."""

    has_heads: ClassVar[bool] = False  # a Transformer: embedded tokens are as wide as the hidden states
    state_per_layer: ClassVar[bool] = False  # returns the last states of each layer, not a single mean
    num_states: ClassVar[int] = 0  # states per layer, such as h and c; 0: a decoder starts from the mean of the states
    unchanged: ClassVar[bool] = False  # the states are the embeddings

    def build(
        self, *, embedded_size: int, features: int, dropout: float, dtype: Dtype, attention: HeadsOptions | None
    ) -> nn.Module:
        """Builds the encoder.

        Args:
            embedded_size: width of the embedded tokens.
            features: width of the states.
            dropout: rate.
            dtype: type of the computation.
            attention: main attention options of the model, for an encoder that uses the same.

        Raises:
            UserError: sizes do not fit each other.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentEncoderOptions(SourceEncoderOptions):
    """Options of recurrent layers, in one direction or in both."""

    cell: ClassVar[Cell]
    state_per_layer: ClassVar[bool] = True

    num_layers: int = option(1, "number of layers", at_least=1, at_most=1000)
    bidirectional: bool = option(True, "run in both directions, each of width hidden_size / 2")
    recurrent_dropout: float = option(
        0.0,
        "dropout rate of the recurrent states, one mask for all steps of a sentence (Gal 2016)",
        at_least=0,
        at_most=0.999,
    )

    @property
    def num_states(self) -> int:
        return self.cell.num_states

    def build(self, *, embedded_size, features, dropout, dtype, attention) -> RNN:
        if self.bidirectional and features % 2:
            raise UserError(f"model.hidden_size {features} is odd; a bidirectional encoder halves it")
        return RNN(
            cell=self.cell,
            features=features,
            num_layers=self.num_layers,
            bidirectional=self.bidirectional,
            dropout=dropout,
            recurrent_dropout=self.recurrent_dropout,
            dtype=dtype,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvolutionOptions(SourceEncoderOptions):
    """Options of convolutional layers; each position sees a window of tokens."""

    num_layers: int = option(1, "number of layers", at_least=1, at_most=1000)
    kernel_size: int = option(3, "number of tokens in the window of each layer, odd", at_least=1)
    positions: Recipe = choice(POSITIONS, "sinusoidal", "encoding of positions")

    def build(self, *, embedded_size, features, dropout, dtype, attention) -> Convolution:
        if self.kernel_size % 2 == 0:
            raise UserError(f"model.encoder.kernel_size {self.kernel_size} is even; a window around a token is odd")
        if self.positions.kind.needs_attention:
            raise UserError(
                "model.encoder conv has no attention that these model.encoder.positions could be part of; expected "
                f"{', '.join(WITHOUT_ATTENTION)}"
            )
        return Convolution(
            features=features,
            num_layers=self.num_layers,
            kernel_size=self.kernel_size,
            positions=build_positions(self.positions, 1, False, embedded_size),
            dropout=dropout,
            dtype=dtype,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerEncoderOptions(StackOptions, SourceEncoderOptions):
    """Options of a stack of Transformer layers that encode the source."""

    has_heads: ClassVar[bool] = True

    attention: Options = choice(PLACES, "same", "self-attention; same: as model.attention")

    def build(self, *, embedded_size, features, dropout, dtype, attention) -> TransformerStack:
        if embedded_size != features:
            raise UserError(
                "model.encoder transformer needs model.embedding_size and model.hidden_size to be equal, got "
                f"{embedded_size} and {features}"
            )
        own = self.attention.over(attention)
        return self.build_stack(features=features, dropout=dropout, dtype=dtype, attention=own)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoEncoderOptions(SourceEncoderOptions):
    """No layer: the states are the embedded tokens."""

    unchanged: ClassVar[bool] = True

    def build(self, *, embedded_size, features, dropout, dtype, attention) -> Unchanged:
        return Unchanged()


def of_cell(name: str, cell: Cell) -> type[RecurrentEncoderOptions]:
    """Makes the class of options of recurrent layers of one cell."""
    namespace = {"cell": cell, "__doc__": f"Options of recurrent layers of the cell {name}."}
    title = f"{name.title().replace('_', '')}Options"
    return dataclasses.make_dataclass(
        title, [], bases=(RecurrentEncoderOptions,), namespace=namespace, frozen=True, kw_only=True
    )


ENCODERS = {name: of_cell(name, cell) for name, cell in CELLS.items()} | {
    "conv": ConvolutionOptions,
    "transformer": TransformerEncoderOptions,
    "none": NoEncoderOptions,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderUser:
    """Options of a family with an encoder of the source: embedded words, or cells of an image in rows.

    Subclasses have `hidden_size`, `dropout` and `attention`, and define `embedded_size`.
    """

    data_kinds: ClassVar[tuple[str, ...]] = ("text", "pictures")

    picture: PictureOptions | None = section(PictureOptions, "sources that are images", where=IMAGES)
    encoder: SourceEncoderOptions = choice(ENCODERS, "lstm", "encoder of the source")

    def build_encoder(self, setting: Setting) -> nn.Module:
        """Builds the encoder.

        Raises:
            UserError: sizes do not fit each other.
        """
        return self.encoder.build(
            embedded_size=self.embedded_size,
            features=self.hidden_size,
            dropout=self.dropout,
            dtype=setting.dtype,
            attention=self.attention,
        )

    def build_picture(self, sizes: TextSizes, setting: Setting) -> PictureEmbedding | None:
        """Builds the embedding of images; None if sources are texts.

        Raises:
            UserError: see PictureOptions.build.
        """
        return self.picture and self.picture.build(sizes, setting, self.embedded_size)

    def describe_encoder(self) -> tuple[Attention, int] | None:
        """Returns the attention module of the encoder, and the width of its queries; None without attention."""
        if not self.encoder.has_heads:
            return None
        return self.encoder.describe(self.encoder.attention.over(self.attention), self.hidden_size)
