"""Options of attention, which every family of models with attention has, and the module that they make."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from attn_jax.attention import NORMALIZERS, READINGS, SCORES, Attention
from attn_jax.attention.fused import implementation_of
from attn_jax.attention.hard.readings import Reading
from attn_jax.attention.normalizers import linear, rela
from attn_jax.attention.scores import Kernel
from attn_jax.attention.scores.kernels import check_width
from attn_jax.errors import UserError
from attn_jax.options import option
from attn_jax.types import Dtype

DETERMINISTIC = ("expectation", "top")  # readings that need no rng


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """Options of the weights of attention: the score and the normalizer, and what these are made with.

    A score or normalizer that is a class gets the options that are fields of it, by name (see `make`).
    """

    score: str = option("general", "score of a query and a key", choices=SCORES)
    normalize: str = option("softmax", "normalizer of the scores", choices=NORMALIZERS)
    alpha: float = option(1.5, "entmax, scalable_entmax: 1 is softmax, 2 sparsemax", at_least=1)
    fusion: float = option(0.1, "fusedmax: strength; larger makes longer runs of equal weights", at_least=0)
    width: tuple = option((), "kernels: one width, or one for each column; (): learned")
    per_column: bool = option(False, "kernels: a learned width for each column")
    features: int = option(256, "width of the additive, concat and tanh_key scores, and of local_p", at_least=1)
    max_length: int = option(100, "positions that the location score knows", at_least=1)

    @property
    def scores(self) -> Mapping[str, type]:
        """The scores that can be chosen."""
        return SCORES

    @property
    def normalizers(self) -> Mapping[str, Any]:
        """The normalizers that can be chosen."""
        return NORMALIZERS

    def build(self, query_features: int, *, read: Reading = READINGS["expectation"], **facts: Any) -> Attention:
        """Builds the attention module.

        Args:
            query_features: width of the queries, or of a head.
            read: how the weights are read.
            facts: other fields of scores and normalizers that no option sets, such as `num_heads` and `num_scaled`.

        Raises:
            UserError: a width does not fit, or the score needs another normalizer.
        """
        score = self.scores[self.score]
        if issubclass(score, Kernel):
            check_kernel(score, self, query_features)
        normalize = self.normalizers[self.normalize]
        options = dataclasses.asdict(self) | {"query_features": query_features, **facts}
        return Attention(
            score=make(score, options),
            normalize=make(normalize, options) if isinstance(normalize, type) else normalize,
            read=read,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DroppedAttentionOptions(AttentionOptions):
    """Options of attention with dropout."""

    dropout: float = option(0.0, "dropout of the weights", at_least=0, at_most=0.999)

    def build(self, query_features: int, **facts: Any) -> Attention:
        return super().build(query_features, **facts).clone(dropout=self.dropout)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadAttentionOptions(DroppedAttentionOptions):
    """Options of attention in a Transformer or a classifier."""

    read: str = option(
        "expectation", "expectation, or the num_samples keys of the largest weights", choices=DETERMINISTIC
    )
    num_samples: int = option(1, "read top: keys that are read", at_least=1)

    def build(self, query_features: int, **facts: Any) -> Attention:
        reading = configured(READINGS[self.read], num_samples=self.num_samples)
        return super().build(query_features, **{"read": reading} | facts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionOverrides:
    """Options of attention in one place of a model. None: as in model.attention."""

    score: str | None = option(None, "score of a query and a key", choices=SCORES)
    normalize: str | None = option(None, "normalizer of the scores", choices=NORMALIZERS)
    alpha: float | None = option(None, "entmax, scalable_entmax: 1 is softmax, 2 sparsemax", at_least=1)
    fusion: float | None = option(None, "fusedmax: strength", at_least=0)
    width: tuple | None = option(None, "kernels: one width, or one for each column; (): learned")
    per_column: bool | None = option(None, "kernels: a learned width for each column")
    features: int | None = option(None, "width of the additive, concat and tanh_key scores", at_least=1)
    max_length: int | None = option(None, "positions that the location score knows", at_least=1)
    dropout: float | None = option(None, "dropout of the weights", at_least=0, at_most=0.999)

    def over(self, options: AttentionOptions) -> AttentionOptions:
        """The options with those replaced that are set here."""
        own = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        return dataclasses.replace(options, **own)


def make(kind: type, options: Mapping[str, Any]) -> Any:
    """Makes a score, normalizer, window or baseline with those options that are fields of it."""
    return kind(**{name: value for name, value in options.items() if name in kind.__dataclass_fields__})


def configured(reading: Reading, **options: Any) -> Reading:
    """The reading with those options that its function takes."""
    return reading.configure(**{name: value for name, value in options.items() if name in reading.options})


def sums_to_one(normalizer: Any) -> bool:
    """Tells whether the weights of a normalizer sum to one wherever there is a key."""
    return normalizer not in (linear, rela)


def check_kernel(score: type[Kernel], options: AttentionOptions, features: int) -> None:
    """Checks the options of a kernel.

    Raises:
        UserError: the width does not fit the columns, or a query out of the reach of all keys would get weights of NaN.
    """
    if options.width:
        check_width(options.width, features)
    if score.compact and options.normalize != "kernel_sum":
        raise UserError(
            f"model.attention.score {options.score} is -inf for keys out of its reach; it needs "
            f"model.attention.normalize kernel_sum, got {options.normalize}"
        )


def describe_attention(attention: Attention, dtype: Dtype, width: int) -> str:
    """Says how the context is computed: by which fused kernel, or as the formula is written."""
    if not attention.fusible:
        return "as written: read(normalize(score(query, keys)), values)"
    kernel = {"cudnn": "cuDNN", "xla": f"XLA on {jax.default_backend()}"}[implementation_of(dtype, width)]
    return f"fused, {kernel}" + (
        ", but as written in training, for the dropout of weights" if attention.dropout else ""
    )
