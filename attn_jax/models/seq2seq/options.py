"""Options of recurrent sequence-to-sequence models."""

import dataclasses

from attn_jax.attention import WINDOWS, Attention
from attn_jax.attention.hard.readings import Reading
from attn_jax.attention.scores import General
from attn_jax.errors import UserError, check_known
from attn_jax.layers.rnn import CELLS, RNN
from attn_jax.models.attention_options import AttentionOverrides, DroppedAttentionOptions, make
from attn_jax.models.base import Model
from attn_jax.models.encoder_options import EncoderOptions, width_of_head
from attn_jax.models.pointer_options import PointerOptions
from attn_jax.models.seq2seq.decoder_base import Decoder
from attn_jax.models.seq2seq.decoders import BahdanauDecoder, LuongDecoder, PlainDecoder
from attn_jax.models.seq2seq.latent_attention import TRANSITIONS, LatentAttentionOptions
from attn_jax.models.seq2seq.model import DROPOUT_PLACES, Seq2SeqModule
from attn_jax.models.seq2seq.objective_options import LATENT, OBJECTIVES, build_objective
from attn_jax.models.seq2seq.objectives import InferenceNetwork, SoftObjective
from attn_jax.models.seq2seq.penalties import Penalties
from attn_jax.models.seq2seq.pointer_objective import PointerObjective
from attn_jax.models.seq2seq.recurrent_stack import BRIDGES, Stack
from attn_jax.models.seq2seq.transformer_decoder import TransformerDecoder
from attn_jax.models.seq2seq.transformer_options import build_transformer_decoder
from attn_jax.models.setting import Setting
from attn_jax.models.tags import check_tags
from attn_jax.options import option, section
from attn_jax.tasks.sizes import TextSizes
from attn_jax.token_ids import EOS

DECODERS = {
    "none": PlainDecoder,
    "bahdanau": BahdanauDecoder,
    "luong": LuongDecoder,
    "transformer": TransformerDecoder,
}
TAGS = ("read", "fed", "attended")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seq2SeqOptions(EncoderOptions):
    """Options of a recurrent sequence-to-sequence model."""

    name: str = option("seq2seq", "name of the family")
    embedding_size: int = option(256, "width of the embeddings", at_least=1)
    readout_size: int = option(256, "width of the attentional hidden state, the input of the output layer", at_least=1)
    decoder: str = option(
        "luong",
        "luong: step, then attend; bahdanau: attend, then step; none: no attention; transformer: one head of its last "
        "layer attends",
        choices=DECODERS,
    )
    input_feeding: bool = option(True, "luong: feed the attentional hidden state into the next step")
    feed_summary: bool = option(False, "none: feed the encoder summary into every step (Cho 2014)")
    bridge: str = option(
        "dense", "initial decoder state from the final encoder states; hidden, linear: c = 0", choices=BRIDGES
    )
    dropout_places: tuple = option(
        DROPOUT_PLACES[:3],
        "where dropout acts, besides between layers: embeddings, states (of the encoder), readout (input of the output "
        "layer), summary (final states of the encoder)",
        each=str,
    )
    reverse_source: bool = option(False, "decoder none: read the source backwards, its end token last (Sutskever 2014)")
    tie_embeddings: bool = option(False, "use the transposed target embedding as output layer")
    self_attention: bool = option(False, "luong without input feeding: the decoder also attends to its own past states")
    tags: str = option(
        "read",
        "sources with tags: read: tokens of the source; fed: one vector enters every step; attended: a second memory",
        choices=TAGS,
    )
    objective: str = option(
        "soft",
        "loss: mean context; expected loss; likelihood with contexts summed out; its lower bound",
        choices=OBJECTIVES,
    )
    doubly_stochastic: float = option(
        0.0, "weight of sum_i (1 - sum_t a_ti)^2: all keys are to be read alike (Xu 2015)", at_least=0
    )
    entropy_bonus: float = option(0.0, "weight of the entropy of the attention weights, rewarded (Xu 2015)", at_least=0)
    selector: bool = option(False, "multiply the context by one number, a sigmoid of the query (Xu 2015)")
    inference_size: int = option(0, "elbo: width of the inference network, which sees the target")
    pointer: PointerOptions = section(PointerOptions, "copies of source tokens, and coverage")
    attention: LatentAttentionOptions = section(LatentAttentionOptions, "attention to the source")
    encoder_attention: AttentionOverrides = section(AttentionOverrides, "attention in a Transformer encoder")
    decoder_attention: AttentionOverrides = section(AttentionOverrides, "attention of self_attention, and to tags")

    @property
    def embedded_size(self) -> int:
        """Width of the embedded tokens."""
        return self.embedding_size

    @property
    def of_encoder(self) -> DroppedAttentionOptions:
        """Options of attention in the encoder."""
        if self.attention.window in WINDOWS or self.attention.is_monotonic:
            if self.encoder_kind.has_heads:
                raise UserError(
                    "a Transformer takes no model.attention.window, and no model.attention.normalize monotonic"
                )
        return self.encoder_attention.over(self.attention)

    @property
    def has_weights(self) -> bool:
        """True if the model has attention weights to plot."""
        return DECODERS[self.decoder].uses_attention

    @property
    def is_latent(self) -> bool:
        """True if the loss is computed for contexts of single keys."""
        return self.objective in LATENT or TRANSITIONS[self.attention.transition] is not None

    def build(self, sizes: TextSizes, setting: Setting) -> Model:
        """Builds the model.

        Raises:
            UserError: options do not go together.
        """
        for place in self.dropout_places:
            check_known(place, DROPOUT_PLACES, "model.dropout_places")
        decoder = self.build_decoder(setting)
        self.check_states(decoder.readout_features)
        if sizes.image is not None and decoder.uses_attention:
            self.check_order()
        if self.is_latent:
            self.check_latent()
        if self.pointer.coverage:
            decoder = self.with_coverage(decoder)
        read, objective = self.build_objective(decoder)
        self.check_dropout(decoder)
        if self.reverse_source and (decoder.uses_attention or sizes.image is not None or self.tags != "read"):
            raise UserError(
                "model.reverse_source is for a source that is read into one vector; expected model.decoder none, "
                f"texts and model.tags read, got model.decoder {self.decoder}"
            )
        if self.pointer.copy:
            objective = self.build_pointer(sizes, setting)
        if decoder.uses_attention:
            decoder = decoder.clone(attention=self.attention.build(self.hidden_size, read=read))
        if self.tags != "read":
            check_tags(self.tags, sizes)
        if self.tags == "attended":
            decoder = decoder.clone(tag_attention=self.build_tag_attention(decoder))
        if self.self_attention:
            decoder = decoder.clone(self_attention=self.build_self_attention(decoder))
        module = Seq2SeqModule(
            source_vocab_size=sizes.source_vocab_size,
            target_vocab_size=sizes.target_vocab_size,
            embedding_size=self.embedding_size,
            encoder=self.build_encoder(setting),
            picture=self.build_picture(sizes, setting),
            decoder=decoder,
            output=self.build_output(setting, sizes, tied=self.tie_embeddings),
            objective=objective,
            penalties=self.build_penalties(decoder),
            reads_tags=self.tags != "read",
            reverses=self.reverse_source,
            eos=EOS,
            dropout=self.dropout,
            dropout_places=self.dropout_places,
            dtype=setting.dtype,
        )
        return Model(module)

    def build_objective(self, decoder: Decoder) -> tuple[Reading, SoftObjective]:
        """Builds (reading of the decoder, objective); see objective_options.py."""
        return build_objective(self.objective, self.attention, decoder, self.build_inference)

    def build_inference(self) -> InferenceNetwork:
        """Builds the inference network of the ELBO, which sees the target."""
        size = self.inference_size
        if size < 2 or size % 2:
            raise UserError(
                "model.objective elbo needs an inference network: set model.inference_size to an even number of at "
                f"least 2, got {size}"
            )
        rnn = RNN(cell=CELLS[self.cell], features=size, bidirectional=True)
        return InferenceNetwork(rnn=rnn, score=General(query_features=size))

    def build_penalties(self, decoder: Decoder) -> Penalties | None:
        """Builds the terms of the loss that are about attention weights; None without any."""
        penalties = Penalties(self.doubly_stochastic, self.entropy_bonus, self.pointer.coverage_penalty)
        if penalties == Penalties():
            return None
        if not decoder.uses_attention or TRANSITIONS[self.attention.transition] is not None:
            raise UserError(
                "model.doubly_stochastic, model.entropy_bonus and model.pointer.coverage_penalty need attention "
                "weights, of model.attention.transition independent; got model.decoder "
                f"{self.decoder} and transition {self.attention.transition}"
            )
        return penalties

    def with_coverage(self, decoder: Decoder) -> Decoder:
        """Returns the decoder with scores that depend on the coverage."""
        if not decoder.uses_attention or self.attention.is_monotonic:
            raise UserError(
                "model.pointer.coverage needs attention whose scores make the weights; got model.decoder "
                f"{self.decoder}, model.attention.normalize {self.attention.normalize}"
            )
        return decoder.clone(coverage=True)

    def build_pointer(self, sizes: TextSizes, setting: Setting) -> PointerObjective:
        """Builds the objective of a model that copies tokens of the source."""
        if not DECODERS[self.decoder].uses_attention:
            raise UserError(f"model.pointer.copy needs attention, but model.decoder is {self.decoder}")
        if self.is_latent:
            raise UserError(
                "model.pointer.copy mixes the weights of the mean context; a loss for contexts of single keys, by "
                f"model.objective {self.objective} or model.attention.transition, does not have it"
            )
        return PointerObjective(pointer=self.pointer.build(sizes, setting, self.output.chosen, self.attention))

    def build_decoder(self, setting: Setting) -> Decoder:
        """Builds the decoder without attention, which depends on it and is added later."""
        if DECODERS[self.decoder] is TransformerDecoder:
            return build_transformer_decoder(self, setting)
        stack = Stack(
            bridge=BRIDGES[self.bridge],
            cell=CELLS[self.cell],
            features=self.hidden_size,
            num_layers=self.num_layers,
            dropout=self.dropout,
            recurrent_dropout=self.recurrent_dropout,
            dtype=setting.dtype,
        )
        fields = {
            "stack": stack,
            "features": self.readout_size,
            "input_feeding": self.input_feeding,
            "feed_summary": self.feed_summary,
            "selector": self.selector and DECODERS[self.decoder].uses_attention,
        }
        return make(DECODERS[self.decoder], fields)

    def check_states(self, width: int) -> None:
        """Raises a UserError if states of this width do not fit what reads them: the output layer, the decoder."""
        if self.tie_embeddings and self.embedding_size != width:
            name = "readout_size" if width == self.readout_size else "hidden_size"
            raise UserError(
                f"model.tie_embeddings needs model.embedding_size and model.{name} to be equal, "
                f"got {self.embedding_size} and {width}"
            )
        needs_every_layer = BRIDGES[self.bridge].needs_every_layer
        if needs_every_layer and not self.encoder_kind.state_per_layer and self.num_layers > 1:
            raise UserError(
                f"model.bridge {self.bridge} needs a last state of each of model.num_layers {self.num_layers} layers; "
                f"model.encoder {self.encoder} has one; use dense, hidden, linear or zeros"
            )
        if needs_every_layer and self.encoder == "none" and self.embedding_size != self.hidden_size:
            raise UserError(
                f"model.bridge {self.bridge} with model.encoder none needs model.embedding_size and model.hidden_size "
                f"to be equal, got {self.embedding_size} and {self.hidden_size}; use dense, hidden, linear or zeros"
            )

    def check_latent(self) -> None:
        """Raises a UserError for options that act on the mean context.

        A loss over single-key contexts does not compute it.
        """
        loss = f"model.objective {self.objective} or model.attention.transition"
        if self.attention.block_size:
            raise UserError(
                f"model.attention.block_size is for the mean context; a loss for contexts of single keys, by {loss}, "
                "needs all weights"
            )
        if self.attention.gate:
            raise UserError(
                f"model.attention.gate multiplies the mean context; a loss for contexts of single keys, by {loss}, "
                "does not have it"
            )
        if self.selector and self.attention.feed == "mean":
            raise UserError(
                "model.selector multiplies the context that enters the decoder; a loss for contexts of single keys, by "
                f"{loss}, does not have it"
            )

    def check_order(self) -> None:
        """Raises a UserError for attention that moves along the source: the cells of an image have no such order."""
        attention, transition = self.attention, TRANSITIONS[self.attention.transition]
        if attention.window in WINDOWS or attention.is_monotonic or (transition is not None and transition[0]):
            raise UserError(
                "model.attention.window, normalize monotonic and transition monotonic move along the words of a text; "
                f"the source is an image; got window {attention.window}, normalize {attention.normalize}, transition "
                f"{attention.transition}; expected global, softmax or another normalizer, and independent"
            )

    def check_dropout(self, decoder: Decoder) -> None:
        """Raises a UserError if no mean of the values is computed whose weights could be dropped."""
        attention = self.attention
        mean = decoder.feeds_attention or attention.feed != "mean" or attention.soft_steps
        if attention.dropout and self.is_latent and not mean:
            raise UserError(
                f"model.attention.dropout is of the mean context, which model.objective {self.objective} reads only "
                "with model.input_feeding or model.decoder bahdanau; expected 0"
            )

    def build_tag_attention(self, decoder: Decoder) -> Attention:
        """Builds the attention to tags: the score and the normalizer of the attention to the source, mean context."""
        if not decoder.uses_attention or self.attention.is_monotonic or self.attention.window in WINDOWS:
            raise UserError(
                "model.tags attended needs attention to all keys, neither monotonic nor local; got model.decoder "
                f"{self.decoder}, model.attention.normalize {self.attention.normalize}, window "
                f"{self.attention.window}; expected model.tags fed"
            )
        return self.decoder_attention.over(self.attention).build(self.hidden_size)

    def build_self_attention(self, decoder: Decoder) -> Attention:
        """Builds the self-attention of the decoder over its past states."""
        local = self.attention.is_monotonic or self.attention.window in WINDOWS
        if not decoder.takes_self_attention or decoder.feeds_attention or self.is_latent or local:
            raise UserError(
                "model.self_attention of a recurrent decoder needs model.decoder luong, model.input_feeding False, "
                "model.objective soft, and neither model.attention.window nor monotonic attention"
            )
        return self.decoder_attention.over(self.attention).build(self.hidden_size)

    @property
    def main_attention(self) -> tuple[Attention, int] | None:
        """Attention module to describe to a user, and the width of its queries; None without attention."""
        if self.encoder_kind.has_heads:
            width = width_of_head(self.hidden_size, self.num_heads, self.num_kv_heads)
            return self.of_encoder.build(width), width
        if not DECODERS[self.decoder].uses_attention:
            return None
        read, _ = self.build_objective(self.build_decoder(Setting()))
        return self.attention.build(self.hidden_size, read=read), self.hidden_size
