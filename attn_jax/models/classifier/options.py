"""Options of classifiers."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from attn_jax.attention import Attention
from attn_jax.layers.pooling import MeanPooling, StructuredPooling
from attn_jax.models.attention_options import HeadAttentionOptions
from attn_jax.models.base import Model
from attn_jax.models.classifier.model import Classifier
from attn_jax.models.encoder_options import EncoderOptions, width_of_head
from attn_jax.models.setting import Setting
from attn_jax.options import option, section
from attn_jax.tasks.sizes import TextSizes
from attn_jax.token_ids import EOS


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierOptions(EncoderOptions):
    """Options of a classifier: an encoder, pooling and an output layer."""

    name: str = option("classifier", "name of the family")
    embedding_size: int = option(256, "width of the embeddings; a Transformer uses hidden_size", at_least=1)
    readout_size: int = option(256, "width of the hidden layer before the output layer", at_least=1)
    pooling: str = option(
        "mean",
        "how the states become one: their mean, or attention with learned queries",
        choices=("mean", "structured"),
    )
    num_queries: int = option(8, "structured: number of learned queries (Lin 2017)", at_least=1)
    penalty: float = option(0.0, "structured: weight of |A A' - I|^2 in the loss", at_least=0)
    attention: HeadAttentionOptions = section(HeadAttentionOptions, "attention of the encoder and of pooling")

    @property
    def embedded_size(self) -> int:
        """Width of the embedded tokens."""
        return self.hidden_size if self.encoder_kind.has_heads else self.embedding_size

    @property
    def of_encoder(self) -> HeadAttentionOptions:
        """Options of attention in the encoder."""
        return self.attention

    def build(self, sizes: TextSizes, setting: Setting) -> Model:
        """Builds the model.

        Raises:
            UserError: sizes do not fit each other.
        """
        pooling = POOLINGS[self.pooling]
        module = Classifier(
            source_vocab_size=sizes.source_vocab_size,
            embedding_size=self.embedded_size,
            encoder=self.build_encoder(setting),
            picture=self.build_picture(sizes, setting),
            pooling=pooling.build(self),
            output=self.build_output(setting, sizes, tied=False),
            features=self.readout_size,
            penalty=self.penalty if pooling.has_queries else 0.0,  # keeps the queries different
            dropout=self.dropout,
            eos=EOS,
            dtype=setting.dtype,
        )
        return Model(module)

    @property
    def main_attention(self) -> tuple[Attention, int] | None:
        """Attention module to describe to a user, and the width of its queries; None without attention."""
        if not self.encoder_kind.has_heads and not POOLINGS[self.pooling].has_queries:
            return None
        heads = self.encoder_kind.has_heads
        width = width_of_head(self.hidden_size, self.num_heads, self.num_kv_heads) if heads else self.hidden_size
        return self.attention.build(width), width


class Pooling(NamedTuple):
    """Type of pooling: turns the states of a sequence into one."""

    build: Callable[[ClassifierOptions], MeanPooling | StructuredPooling]
    has_queries: bool = False


def build_mean(options: ClassifierOptions) -> MeanPooling:
    """Builds the mean of the states."""
    return MeanPooling()


def build_structured(options: ClassifierOptions) -> StructuredPooling:
    """Builds attention with learned queries, of the width that the score needs."""
    score = options.attention.scores[options.attention.score]
    width = options.attention.features if score.own_width else options.hidden_size
    attention = options.attention.build(width)
    return StructuredPooling(attention=attention, num_queries=options.num_queries, features=width)


POOLINGS = {"mean": Pooling(build_mean), "structured": Pooling(build_structured, has_queries=True)}
