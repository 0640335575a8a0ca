"""Options of classifiers."""

import dataclasses
from typing import ClassVar

from attn_jax.attention import Attention
from attn_jax.data.sizes import TextSizes
from attn_jax.layers.pooling import MeanPooling, StructuredPooling
from attn_jax.models.attention_options import MapOptions
from attn_jax.models.base import Model
from attn_jax.models.classifier.model import Classifier
from attn_jax.models.encoder_options import EncoderUser
from attn_jax.models.family import Family
from attn_jax.models.output_options import OutputUser
from attn_jax.models.setting import Setting
from attn_jax.parts import Options, Where, choice, option, section
from attn_jax.token_ids import EOS

ATTENDS = Where(
    lambda chosen: chosen["encoder"].has_heads or chosen["pooling"].has_queries,
    "model.encoder transformer, or model.pooling structured",
)
EMBEDS = Where(lambda chosen: not chosen["encoder"].has_heads, "a model.encoder whose inputs may have another width")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanOptions(Options):
    """Options of the mean of the states."""

    has_queries: ClassVar[bool] = False
    penalty: ClassVar[float] = 0.0

    def build(self, attention: MapOptions | None, features: int) -> MeanPooling:
        """Builds the pooling of a sequence of states of width `features` to one vector."""
        return MeanPooling()


@dataclasses.dataclass(frozen=True, kw_only=True)
class StructuredOptions(MeanOptions):
    """Options of attention with learned queries (Lin 2017)."""

    has_queries: ClassVar[bool] = True

    num_queries: int = option(8, "number of learned queries (Lin 2017)", at_least=1)
    penalty: float = option(0.0, "weight of |A A' - I|^2 in the loss, which keeps the queries different", at_least=0)

    def build(self, attention: MapOptions | None, features: int) -> StructuredPooling:
        score = attention.score
        width = score.values["features"] if score.kind.own_width else features
        return StructuredPooling(attention=attention.build(width), num_queries=self.num_queries, features=width)


POOLINGS = {"mean": MeanOptions, "structured": StructuredOptions}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierOptions(OutputUser, EncoderUser, Family):
    """Options of a classifier: an encoder, pooling and an output layer."""

    name: ClassVar[str] = "classifier"

    hidden_size: int = option(256, "width of the hidden states", at_least=1)
    dropout: float = option(0.2, "dropout rate", at_least=0, at_most=0.999)
    embedding_size: int = option(256, "width of the embeddings", at_least=1, where=EMBEDS)
    readout_size: int = option(256, "width of the hidden layer before the output layer", at_least=1)
    pooling: MeanOptions = choice(POOLINGS, "mean", "how the states become one: their mean, or learned queries")
    attention: MapOptions | None = section(MapOptions, "attention of the encoder and of pooling", where=ATTENDS)

    @property
    def embedded_size(self) -> int:
        """Width of the embedded tokens."""
        return self.hidden_size if self.encoder.has_heads else self.embedding_size

    def build(self, sizes: TextSizes, setting: Setting) -> Model:
        module = Classifier(
            source_vocab_size=sizes.source_vocab_size,
            embedding_size=self.embedded_size,
            encoder=self.build_encoder(setting),
            picture=self.build_picture(sizes, setting),
            pooling=self.pooling.build(self.attention, self.hidden_size),
            output=self.build_output(setting, sizes, tied=False),
            features=self.readout_size,
            penalty=self.pooling.penalty,
            dropout=self.dropout,
            eos=EOS,
            dtype=setting.dtype,
        )
        return Model(module)

    @property
    def main_attention(self) -> tuple[Attention, int] | None:
        found = self.describe_encoder()
        if found is not None or not self.pooling.has_queries:
            return found
        return self.attention.build(self.hidden_size), self.hidden_size
