"""Options of sequence-to-sequence models: encoder, decoder, attention to the source, and loss."""

import dataclasses
from collections import ChainMap
from typing import ClassVar

from attn_jax.attention import NORMALIZERS, Attention, Reading
from attn_jax.attention.hard.monotonic import MonotonicSelection
from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError, check_known
from attn_jax.models.attention_options import ORDER, WINDOWS, WRAPPERS, DroppedAttentionOptions, MapOptions, Same
from attn_jax.models.base import Model
from attn_jax.models.encoder_options import EncoderUser
from attn_jax.models.family import ATTENDS, TAGS, Family, Nothing
from attn_jax.models.output_options import OutputUser
from attn_jax.models.seq2seq.decoder_options import DECODERS, DecoderOptions
from attn_jax.models.seq2seq.model import DROPOUT_PLACES, Seq2SeqModule
from attn_jax.models.seq2seq.objective_options import OBJECTIVES, Context, ObjectiveOptions
from attn_jax.models.seq2seq.objectives import SoftObjective
from attn_jax.models.seq2seq.penalties import Penalties
from attn_jax.models.setting import Setting
from attn_jax.models.tags import check_tags
from attn_jax.parts import Options, Recipe, Where, choice, option, repeat, section
from attn_jax.token_ids import EOS

READS_SOURCE = Where(lambda chosen: chosen["decoder"].uses_attention, "a model.decoder that attends to the source")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceAttentionOptions(DroppedAttentionOptions):
    """Options of attention to the source, which may move along it."""

    normalize: Recipe = choice(
        ChainMap({"monotonic": MonotonicSelection}, NORMALIZERS), "softmax", "function that turns scores into weights"
    )
    wrappers: tuple[Recipe, ...] = repeat(ChainMap(WINDOWS, WRAPPERS), (), ORDER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PenaltyOptions(Options):
    """Options of a penalty of the attention weights in the loss."""

    term: ClassVar[str]  # field of Penalties

    weight: float = option(1.0, "weight of the term", at_least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoublyStochastic(PenaltyOptions):
    """Options of sum_i (1 - sum_t a_ti)^2, which favours reading all keys equally (Xu 2015)."""

    term: ClassVar[str] = "doubly_stochastic"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entropy(PenaltyOptions):
    """Options of an entropy bonus of the attention weights (Xu 2015)."""

    term: ClassVar[str] = "entropy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoveragePenalty(PenaltyOptions):
    """Options of sum_i min(weight, sum of earlier weights) of the keys i (See 2017: 1)."""

    term: ClassVar[str] = "coverage"


PENALTIES = {kind.term: kind for kind in (DoublyStochastic, Entropy, CoveragePenalty)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedTags(Options):
    """Options of tags that enter every step as one vector."""

    attends: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttendedTags(Options):
    """Options of tags that are a second memory for attention."""

    attends: ClassVar[bool] = True

    attention: Options = choice(
        {"same": Same, "map": MapOptions}, "same", "attention to the tags; same: as to the source"
    )


TAG_WAYS = {"read": Nothing, "fed": FedTags, "attended": AttendedTags}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seq2SeqOptions(OutputUser, EncoderUser, Family):
    """Options of a sequence-to-sequence model."""

    name: ClassVar[str] = "seq2seq"

    embedding_size: int = option(256, "width of the embeddings", at_least=1)
    hidden_size: int = option(256, "width of the hidden states", at_least=1)
    dropout: float = option(0.2, "dropout rate", at_least=0, at_most=0.999)
    dropout_places: tuple = option(
        DROPOUT_PLACES[:3],
        "where dropout acts, besides between layers: embeddings, states (of the encoder), readout (input of the output "
        "layer), summary (final states of the encoder)",
        each=str,
    )
    tie_embeddings: bool = option(False, "use the transposed target embedding as output layer")
    decoder: DecoderOptions = choice(
        DECODERS,
        "luong",
        "luong: step, then attend; bahdanau: attend, then step; none: no attention; transformer: one head of its last "
        "layer attends",
    )
    attention: SourceAttentionOptions | None = section(SourceAttentionOptions, "attention to the source", where=ATTENDS)
    objective: ObjectiveOptions | None = choice(
        OBJECTIVES,
        "soft",
        "loss of the mean context, of sampled keys; likelihood with keys summed out, its bound; with copied words",
        where=READS_SOURCE,
    )
    penalties: tuple[PenaltyOptions, ...] = repeat(
        PENALTIES, (), "terms of the loss that are about attention weights", where=READS_SOURCE
    )
    tags: Options | None = choice(
        TAG_WAYS,
        "read",
        "sources with tags: tokens of the source; one vector that enters every step; a second memory",
        where=TAGS,
    )

    @property
    def embedded_size(self) -> int:
        """Width of the embedded tokens."""
        return self.embedding_size

    @property
    def has_weights(self) -> bool:
        return self.decoder.uses_attention

    @property
    def label(self) -> str:
        return super().label if self.has_weights else "model.decoder none"

    @property
    def reading(self) -> Reading | None:
        return self.objective.reading_of_keys() if self.has_weights else None

    def build(self, sizes: TextSizes, setting: Setting) -> Model:
        for place in self.dropout_places:
            check_known(place, DROPOUT_PLACES, "model.dropout_places")
        decoder = self.build_decoder(setting)
        self.check_states(decoder.readout_features)
        objective = self.build_objective(sizes, setting, decoder) if self.has_weights else SoftObjective()
        if self.decoder.reverse_source and (sizes.image is not None or self.tags):
            raise UserError("model.decoder.reverse_source is for sources that are texts, and for model.tags read")
        if self.tags:
            check_tags("fed and attended", sizes)
            decoder = self.with_tags(decoder)
        module = Seq2SeqModule(
            source_vocab_size=sizes.source_vocab_size,
            target_vocab_size=sizes.target_vocab_size,
            embedding_size=self.embedding_size,
            encoder=self.build_encoder(setting),
            picture=self.build_picture(sizes, setting),
            decoder=decoder,
            output=self.build_output(setting, sizes, tied=self.tie_embeddings),
            objective=objective,
            penalties=self.build_penalties(),
            reads_tags=bool(self.tags),
            reverses=self.decoder.reverse_source,
            eos=EOS,
            dropout=self.dropout,
            dropout_places=self.dropout_places,
            dtype=setting.dtype,
        )
        return Model(module)

    def build_attention(self) -> Attention | None:
        """Builds the attention of the decoder to the source."""
        if not self.has_weights:
            return None
        return self.attention.build(self.hidden_size, read=self.objective.reading_of_decoder())

    def build_decoder(self, setting: Setting):
        """Builds the decoder, without attention to tags."""
        return self.decoder.build(
            features=self.hidden_size,
            embedded_size=self.embedding_size,
            dropout=self.dropout,
            dtype=setting.dtype,
            attention=self.build_attention(),
            main=self.attention,
        )

    def build_objective(self, sizes: TextSizes, setting: Setting, decoder) -> SoftObjective:
        """Builds the objective of a model with attention.

        Raises:
            UserError: the attention moves along an image, or has parts that act on a context that the loss does not
                use.
        """
        attention, objective = self.attention, self.objective
        if sizes.image is not None and (attention.moves_along or (objective.sums_chains and objective.monotonic)):
            raise UserError(
                "windows, model.attention.normalize monotonic and a monotonic model.objective markov move along the "
                "words of a text; the source is an image"
            )
        if objective.is_latent:
            given = {
                "model.attention.block_size": attention.block_size,
                "model.attention.wrappers gate": attention.gate,
            }
            if not objective.samples_context:
                given["model.decoder.extras selector"] = decoder.selector
            if found := [key for key, value in given.items() if value]:
                raise UserError(
                    f"{found[0]} acts on the mean context; a loss for contexts of single keys, by model.objective, "
                    "does not have it"
                )
            mean = decoder.feeds_attention or objective.samples_context or objective.soft_steps
            if attention.dropout and not mean:
                raise UserError(
                    "model.attention.dropout is of the mean context, which this model.objective reads only with "
                    "model.decoder.input_feeding or model.decoder bahdanau; expected 0"
                )
        if objective.samples_context and not self.decoder.in_a_loop:
            raise UserError(
                "model.objective trajectory feeds a sampled context back; it needs model.decoder luong or bahdanau"
            )
        return objective.build(decoder.attention, decoder, Context(sizes, setting, self.output))

    def build_penalties(self) -> Penalties | None:
        """Builds the penalties of the attention weights; None without any."""
        if not self.penalties:
            return None
        if self.objective.sums_chains:
            raise UserError("model.penalties need attention weights, which model.objective markov does not have")
        return Penalties(**{penalty.term: penalty.weight for penalty in self.penalties})

    def with_tags(self, decoder):
        """Adds attention to tags to the decoder, if it is chosen.

        Raises:
            UserError: the decoder cannot attend to tags.
        """
        if not self.tags.attends:
            return decoder
        if not self.decoder.in_a_loop or self.attention.moves_along:
            raise UserError(
                "model.tags attended needs model.decoder luong or bahdanau, and attention to all keys: no window, not "
                "monotonic; expected model.tags fed"
            )
        return decoder.clone(tag_attention=self.tags.attention.over(self.attention).build(self.hidden_size))

    def check_states(self, width: int) -> None:
        """Raises a UserError if the output layer or the decoder cannot read states of this width."""
        if self.tie_embeddings and self.embedding_size != width:
            raise UserError(
                "model.tie_embeddings needs model.embedding_size and the width of the readout to be equal, got "
                f"{self.embedding_size} and {width}"
            )
        self.decoder.check_encoder(self.encoder, embedded_size=self.embedding_size, features=self.hidden_size)

    @property
    def main_attention(self) -> tuple[Attention, int] | None:
        found = self.describe_encoder()
        if found is not None or not self.has_weights:
            return found
        return self.build_attention(), self.hidden_size
