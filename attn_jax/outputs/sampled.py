"""Output layers trained on sampled words, so that the cost of a training step does not depend on the vocabulary."""

import dataclasses
import math
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.dense import wide_product
from attn_jax.attention.loops import everywhere
from attn_jax.errors import UserError
from attn_jax.layers.rows import RowTable, take, whole
from attn_jax.outputs.base import Embedding, OutputOptions, OutputSetting, frequencies_of, frequencies_option
from attn_jax.outputs.chunked import ChunkedSoftmax
from attn_jax.outputs.criteria import Scored, blackout, importance_sampling, negative_sampling, noise_contrastive
from attn_jax.outputs.frequencies import Frequencies, log_uniform, uniform, unigram
from attn_jax.outputs.full import Linear
from attn_jax.outputs.proposals import Distribution, Fixed, Learned
from attn_jax.parts import Options, choice, option
from attn_jax.token_ids import SPECIAL
from attn_jax.types import Array, Callable, Float, Int, PRNGKeyArray, wide

INIT = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal", in_axis=-1, out_axis=-2)


class SampledSoftmax(ChunkedSoftmax, kw_only=True):
    """log_probs = log_softmax(W hidden + b), trained by a loss over the target and `num_samples` sampled words.

    Only the rows of these words in W and b get a gradient; training/row_updates.py exploits this. All methods except
    `loss` are exact and cost as much as the full softmax.

    Attributes:
        criterion: see criteria.py.
        proposal: see proposals.py.
        num_samples: number of sampled words.
        learned_normalizer: subtract a learned log Z from the logits in the loss.

    Raises:
        ValueError: label smoothing, or no bias; only the full softmax supports these.
    """

    criterion: Callable[[Scored], Array] = importance_sampling
    proposal: nn.Module
    num_samples: int = 1024
    learned_normalizer: bool = False

    def __post_init__(self):
        if self.label_smoothing or not self.use_bias:
            raise ValueError("SampledSoftmax has a bias and no label smoothing; leave out use_bias and label_smoothing")
        super().__post_init__()

    @nn.compact
    def tables(self, features: int, embedding: Embedding = None) -> tuple[Embedding, RowTable]:
        """Returns W [v, d] and b [v]."""
        bias = RowTable(self, "bias", self.param("bias", nn.initializers.zeros, (self.vocab_size,), jnp.float32))
        if self.tied:
            return embedding, bias
        return RowTable(self, "table", self.param("table", INIT, (self.vocab_size, features), jnp.float32)), bias

    def linear(self, features: int, embedding: Embedding = None) -> Linear:
        """Returns all vectors, for the exact methods."""
        table, bias = self.tables(features, embedding)
        return Linear(whole(table), bias.whole(), axis=0)

    @nn.compact
    def log_normalizer(self) -> Float[Array, ""]:
        """Returns log Z, the same for all contexts."""
        return self.param("log_normalizer", nn.initializers.zeros, (), jnp.float32)

    def loss(
        self,
        hidden: Float[Array, "... d"],
        targets: Int[Array, "..."],
        embedding: Embedding = None,
        rng: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns (training loss, negative log-likelihood estimated by importance sampling) of each target.

        Raises:
            ValueError: `rng` is None.
        """
        if rng is None:
            raise ValueError("SampledSoftmax.loss: expected an rng to sample words with, got None")
        rows, chosen = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)
        proposed = self.proposal(rng, self.num_samples, rows, chosen)
        words = jnp.concatenate([everywhere(chosen), proposed.words])
        table, bias = self.tables(hidden.shape[-1], embedding)
        vectors, biases = take(table, words).astype(self.dtype), bias.take(words)
        rows, n = rows.astype(self.dtype), len(chosen)
        log_k = math.log(self.num_samples)
        scored = Scored(
            target=jnp.sum(wide(rows * vectors[:n]), axis=-1) + biases[:n],
            words=wide_product(rows, vectors[n:].T) + biases[None, n:],
            log_count_of_target=log_k + proposed.log_q_of_targets,
            log_count=log_k + proposed.log_q,
            is_target=chosen[:, None] == proposed.words[None],
        )
        nll = importance_sampling(scored)
        if self.learned_normalizer:
            log_z = self.log_normalizer()
            scored = scored._replace(target=scored.target - log_z, words=scored.words - log_z)
        loss = self.criterion(scored) + proposed.loss
        return loss.reshape(targets.shape), nll.reshape(targets.shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniformOptions(Options):
    """Options of words that are sampled uniformly."""

    def build(self, frequencies: Frequencies) -> Fixed | Learned:
        """Builds the proposal distribution.

        Raises:
            UserError: a word would never be sampled.
        """
        return Fixed(probs=Distribution(uniform(frequencies)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogUniformOptions(UniformOptions):
    """Options of words that are sampled log-uniformly by their rank."""

    def build(self, frequencies: Frequencies) -> Fixed | Learned:
        return Fixed(probs=Distribution(log_uniform(frequencies)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnigramOptions(UniformOptions):
    """Options of words that are sampled in proportion to (count + smoothing)^power."""

    power: float = option(0.75, "exponent of the counts", at_least=0, at_most=10)
    smoothing: float = option(0.0, "added to the count of each word", at_least=0)

    def build(self, frequencies: Frequencies) -> Fixed | Learned:
        return Fixed(probs=self.counted(frequencies))

    def counted(self, frequencies: Frequencies) -> Distribution:
        """Returns the distribution computed from the counts."""
        reserved = len(SPECIAL)
        try:
            return Distribution(unigram(frequencies, power=self.power, smoothing=self.smoothing, reserved=reserved))
        except ValueError as error:
            raise UserError(
                f"model.output.proposal: {error}; set model.output.proposal.smoothing to 1, or model.output.proposal "
                "to log_uniform"
            ) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnedProposalOptions(UnigramOptions):
    """Options of words that are sampled from a distribution learned jointly with the model."""

    num_classes: int = option(64, "number of classes of words", at_least=2)

    def build(self, frequencies: Frequencies) -> Fixed | Learned:
        return Learned(probs=self.counted(frequencies), num_classes=self.num_classes)


PROPOSALS = {
    "uniform": UniformOptions,
    "log_uniform": LogUniformOptions,
    "unigram": UnigramOptions,
    "learned": LearnedProposalOptions,
}
NORMALIZERS = {"learned": True, "fixed": False}  # whether it is a parameter


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledOptions(OutputOptions):
    """Options of a softmax that is trained by importance sampling."""

    needs_counts: ClassVar[bool] = True
    searches_all: ClassVar[bool] = True
    criterion: ClassVar[Callable] = staticmethod(importance_sampling)

    num_samples: int = option(1024, "number of words that are sampled for a batch", at_least=1)
    proposal: UniformOptions = choice(
        PROPOSALS,
        "log_uniform",
        "distribution the words are sampled from: equal, by rank, by count^power, or learned with the model",
    )
    frequencies: str = frequencies_option()
    chunk_size: int = option(8192, "number of words whose logits are in memory at a time", at_least=1)

    def build(self, setting: OutputSetting) -> SampledSoftmax:
        if setting.counts is not None and self.num_samples > setting.vocab_size:
            raise UserError(
                f"model.output.num_samples is {self.num_samples}, but the vocabulary has {setting.vocab_size} words; "
                f"expected at most {setting.vocab_size}, or model.output.name full"
            )
        return SampledSoftmax(
            vocab_size=setting.vocab_size,
            tied=setting.tied,
            dtype=setting.dtype,
            chunk_size=self.chunk_size,
            criterion=type(self).criterion,
            proposal=self.proposal.build(frequencies_of(setting)),
            num_samples=self.num_samples,
            learned_normalizer=self.has_learned_normalizer,
        )

    @property
    def has_learned_normalizer(self) -> bool:
        """Returns whether a normalizer is learned."""
        return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseContrastiveOptions(SampledOptions):
    """Options of a softmax that is trained by noise-contrastive estimation."""

    criterion: ClassVar[Callable] = staticmethod(noise_contrastive)

    normalizer: str = option("learned", "log Z of all contexts: learned, or fixed at 0", choices=NORMALIZERS)

    @property
    def has_learned_normalizer(self) -> bool:
        """Returns whether a normalizer is learned."""
        return NORMALIZERS[self.normalizer]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NegativeSamplingOptions(SampledOptions):
    """Options of negative sampling."""

    criterion: ClassVar[Callable] = staticmethod(negative_sampling)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlackOutOptions(SampledOptions):
    """Options of a softmax that is trained by BlackOut."""

    criterion: ClassVar[Callable] = staticmethod(blackout)
