"""Options of attention, shared by all families of models, and the construction of the attention module."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax

from attn_jax.attention import NORMALIZERS, READINGS, SCORES, Attention, MultiHead
from attn_jax.attention.build import compose
from attn_jax.attention.caches import CAUSAL, EVERYWHERE
from attn_jax.attention.forgetting import Forgetting
from attn_jax.attention.fused import implementation_of
from attn_jax.attention.hard.monotonic import MonotonicSelection
from attn_jax.attention.hard.readings import Reading
from attn_jax.attention.local import LocalM, LocalP
from attn_jax.attention.maps import Difference, Fitted, Hopfield
from attn_jax.attention.mixer import Mixer, head_width
from attn_jax.attention.normalizing import Monotonic, Normalize, TopKeys, Windowed
from attn_jax.attention.parts import NOT_NEGATIVE, SUMS_TO_ONE, check_slot
from attn_jax.attention.reads import Dropped, Gated, Read
from attn_jax.attention.scores import Kernel, Softcap
from attn_jax.attention.scores.kernels import check_width
from attn_jax.attention.selective import Selective
from attn_jax.attention.signed import LocalLine, Parallax, Subtract
from attn_jax.errors import UserError
from attn_jax.layers.positions import NoPositions
from attn_jax.parts import Options, Recipe, choice, option, repeat
from attn_jax.types import Dtype

# Wrappers around the parts of attention. Each wrapper in HOLDERS has a slot of this name, which holds another part.
WRAPPERS = {
    "softcap": Softcap,
    "top_keys": TopKeys,
    "difference": Subtract,
    "hopfield": Hopfield,
    "line": LocalLine,
    "parallax": Parallax,
    "selective": Selective,
    "gate": Gated,
}
WINDOWS = {"local_m": LocalM, "local_p": LocalP}
HOLDERS = {
    Subtract: (Difference, "subtract"),
    LocalLine: (Fitted, "fit"),
    Parallax: (Fitted, "fit"),
    LocalM: (Windowed, "window"),
    LocalP: (Windowed, "window"),
}
ORDER = "what is put around score, normalizer, map and read, from the inside"


def reading_options(reading: Reading, *, single: bool = False) -> type["ReadingOptions"]:
    """Makes the class of options of a reading: num_samples and temperature, if its sampler has them."""
    known = {
        "num_samples": option(1, "number of samples, or of evaluations of the loss", at_least=1),
        "temperature": option(1.0, "temperature of relaxed samples (Gumbel)", at_least=1e-6),
    }
    fields = [(name, type(field.default), field) for name, field in known.items() if name in reading.options]
    return dataclasses.make_dataclass(
        f"{reading.name.title().replace('_', '')}Options",
        fields,
        bases=(ReadingOptions,),
        namespace={"reading": reading, "__doc__": f"Options of the reading {reading.name}."},
        frozen=True,
        kw_only=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadingOptions(Options):
    """Options of a reading: how weights and values become a context, and how the gradient is estimated."""

    reading: ClassVar[Reading]
    num_samples: ClassVar[int] = 1

    def build(self, **more: Any) -> Reading:
        """Configures the reading; `more` are options of its sampler that other parts determine."""
        return self.reading.configure(**dataclasses.asdict(self), **more)


# Readings that need one evaluation of the loss and no rng.
DETERMINISTIC = {name: reading_options(x) for name, x in READINGS.items() if x.per_step and not x.random}


class HeadsSetting(NamedTuple):
    """Settings that heads are built from.

    Attributes:
        num_heads, num_kv_heads, features, dtype: see MultiHead.
        causal: whether a query reads only the keys up to its own position.
        positions: the positional encoding of self-attention; None for attention to a source.
    """

    num_heads: int
    num_kv_heads: int
    features: int
    dtype: Dtype
    causal: bool = False
    positions: NoPositions | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadsOptions(Options):
    """Options of an attention in a Transformer layer: over all keys, or over a memory of fixed size."""

    kept: ClassVar[bool]  # keeps all keys; False: a memory of fixed size

    def over(self, main: "HeadsOptions") -> "HeadsOptions":
        """Returns the options to use at one place of a model with main attention options `main`."""
        return self

    def build_heads(self, of: HeadsSetting) -> Mixer:
        """Builds the heads.

        Raises:
            UserError: a part needs an order of the keys, or another width.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionOptions(HeadsOptions):
    """Options of attention weights: score, normalizer, and wrappers around them."""

    kept: ClassVar[bool] = True

    score: Recipe = choice(SCORES, "general", "score function of queries and keys")
    normalize: Recipe = choice(NORMALIZERS, "softmax", "function that turns scores into weights")
    wrappers: tuple[Recipe, ...] = repeat(WRAPPERS, (), ORDER)
    block_size: int = option(0, "number of keys whose scores are in memory at a time; 0: all", at_least=0)
    dropout = 0.0  # no ClassVar, which under multiple inheritance would hide a field of this name

    @property
    def is_monotonic(self) -> bool:
        """Tells whether the weights of a query depend on the weights of the previous query."""
        return self.normalize.kind is MonotonicSelection

    @property
    def moves_along(self) -> str:
        """Name of the part that moves along the keys (a window or monotonic attention); "" without one."""
        names = [name for name, kind in WINDOWS.items() if self.has(kind)]
        return "monotonic" if self.is_monotonic else names[0] if names else ""

    @property
    def gate(self) -> bool:
        """Tells whether the context is multiplied by a sigmoid of the input of the query."""
        return self.has(Gated)

    def has(self, kind: type) -> bool:
        """Tells whether a wrapper of this class is chosen."""
        return any(wrapper.kind is kind for wrapper in self.wrappers)

    def reading(self) -> Reading:
        """Returns the reading."""
        return READINGS["expectation"]

    def build(
        self, query_features: int, *, read: Reading | None = None, gate: bool | None = None, **facts: Any
    ) -> Attention:
        """Builds the attention module.

        Args:
            query_features: width of the queries, or of one head.
            read: a reading that overrides the option.
            gate: overrides the option.
            facts: fields of parts that are not options, such as `num_heads` and `num_scaled`; `forget_heads`, `rotary`
                and `dtype`, see build_attention; with forget heads `decay_time`, see ForgetGates; or a `score` that
                overrides the option.

        Raises:
            UserError: a width does not fit, or a part lacks a property that another one needs.
        """
        self.check_wrappers(of_heads="num_heads" in facts)
        if self.has(Subtract):
            if query_features % 2:
                raise UserError(
                    f"model.attention.wrappers difference takes half of the columns of a query each; they are "
                    f"{query_features}"
                )
            query_features //= 2
        facts = {"query_features": query_features, **facts}
        score = facts.pop("score", None)
        if score is None:
            self.check_kernel(query_features)
            score = self.score.build(**facts)
        heads, rotary = facts.get("forget_heads", 0), facts.get("rotary", False)
        forget = partial(Forgetting, num_heads=heads, decay_time=facts.get("decay_time", 0.0), dtype=facts.get("dtype"))
        gated = self.gate if gate is None else gate
        outside = (Softcap, Gated)  # around the score, and around the read after dropout
        try:
            for wrapper in self.wrappers:
                score = wrapper.build(score=score) if wrapper.kind is Softcap else score
            wrappers = [wrap(wrapper, facts) for wrapper in self.wrappers if wrapper.kind not in outside]
            wrappers += [(Dropped, partial(Dropped, rate=self.dropout))] if self.dropout else []
            wrappers += [(Gated, Gated)] if gated else []
            normalize = self.normalize.build(**facts)
            return compose(
                score=score,
                normalize=Monotonic(selection=normalize) if self.is_monotonic else Normalize(function=normalize),
                read=Read(reading=self.reading() if read is None else read),
                wrappers=wrappers,
                forget=forget if heads else None,
                rotary=rotary,
                block_size=self.block_size,
            )
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"model.attention: {error}") from error

    def check_wrappers(self, *, of_heads: bool) -> None:
        """Checks that the wrappers fit each other.

        Args:
            of_heads: whether the attention is one of several heads.

        Raises:
            UserError: wrappers exclude each other, or a wrapper has no effect with this normalizer or at this place.
        """
        names = {kind: name for name, kind in (WRAPPERS | WINDOWS).items()}
        given = [names[wrapper.kind] for wrapper in self.wrappers]
        if self.is_monotonic and (others := [name for name in given if name not in ("softcap", "gate")]):
            raise UserError(
                "model.attention.normalize monotonic makes the weights by itself; of model.attention.wrappers it takes "
                f"softcap and gate, got {others[0]}"
            )
        if self.has(Selective) and self.has(Subtract):
            raise UserError("model.attention.wrappers difference has two scores for each key; selective needs one")
        if self.has(Selective) and not of_heads:
            raise UserError(
                "model.attention.wrappers selective selects by the first of several heads; it is for the "
                "self-attention of a Transformer decoder"
            )

    def check_kernel(self, features: int) -> None:
        """Checks the options of a kernel.

        Raises:
            UserError: the kernel width does not fit the columns; no width is given and it cannot be learned; or a query
                out of reach of all keys would get NaN weights.
        """
        kind = self.score.kind
        if not issubclass(kind, Kernel):
            return
        width = self.score.values.get("width", ())
        try:
            if width:
                check_width(width, features)
        except ValueError as error:
            raise UserError(f"model.attention.score.{error}") from error
        if not kind.has_gradient and not width:
            raise UserError(
                f"model.attention.score {kind.__name__.lower()} has no gradient; set model.attention.score.width"
            )
        if kind.compact and not self.normalize.kind.infinite:
            raise UserError(
                f"model.attention.score {kind.__name__.lower()} is -inf for keys out of its reach; it needs "
                "model.attention.normalize kernel_sum"
            )

    def build_heads(self, of: HeadsSetting) -> Mixer:
        if self.moves_along:
            key = "model.attention.normalize" if self.is_monotonic else "model.attention.wrappers"
            raise UserError(
                f"{key} {self.moves_along} moves along the source, which a Transformer does not; expected another one, "
                "or model.encoder.attention=map where the encoder alone is a Transformer"
            )
        if self.has(Selective) and not of.causal:
            raise UserError(
                "model.attention.wrappers selective needs causal keys, which an encoder and a source do not have: "
                "choose it for the decoder alone, model.decoder.attention=map"
            )
        of_positions: dict[str, Any] = {}
        if (positions := of.positions) is not None:
            forgets = (of.num_kv_heads or of.num_heads) if positions.forgets else 0
            of_positions = dict(num_scaled=positions.num_scaled, rotary=positions.rotary)
            of_positions |= dict(forget_heads=forgets, decay_time=positions.decay_time)
        width = width_of_head(of.features, of.num_heads, of.num_kv_heads)
        attention = self.build(width, num_heads=of.num_heads, gate=False, dtype=of.dtype, **of_positions)
        return MultiHead(
            attention=attention,
            gate=self.gate,
            order=CAUSAL if of.causal else EVERYWHERE,
            num_heads=of.num_heads,
            num_kv_heads=of.num_kv_heads,
            features=of.features,
            dtype=of.dtype,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DroppedAttentionOptions(AttentionOptions):
    """Options of attention with dropout."""

    dropout: float = option(0.0, "dropout rate of the attention weights", at_least=0, at_most=0.999)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MapOptions(DroppedAttentionOptions):
    """Options of attention in a Transformer or a classifier."""

    read: ReadingOptions = choice(
        DETERMINISTIC, "expectation", "context: mean of all values, or of the largest weights"
    )

    def reading(self) -> Reading:
        return self.read.build()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Same(Options):
    """The main attention of the model, with separate parameters."""

    def over(self, main: HeadsOptions) -> HeadsOptions:
        """Returns the options of the main attention."""
        return main


def wrap(recipe: Recipe, facts: dict[str, Any]) -> tuple[type, Callable]:
    """Returns (class of the wrapper, function from the wrapped part to the wrapper) for `compose`."""
    if recipe.kind in HOLDERS:
        holder, slot = HOLDERS[recipe.kind]
        return holder, lambda of: holder(of=of, **{slot: recipe.build(**facts)})
    return recipe.kind, lambda of: recipe.build(of=of, **facts)


def check_probabilities(what: str, attention: Attention) -> None:
    """Checks that keys can be sampled by their weights: that weights sum to one and are not negative.

    Raises:
        UserError: a part may break this; the message begins with `what`, and names the part.
    """
    try:
        check_slot(what, {SUMS_TO_ONE, NOT_NEGATIVE}, attention.map)
    except ValueError as error:
        raise UserError(f"{error}; see model.attention.normalize and model.attention.wrappers") from error
    if attention.score.compact:
        raise UserError(
            f"{what} needs weights that sum to one; those of the score {type(attention.score).__name__} need not"
        )


def width_of_head(hidden_size: int, num_heads: int, num_kv_heads: int = 0) -> int:
    """Returns the width of a head.

    Raises:
        UserError: num_heads does not divide the width, or num_kv_heads does not divide num_heads.
    """
    try:
        return head_width(hidden_size, num_heads, num_kv_heads)
    except ValueError as error:
        raise UserError(f"model.hidden_size {hidden_size}: {error}") from None


def describe_attention(attention: Attention, dtype: Dtype, width: int) -> str:
    """Describes how the context is computed: by a fused kernel, or by the formula as written."""
    if attention.block_size:
        return f"in blocks of {attention.block_size} keys"
    if not attention.fusible:
        return "as written: read(normalize(score(query, keys)), values)"
    kernel = {"cudnn": "cuDNN", "xla": f"XLA on {jax.default_backend()}"}[implementation_of(dtype, width)]
    return f"fused, {kernel}" + (
        "" if attention.read.is_mean(train=True) else ", but as written in training, for the dropout of weights"
    )
