"""Options of attention, shared by all families of models, and the construction of the attention module."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax

from attn_jax.attention import NORMALIZERS, READINGS, SCORES, Attention, build_attention
from attn_jax.attention.fused import implementation_of
from attn_jax.attention.hard.readings import Reading
from attn_jax.attention.scores import Kernel, Softcap
from attn_jax.attention.scores.kernels import check_width
from attn_jax.attention.signed import FITS, Subtract
from attn_jax.errors import UserError
from attn_jax.options import option, overrides
from attn_jax.types import Dtype

ARGUMENTS = ("score", "read", "forget_heads", "rotary", "selective", "dtype")  # of build_attention, that are no options

# Names of read-outs that need one evaluation and no rng.
DETERMINISTIC = tuple(name for name, reading in READINGS.items() if reading.per_step and not reading.random)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """Options of attention weights: score, normalizer and their parameters.

    A score or normalizer that is a class takes the options with the names of its fields (see `make`).
    """

    selective: ClassVar[bool] = False  # an option of attention in a decoder, see memory_options.py

    score: str = option("general", "score function of queries and keys", choices=SCORES)
    normalize: str = option("softmax", "function that turns scores into weights", choices=NORMALIZERS)
    alpha: float = option(1.5, "entmax, scalable_entmax: exponent; 1 is softmax, 2 is sparsemax", at_least=1)
    fusion: float = option(
        0.1, "fusedmax: fusion strength; larger values give longer runs of equal weights", at_least=0
    )
    longest_segment: int = option(4, "segments: most neighbouring keys in one", at_least=1, at_most=1000)
    num_positions: int = option(64, "contextual_softmax: positions that are told apart", at_least=2)
    width: tuple = option((), "kernels: width, one number or one per column; (): learned", each=float)
    per_column: bool = option(False, "kernels: learn one width per column")
    features: int = option(
        256, "hidden width of the additive, concat and tanh_key scores and of window local_p", at_least=1
    )
    max_length: int = option(100, "location score: largest number of keys", at_least=1)
    num_features: int = option(64, "random_features score: number of random directions", at_least=1)
    softcap: float = option(0.0, "scores become softcap * tanh(score / softcap); 0: as they are", at_least=0)
    top_keys: int = option(
        0,
        "number of keys, or blocks of keys_per_block keys, of largest score that a query attends to; 0: all",
        at_least=0,
    )
    keys_per_block: int = option(1, "top_keys: number of neighbouring keys that are selected together", at_least=1)
    iterations: int = option(
        1, "number of reads, the mean of the keys as next query (Hopfield network)", at_least=1, at_most=100
    )
    gate: bool = option(False, "multiply the context by a sigmoid of the input of the query")
    fit: str = option("mean", "context: mean of the values, or a line fitted to them, at the query", choices=FITS)
    ridge: float = option(0.1, "fit line: share of the variance of the keys that is added to it", at_least=0)
    difference: bool = option(False, "subtract a second map of weights; each is of half of the columns")
    block_size: int = option(0, "number of keys whose scores are in memory at a time; 0: all", at_least=0)

    @property
    def scores(self) -> Mapping[str, type]:
        """Available scores, by name."""
        return SCORES

    @property
    def normalizers(self) -> Mapping[str, Any]:
        """Available normalizers, by name."""
        return NORMALIZERS

    def build(self, query_features: int, **facts: Any) -> Attention:
        """Builds the attention module.

        Args:
            query_features: width of the queries, or of one head.
            facts: fields of scores and normalizers that are not options, such as `num_heads` and `num_scaled`, and
                arguments of build_attention: `read`, `forget_heads`, `dtype`, or a `score` in place of the option.

        Raises:
            UserError: a width does not fit, or the score needs another normalizer.
        """
        if self.difference and query_features % 2:
            raise UserError(
                f"model.attention.difference takes half of the columns of a query each; they are {query_features}"
            )
        query_features //= 2 if self.difference else 1
        kind = self.scores[self.score]
        if issubclass(kind, Kernel):
            check_kernel(kind, self, query_features)
        options = dataclasses.asdict(self) | {"query_features": query_features, **facts}
        try:
            return build_attention(**self.arguments(options) | {x: facts[x] for x in ARGUMENTS if x in facts})
        except ValueError as error:
            raise UserError(f"model.attention: {error}") from error

    def arguments(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of build_attention; parts are made of these options."""
        score, normalize, fit = make(self.scores[self.score], options), self.normalizers[self.normalize], FITS[self.fit]
        return dict(
            score=Softcap(score=score, softcap=self.softcap) if self.softcap else score,
            normalize=make(normalize, options) if isinstance(normalize, type) else normalize,
            dropout=options.get("dropout", 0.0),
            block_size=self.block_size,
            top_keys=self.top_keys,
            keys_per_block=self.keys_per_block,
            iterations=self.iterations,
            gate=options["gate"],
            fit=fit and make(fit, options),
            difference=Subtract() if self.difference else None,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DroppedAttentionOptions(AttentionOptions):
    """Options of attention with dropout."""

    dropout: float = option(0.0, "dropout rate of the attention weights", at_least=0, at_most=0.999)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadAttentionOptions(DroppedAttentionOptions):
    """Options of attention in a Transformer or a classifier."""

    read: str = option(
        "expectation",
        "context: mean of all values, or of the num_samples keys of largest weight",
        choices=DETERMINISTIC,
    )
    num_samples: int = option(1, "read top: number of keys", at_least=1)

    def build(self, query_features: int, **facts: Any) -> Attention:
        reading = configured(READINGS[self.read], num_samples=self.num_samples)
        return super().build(query_features, **{"read": reading} | facts)


AttentionOverrides = overrides(
    "AttentionOverrides",
    DroppedAttentionOptions,
    "Options of attention in one place of a model; None: same as model.attention.",
)


def make(kind: type, options: Mapping[str, Any]) -> Any:
    """Makes a score, normalizer, window or baseline from the options that are fields of its class."""
    fields = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in options.items() if name in fields})


def configured(reading: Reading, **options: Any) -> Reading:
    """Returns the reading, configured with the options that it takes."""
    return reading.configure(**{name: value for name, value in options.items() if name in reading.options})


def check_kernel(score: type[Kernel], options: AttentionOptions, features: int) -> None:
    """Checks the options of a kernel.

    Raises:
        UserError: the width does not fit the columns, or cannot be learned, or a query out of reach of all keys would
            get NaN weights.
    """
    try:
        if options.width:
            check_width(options.width, features)
    except ValueError as error:
        raise UserError(f"model.attention.{error}") from error
    if not score.has_gradient and not options.width:
        raise UserError(f"model.attention.score {options.score} has no gradient; set model.attention.width")
    if score.compact and not options.normalizers[options.normalize].infinite:
        raise UserError(
            f"model.attention.score {options.score} is -inf for keys out of its reach; it needs "
            f"model.attention.normalize kernel_sum, got {options.normalize}"
        )


def describe_attention(attention: Attention, dtype: Dtype, width: int) -> str:
    """Describes how the context is computed: by a fused kernel, or as the formula is written."""
    if attention.block_size:
        return f"in blocks of {attention.block_size} keys"
    if not attention.fusible:
        return "as written: read(normalize(score(query, keys)), values)"
    kernel = {"cudnn": "cuDNN", "xla": f"XLA on {jax.default_backend()}"}[implementation_of(dtype, width)]
    return f"fused, {kernel}" + (
        "" if attention.read.is_mean(train=True) else ", but as written in training, for the dropout of weights"
    )
