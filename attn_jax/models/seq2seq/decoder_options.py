"""Options of the decoders of a sequence-to-sequence model."""

import dataclasses
from collections import ChainMap
from typing import Any, ClassVar

from attn_jax.attention import Attention
from attn_jax.errors import UserError
from attn_jax.layers.rnn import CELLS
from attn_jax.models.attention_options import AttentionOptions, MapOptions, Same
from attn_jax.models.encoder_options import CausalStackOptions, SourceEncoderOptions
from attn_jax.models.family import Nothing
from attn_jax.models.mixer_options import PLACES
from attn_jax.models.seq2seq.decoder_base import Decoder
from attn_jax.models.seq2seq.decoders import BahdanauDecoder, LuongDecoder, PlainDecoder
from attn_jax.models.seq2seq.recurrent_stack import BRIDGES, Bridge, Stack
from attn_jax.models.seq2seq.transformer_decoder import TransformerDecoder
from attn_jax.parts import Options, choice, option, repeat
from attn_jax.types import Dtype


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoverageOptions(Options):
    """Options of scores that also depend on the coverage, the sum of earlier weights of each key (See 2017)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectorOptions(Options):
    """Options of multiplying the context by one number, a sigmoid of the query (Xu 2015)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfAttentionOptions(Options):
    """Options of attention to the decoder's own past states, without input feeding."""

    attention: Options = choice({"same": Same, "map": MapOptions}, "same", "its attention; same: as model.attention")


EXTRAS = {"coverage": CoverageOptions, "selector": SelectorOptions}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderOptions(Options):
    """Options of a decoder. A subclass defines `build`."""

    uses_attention: ClassVar[bool] = True
    reverse_source: ClassVar[bool] = False
    in_a_loop: ClassVar[bool] = False  # attends step by step, so that a sampled context or tags can enter the state

    def build(
        self,
        *,
        features: int,
        embedded_size: int,
        dropout: float,
        dtype: Dtype,
        attention: Attention | None,
        main: AttentionOptions | None,
    ) -> Decoder:
        """Builds the decoder.

        Args:
            features: width of the states.
            embedded_size: width of the embedded tokens.
            dropout: rate between layers.
            dtype: type of the computation.
            attention: attention to the source; None without attention.
            main: options of `attention`, for other places that use the same.

        Raises:
            UserError: widths or parts do not fit each other.
        """
        raise NotImplementedError

    def check_encoder(self, encoder: SourceEncoderOptions, *, embedded_size: int, features: int) -> None:
        """Raises a UserError if the initial states cannot be made from the last states of the encoder."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentDecoderOptions(DecoderOptions):
    """Options of the recurrent decoders."""

    cell: str = option("lstm", "type of recurrent cell", choices=CELLS)
    num_layers: int = option(1, "number of layers", at_least=1, at_most=1000)
    recurrent_dropout: float = option(
        0.0,
        "dropout rate of the recurrent states, one mask for all steps of a sentence (Gal 2016)",
        at_least=0,
        at_most=0.999,
    )
    bridge: str = option(
        "dense", "initial decoder state from the final encoder states; hidden, linear: c = 0", choices=BRIDGES
    )

    def build_layers(self, features: int, dropout: float, dtype: Dtype) -> Stack:
        """Builds the recurrent layers."""
        return Stack(
            bridge=BRIDGES[self.bridge],
            cell=CELLS[self.cell],
            features=features,
            num_layers=self.num_layers,
            dropout=dropout,
            recurrent_dropout=self.recurrent_dropout,
            dtype=dtype,
        )

    def check_encoder(self, encoder, *, embedded_size, features):
        bridge: Bridge = BRIDGES[self.bridge]
        needed, given = CELLS[self.cell].num_states, encoder.num_states
        if bridge.needs_every_state and given not in (0, needed):
            cells = [name for name, cell in CELLS.items() if cell.num_states == given]
            raise UserError(
                f"model.decoder.bridge {self.bridge} takes over the states of the encoder, {given} of each layer, and "
                f"model.decoder.cell {self.cell} has {needed}; expected a cell such as {' or '.join(cells)}, or "
                "model.decoder.bridge hidden, linear or zeros"
            )
        if bridge.needs_every_layer and encoder.state_per_layer and encoder.num_layers != self.num_layers:
            raise UserError(
                f"model.decoder.bridge {self.bridge} takes over the states of each layer, and model.encoder.num_layers "
                f"is {encoder.num_layers}, model.decoder.num_layers {self.num_layers}; expected equal numbers, or "
                "model.decoder.bridge dense, hidden, linear or zeros"
            )
        if bridge.needs_every_layer and not encoder.state_per_layer and self.num_layers > 1:
            raise UserError(
                f"model.decoder.bridge {self.bridge} needs a last state of each of model.decoder.num_layers "
                f"{self.num_layers} layers, and this model.encoder has one; use dense, hidden, linear or zeros"
            )
        if bridge.needs_every_layer and encoder.unchanged and embedded_size != features:
            raise UserError(
                f"model.decoder.bridge {self.bridge} with model.encoder none needs model.embedding_size and "
                f"model.hidden_size to be equal, got {embedded_size} and {features}; use dense, hidden, linear or zeros"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedSummary(Options):
    """Options of a summary of the source that enters every step (Cho 2014)."""

    readout_size: int = option(256, "width of the input of the output layer", at_least=1)


SUMMARIES = {"start": Nothing, "every_step": FedSummary}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainOptions(RecurrentDecoderOptions):
    """Options of a decoder without attention."""

    uses_attention: ClassVar[bool] = False

    summary: Options = choice(SUMMARIES, "start", "where the summary of the encoder enters")
    reverse_source: bool = option(False, "read the source backwards, its end token last (Sutskever 2014)")

    def build(self, *, features, embedded_size, dropout, dtype, attention, main):
        return PlainDecoder(
            stack=self.build_layers(features, dropout, dtype),
            features=self.summary.readout_size if self.summary else features,
            feed_summary=bool(self.summary),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttendingOptions(RecurrentDecoderOptions):
    """Options of the recurrent decoders that attend to the source."""

    in_a_loop: ClassVar[bool] = True
    kind: ClassVar[type[Decoder]]

    readout_size: int = option(256, "width of the attentional hidden state, the input of the output layer", at_least=1)
    extras: tuple[Options, ...] = repeat(EXTRAS, (), "what the decoder has besides")

    def extra(self, kind: type[Options]) -> Options | None:
        """Returns the options of an extra; None if it is not chosen."""
        return next((extra for extra in self.extras if isinstance(extra, kind)), None)

    @property
    def coverage(self) -> bool:
        """Tells whether scores depend on the coverage."""
        return self.extra(CoverageOptions) is not None

    def build(self, *, features, embedded_size, dropout, dtype, attention, main):
        if self.coverage and main.is_monotonic:
            raise UserError(
                "model.decoder.extras coverage needs scores that make the weights, which model.attention.normalize "
                "monotonic does not have"
            )
        return self.kind(
            stack=self.build_layers(features, dropout, dtype),
            features=self.readout_size,
            coverage=self.coverage,
            selector=self.extra(SelectorOptions) is not None,
            attention=attention,
            **self.more(features, main),
        )

    def more(self, features: int, main: AttentionOptions) -> dict[str, Any]:
        """Returns the fields that only some of these decoders have."""
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BahdanauOptions(AttendingOptions):
    """Options of the decoder that attends before the recurrent step (Bahdanau 2015)."""

    kind: ClassVar[type[Decoder]] = BahdanauDecoder


@dataclasses.dataclass(frozen=True, kw_only=True)
class LuongOptions(AttendingOptions):
    """Options of the decoder that attends after the recurrent step (Luong 2015)."""

    kind: ClassVar[type[Decoder]] = LuongDecoder

    input_feeding: bool = option(True, "feed the attentional hidden state into the next step")
    extras: tuple[Options, ...] = repeat(
        ChainMap({"self_attention": SelfAttentionOptions}, EXTRAS), (), "what the decoder has besides"
    )

    def more(self, features, main):
        extra = self.extra(SelfAttentionOptions)
        if extra is None:
            return {"input_feeding": self.input_feeding}
        own = extra.attention.over(main)
        if self.input_feeding or self.coverage or main.moves_along or own.moves_along:
            raise UserError(
                "model.decoder.extras self_attention needs model.decoder.input_feeding False, no coverage, and "
                "attention that does not move along the source: no window, not monotonic"
            )
        return {"input_feeding": self.input_feeding, "self_attention": own.build(features)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerDecoderOptions(CausalStackOptions, DecoderOptions):
    """Options of a Transformer decoder whose last layer reads the source with one head."""

    attention: Options = choice(PLACES, "same", "self-attention; same: as model.attention")

    def build(self, *, features, embedded_size, dropout, dtype, attention, main):
        if embedded_size != features:
            raise UserError(
                "model.decoder transformer needs model.embedding_size and model.hidden_size to be equal, got "
                f"{embedded_size} and {features}"
            )
        stack = self.build_stack(
            features=features,
            dropout=dropout,
            dtype=dtype,
            attention=self.attention.over(main),
            source_attention=main,
            causal=True,
        )
        return TransformerDecoder(
            stack=stack.clone(num_layers=stack.num_layers - 1, norm_first=False),
            make_layer=stack.make_layer,
            features=features,
            attention=attention,
        )


DECODERS = {
    "none": PlainOptions,
    "bahdanau": BahdanauOptions,
    "luong": LuongOptions,
    "transformer": TransformerDecoderOptions,
}
