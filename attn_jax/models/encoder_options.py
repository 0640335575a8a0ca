"""Options of encoders and Transformer layers, shared by several families, and the construction of their modules."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import flax.linen as nn

from attn_jax.attention import Attention, MultiHead
from attn_jax.attention.caches import CAUSAL, EVERYWHERE
from attn_jax.attention.mixer import Mixer, head_width
from attn_jax.errors import UserError
from attn_jax.layers.convolution import Convolution
from attn_jax.layers.pictures import PictureEmbedding, Unchanged
from attn_jax.layers.positions import POSITIONS, NoPositions
from attn_jax.layers.rnn import CELLS, RNN
from attn_jax.layers.transformer import ACTIVATIONS, NORM_FIRST, TransformerLayer, TransformerStack
from attn_jax.models.attention_options import AttentionOptions
from attn_jax.models.memory_options import MemoryOptions
from attn_jax.models.output_options import OutputUser
from attn_jax.models.picture_options import PictureOptions
from attn_jax.models.setting import Setting
from attn_jax.options import option, section
from attn_jax.tasks.sizes import TextSizes

WITHOUT_ATTENTION = tuple(name for name, kind in POSITIONS.items() if not kind.needs_attention)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackOptions(OutputUser):
    """Options of a stack of Transformer layers; subclasses have the section `attention`."""

    sizes: ClassVar[type] = TextSizes
    has_label_smoothing: ClassVar[bool] = True
    reads_stories: ClassVar[bool] = False
    continue_source: ClassVar[bool] = False
    has_weights: ClassVar[bool] = True

    hidden_size: int = option(256, "width of the hidden states", at_least=1)
    num_layers: int = option(1, "number of layers", at_least=1, at_most=1000)
    dropout: float = option(0.2, "dropout rate", at_least=0, at_most=0.999)
    num_heads: int = option(4, "number of attention heads", at_least=1)
    num_kv_heads: int = option(
        0, "number of heads of keys and values, each shared by a group of query heads; 0: num_heads", at_least=0
    )
    feed_forward_size: int = option(1024, "hidden width of the feed-forward layers", at_least=1)
    norm: str = option(
        "pre", "layer norm before each sublayer (pre) or after each residual sum (post)", choices=NORM_FIRST
    )
    activation: str = option("relu", "activation of the feed-forward layers", choices=ACTIVATIONS)
    positions: str = option("sinusoidal", "encoding of positions", choices=POSITIONS)
    short_convolution: int = option(
        0, "positions that the input of causal self-attention is mixed over; 0: none", at_least=0, at_most=1000
    )
    max_length: int = option(512, "positions learned: largest number of positions", at_least=1)
    remat: bool = option(False, "recompute the activations of a layer in the backward pass: less memory, more time")

    @property
    def main_attention(self) -> tuple[Attention, int] | None:
        """Attention module to describe to a user, and the width of its queries; None for a memory that is written."""
        if self.attention.kind is not None:
            return None
        width = width_of_head(self.hidden_size, self.num_heads, self.num_kv_heads)
        return self.attention.build(width), width

    def build_positions(self, causal: bool, features: int) -> NoPositions:
        """Builds the positional encoding of embeddings with `features` columns."""
        kind = POSITIONS[self.positions]
        return kind(
            num_heads=self.num_heads,
            features=features,
            max_length=self.max_length if kind.limited else 0,
            causal=causal,
            error=longer_than_positions,
        )

    def build_stack(
        self,
        setting: Setting,
        attention: AttentionOptions,
        *,
        source_attention: AttentionOptions | None = None,
        causal: bool = False,
        num_layers: int = 0,
    ) -> TransformerStack:
        """Builds Transformer layers.

        Args:
            setting: settings from other sections.
            attention: options of self-attention.
            source_attention: options of attention to the source; None: no such attention.
            causal: mask later positions.
            num_layers: number of layers; 0: the value of the option.

        Raises:
            UserError: a width does not fit the heads.
        """
        width = width_of_head(self.hidden_size, self.num_heads, self.num_kv_heads)
        norm_first = NORM_FIRST[self.norm]
        positions = self.build_positions(causal, self.hidden_size)
        rotated = width // 2 if attention.difference else width  # of a difference each half is rotated by itself
        if positions.rotary and rotated % 2:
            half = ", of which model.attention.difference has two" if attention.difference else ""
            raise UserError(f"model.positions rotary needs heads of even width, got {rotated}{half}")

        for place, order in ((attention, causal), (source_attention, False)):
            if isinstance(place, MemoryOptions):
                scores = self.positions if positions.needs_attention else ""
                place.check_memory(causal=order, num_kv_heads=self.num_kv_heads, scores=scores)
        own = dict(causal=causal, num_scaled=positions.num_scaled, forgets=positions.forgets, rotary=positions.rotary)
        self._build_heads(setting, attention, **own)  # now, not in the first layer: their options may not go together
        if source_attention:
            self._build_heads(setting, source_attention)

        return TransformerStack(
            make_layer=partial(
                TransformerLayer,
                make_attention=partial(self._build_heads, setting, attention, **own),
                features=self.hidden_size,
                feed_forward_size=self.feed_forward_size,
                make_source_attention=source_attention and partial(self._build_heads, setting, source_attention),
                norm_first=norm_first,
                convolution=self.short_convolution if causal else 0,
                activation=ACTIVATIONS[self.activation],
                dropout=self.dropout,
                dtype=setting.dtype,
            ),
            positions=positions,
            num_layers=num_layers or self.num_layers,
            features=self.hidden_size,
            norm_first=norm_first,
            remat=self.remat,
            dropout=self.dropout,
            dtype=setting.dtype,
        )

    def _build_heads(
        self,
        setting: Setting,
        options: AttentionOptions,
        *,
        causal: bool = False,
        num_scaled: int = 0,
        forgets: bool = False,
        rotary: bool = False,
    ) -> Mixer:
        """Builds the heads of one attention of a layer: a memory that is written, or attention to all keys."""
        heads = dict(num_heads=self.num_heads, features=self.hidden_size, dtype=setting.dtype)
        if isinstance(options, MemoryOptions) and options.kind is not None:
            return options.build_heads(**heads, causal=causal)
        width = width_of_head(self.hidden_size, self.num_heads, self.num_kv_heads)
        return MultiHead(
            attention=options.build(
                width,
                num_heads=self.num_heads,
                num_scaled=num_scaled,
                gate=False,
                forget_heads=(self.num_kv_heads or self.num_heads) if forgets else 0,
                rotary=rotary,
                selective=options.selective,
                dtype=setting.dtype,
            ),
            gate=options.gate,
            order=CAUSAL if causal else EVERYWHERE,
            num_kv_heads=self.num_kv_heads,
            **heads,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderOptions(StackOptions):
    """Options of a source encoder: recurrent, convolutional, Transformer, or none, which leaves the embeddings.

    Sources are embedded words, or cells of an image in rows. Subclasses define `embedded_size`, the width of embedded
    tokens, and `of_encoder`, the options of attention in the encoder.
    """

    reads_images: ClassVar[bool] = True

    encoder: str = option("rnn", "type of encoder", choices=("rnn", "conv", "transformer", "none"))
    cell: str = option("lstm", "type of recurrent cell", choices=CELLS)
    bidirectional: bool = option(True, "rnn: run in both directions, each of width hidden_size / 2")
    recurrent_dropout: float = option(
        0.0,
        "dropout rate of the recurrent states, one mask for all steps of a sentence (Gal 2016)",
        at_least=0,
        at_most=0.999,
    )
    kernel_size: int = option(3, "conv: number of tokens in the window of each layer", at_least=1)
    picture: PictureOptions = section(PictureOptions, "sources that are images")

    @property
    def encoder_kind(self) -> "Encoder":
        """Type of encoder that the option `encoder` names."""
        return ENCODERS[self.encoder]

    def build_encoder(self, setting: Setting) -> nn.Module:
        """Builds the encoder.

        Raises:
            UserError: sizes do not fit each other.
        """
        return self.encoder_kind.build(self, setting)

    def build_picture(self, sizes: TextSizes, setting: Setting) -> PictureEmbedding | None:
        """Builds what embeds images; None where sources are texts.

        Raises:
            UserError: see PictureOptions.build.
        """
        return self.picture.build(sizes, setting, self.embedded_size)


def build_rnn(options: EncoderOptions, setting: Setting) -> RNN:
    """Builds recurrent layers, in one direction or in both."""
    if options.bidirectional and options.hidden_size % 2:
        raise UserError(f"model.hidden_size {options.hidden_size} is odd; a bidirectional encoder halves it")
    return RNN(
        cell=CELLS[options.cell],
        features=options.hidden_size,
        num_layers=options.num_layers,
        bidirectional=options.bidirectional,
        dropout=options.dropout,
        recurrent_dropout=options.recurrent_dropout,
        dtype=setting.dtype,
    )


def build_convolution(options: EncoderOptions, setting: Setting) -> Convolution:
    """Builds convolutional layers; each position sees a window of tokens."""
    if options.kernel_size % 2 == 0:
        raise UserError(f"model.kernel_size {options.kernel_size} is even; a window around a token is odd")
    positions = options.build_positions(False, options.embedded_size)
    if positions.needs_attention:
        raise UserError(
            f"model.encoder conv has no attention that model.positions {options.positions} could be part of; "
            f"expected {', '.join(WITHOUT_ATTENTION)}"
        )
    return Convolution(
        features=options.hidden_size,
        num_layers=options.num_layers,
        kernel_size=options.kernel_size,
        positions=positions,
        dropout=options.dropout,
        dtype=setting.dtype,
    )


def build_transformer_encoder(options: EncoderOptions, setting: Setting) -> TransformerStack:
    """Builds a stack of Transformer layers."""
    if options.embedded_size != options.hidden_size:
        raise UserError(
            f"model.encoder transformer needs model.embedding_size and model.hidden_size to be equal, got "
            f"{options.embedded_size} and {options.hidden_size}"
        )
    return options.build_stack(setting, options.of_encoder)


def build_none(options: EncoderOptions, setting: Setting) -> Unchanged:
    """Builds no layer at all."""
    return Unchanged()


class Encoder(NamedTuple):
    """Type of encoder."""

    build: Callable[[EncoderOptions, Setting], nn.Module]
    has_heads: bool = False  # a Transformer: embedded tokens are as wide as the hidden states
    state_per_layer: bool = False  # returns the last state of each layer, not a single state


ENCODERS = {
    "rnn": Encoder(build_rnn, state_per_layer=True),
    "conv": Encoder(build_convolution),
    "transformer": Encoder(build_transformer_encoder, has_heads=True),
    "none": Encoder(build_none),
}


def longer_than_positions(message: str) -> UserError:
    """Returns the error for a sequence with more tokens than positions."""
    return UserError(f"{message}; set a larger model.max_length, or model.positions to sinusoidal, rotary or relative")


def width_of_head(hidden_size: int, num_heads: int, num_kv_heads: int = 0) -> int:
    """Returns the width of a head.

    Raises:
        UserError: the number of heads does not divide the width, or num_kv_heads the number of heads.
    """
    try:
        return head_width(hidden_size, num_heads, num_kv_heads)
    except ValueError as error:
        raise UserError(f"model.hidden_size {hidden_size}: {error}") from None
