"""Options of the objectives of a sequence-to-sequence model: the reading of the source, and the loss."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

from attn_jax.attention import READINGS, Attention
from attn_jax.attention.hard.baselines import BASELINES, NoBaseline
from attn_jax.attention.hard.readings import Reading
from attn_jax.attention.maps import Map
from attn_jax.attention.normalizing import Normalize
from attn_jax.attention.scores import General
from attn_jax.data.sizes import TextSizes
from attn_jax.errors import UserError
from attn_jax.layers.rnn import CELLS, RNN
from attn_jax.models.attention_options import (
    DETERMINISTIC,
    ReadingOptions,
    check_probabilities,
    reading_options,
)
from attn_jax.models.family import Nothing
from attn_jax.models.pointer_options import build_pointer
from attn_jax.models.seq2seq.cooling import Cooling
from attn_jax.models.seq2seq.decoder_base import Decoder
from attn_jax.models.seq2seq.objectives import (
    ElboObjective,
    HardObjective,
    InferenceNetwork,
    MarginalObjective,
    MarkovObjective,
    SoftObjective,
    TrajectoryObjective,
)
from attn_jax.models.seq2seq.pointer_objective import PointerObjective
from attn_jax.models.setting import Setting
from attn_jax.outputs.base import OutputOptions
from attn_jax.parts import Options, Recipe, Where, choice, option

SOFT = READINGS["expectation"]
# Baselines for whole trajectories: other baselines need the loss of a single token, or of every key.
OF_TRAJECTORIES = ("none", "running_mean", "learned", "leave_one_out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoolingOptions(Options):
    """Options of a temperature that decreases during training."""

    num_steps: int = option(1000, "training steps over which the temperature falls", at_least=1)
    final: float = option(0.1, "temperature after them", at_least=1e-6)


COOLINGS = {"none": Nothing, "geometric": CoolingOptions}


def latent_options(reading: Reading) -> type[ReadingOptions]:
    """Makes the class of options of a reading with latent samples; with a slot `cooling` if it has a temperature."""
    base = reading_options(reading)
    if "temperature" not in reading.options:
        return base
    cooling = choice(COOLINGS, "none", "fall of the temperature in training")
    fields = [("cooling", Options, cooling)]
    namespace = {"build": lambda self, **more: self.reading.configure(**self.given, **more), "__doc__": base.__doc__}
    return dataclasses.make_dataclass(
        base.__name__, fields, bases=(CooledOptions, base), namespace=namespace, frozen=True, kw_only=True
    )


class CooledOptions:
    """Options of a reading with a temperature."""

    @property
    def given(self) -> dict[str, Any]:
        """The options of the sampler itself."""
        return {name: value for name, value in vars(self).items() if name != "cooling"}

    @property
    def cooled(self) -> Cooling | None:
        """The decreasing temperature; None if it is constant."""
        return Cooling(self.temperature, self.cooling.final, self.cooling.num_steps) if self.cooling else None


SAMPLED = {name: latent_options(reading) for name, reading in READINGS.items() if name not in DETERMINISTIC}
PER_STEP = {name: reading_options(READINGS[name]) for name in SAMPLED if READINGS[name].per_step}
MARGINAL = {name: SAMPLED[name] for name in ("enumeration", "reinforce")}
HAS_BASELINES = Where(
    lambda chosen: len(chosen["reading"].reading.baselines) > 1, "a reading whose gradient can have a baseline"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectiveOptions(Options):
    """Options of an objective. A subclass defines `build`."""

    is_latent: ClassVar[bool] = False  # the loss is computed for single keys, not for the mean context
    samples_context: ClassVar[bool] = False  # the sampled context enters the decoder
    sums_chains: ClassVar[bool] = False  # the keys form a Markov chain, which replaces the attention weights
    soft_steps: ClassVar[int] = 0

    def reading_of_decoder(self) -> Reading:
        """Returns the reading of the attention inside the decoder."""
        return SOFT

    def reading_of_keys(self) -> Reading | None:
        """Returns the reading of single keys; None without one."""
        return None

    def build(self, attention: Attention, decoder: Decoder, context: "Context") -> SoftObjective:
        """Builds the objective.

        Args:
            attention: attention of the decoder to the source.
            decoder: the decoder, whose feedback of contexts matters.
            context: facts about the rest of the model.

        Raises:
            UserError: parts do not fit each other.
        """
        raise NotImplementedError


class Context(NamedTuple):
    """Facts about the rest of the model that an objective may need."""

    sizes: TextSizes
    setting: Setting
    output: OutputOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftOptions(ObjectiveOptions):
    """Options of the loss of the mean context."""

    def build(self, attention, decoder, context):
        return SoftObjective()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopOptions(SoftOptions):
    """Options of the loss of the mean of the values with the largest weights (Malinowski 2018)."""

    num_samples: int = option(1, "number of keys", at_least=1)

    def reading_of_decoder(self) -> Reading:
        return READINGS["top"].configure(num_samples=self.num_samples)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentOptions(ObjectiveOptions):
    """Options of a loss for contexts of single keys. A subclass has `reading` and `baseline`."""

    is_latent: ClassVar[bool] = True
    kind: ClassVar[type[HardObjective]]
    per_key: ClassVar[bool] = True  # the estimate allows baselines per key

    k_max: int = option(
        0, "number of most probable keys that evaluation sums over; 0: all", at_least=0, affects="results"
    )
    soft_steps: int = option(
        0,
        "training steps over which the loss turns from that of the mean context into its own; 0: none",
        at_least=0,
    )

    def reading_of_keys(self) -> Reading:
        return self.reading.build()

    @property
    def label(self) -> str:
        """Name of the baseline."""
        return label_of(self.baseline)

    def build(self, attention, decoder, context):
        check_probabilities("this model.objective", attention)
        name, reading = self.label, self.reading.reading
        of_each_key = BASELINES[name].of_each_key and not self.per_key
        if name not in reading.baselines or of_each_key:
            raise UserError(
                f"model.objective.reading {reading.name} cannot use model.objective.baseline {name} here; it can use "
                f"{', '.join(x for x in reading.baselines if self.per_key or not BASELINES[x].of_each_key)}"
            )
        return self.kind(
            reading=self.reading.build(**of_samples(name, self.reading)),
            baseline=self.baseline.build() if self.baseline else NoBaseline(),
            soft_baseline=name == "soft",
            k_max=self.k_max,
            soft_steps=self.soft_steps,
            cooling=self.reading.cooled if "temperature" in reading.options else None,
            **self.more(),
        )

    def more(self) -> dict[str, Any]:
        """Returns the fields that only some of these objectives have."""
        return {}


def label_of(baseline: Recipe | None) -> str:
    """Returns the name of a baseline in BASELINES, where two names share a class; "none" without a baseline."""
    return "none" if baseline is None else baseline.kind.label


def of_samples(name: str, reading: ReadingOptions) -> dict[str, bool]:
    """Returns the options of a sampler that the baseline determines: leave_one_out.

    Raises:
        UserError: leave_one_out with fewer than two samples.
    """
    if name != "leave_one_out":
        return {}
    if reading.num_samples < 2:
        raise UserError(
            "model.objective.baseline leave_one_out needs model.objective.reading.num_samples of at least 2, got "
            f"{reading.num_samples}"
        )
    return {"leave_one_out": True}


def baseline(table: dict[str, Any]) -> Any:
    """Makes the slot of a baseline, for readings that can have one."""
    return choice(table, "learned", "baseline of sampled losses", where=HAS_BASELINES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardOptions(LatentOptions):
    """Options of the expected loss of one sampled key (Deng 2018)."""

    kind: ClassVar[type[HardObjective]] = HardObjective

    reading: ReadingOptions = choice(SAMPLED, "reinforce", "sampled keys, and the estimator of the gradient")
    baseline: Recipe | None = baseline(BASELINES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarginalOptions(LatentOptions):
    """Options of the likelihood with the key marginalized, or of a bound on it if keys are sampled."""

    kind: ClassVar[type[HardObjective]] = MarginalObjective
    per_key: ClassVar[bool] = False

    reading: ReadingOptions = choice(MARGINAL, "enumeration", "all keys, or sampled ones")
    baseline: Recipe | None = baseline(BASELINES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElboOptions(LatentOptions):
    """Options of the variational bound with keys from an inference network that sees the target."""

    kind: ClassVar[type[HardObjective]] = ElboObjective

    reading: ReadingOptions = choice(SAMPLED, "reinforce", "sampled keys, and the estimator of the gradient")
    baseline: Recipe | None = baseline(BASELINES)
    inference_size: int = option(128, "width of the inference network, even", at_least=2)
    cell: str = option("lstm", "type of recurrent cell of the inference network", choices=CELLS)

    def more(self) -> dict[str, Any]:
        size = self.inference_size
        if size % 2:
            raise UserError(f"model.objective.inference_size {size} is odd; expected an even number")
        rnn = RNN(cell=CELLS[self.cell], features=size, bidirectional=True)
        return {"inference": InferenceNetwork(rnn=rnn, score=General(query_features=size))}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrajectoryOptions(ObjectiveOptions):
    """Options of hard attention whose sampled context enters the decoder state (Xu 2015)."""

    is_latent: ClassVar[bool] = True
    samples_context: ClassVar[bool] = True

    reading: ReadingOptions = choice(PER_STEP, "reinforce", "sampled key, and the estimator of the gradient")
    baseline: Recipe | None = baseline({name: BASELINES[name] for name in OF_TRAJECTORIES})
    mean_probability: float = option(
        0.0, "probability that a sentence is trained with its mean contexts (Xu 2015: 0.5)", at_least=0, at_most=1
    )
    soft_steps: int = option(
        0,
        "training steps over which the probability of mean contexts falls from 1 to mean_probability; 0: none",
        at_least=0,
    )

    @property
    def several(self) -> bool:
        """Tells whether each sample is a separate trajectory."""
        return "leave_one_out" in self.reading.reading.options

    def reading_of_decoder(self) -> Reading:
        if self.several:
            return self.reading.reading.configure(num_samples=1, leave_one_out=False)
        return self.reading.build()

    def build(self, attention, decoder, context):
        check_probabilities("this model.objective", attention)
        name = label_of(self.baseline)
        if name not in self.reading.reading.baselines:
            known = ", ".join(self.reading.reading.baselines)
            raise UserError(f"model.objective.baseline {name} is not for this reading; it can use {known}")
        fields = dict(
            baseline=self.baseline.build() if self.baseline else NoBaseline(),
            mean_probability=self.mean_probability,
            soft_steps=self.soft_steps,
        )
        if not self.several:
            return TrajectoryObjective(**fields)
        own = bool(of_samples(name, self.reading))
        return TrajectoryObjective(num_trajectories=self.reading.num_samples, leave_one_out=own, **fields)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkovOptions(ObjectiveOptions):
    """Options of a Markov chain of keys, marginalized exactly (Wu & Cotterell 2019)."""

    is_latent: ClassVar[bool] = True
    sums_chains: ClassVar[bool] = True

    monotonic: bool = option(True, "no key comes before the key of the step before")
    jump_size: int = option(
        0, "the distance from the key before has a score; distances are clipped at this one; 0: no score", at_least=0
    )

    def __post_init__(self):
        if not self.monotonic and not self.jump_size:
            raise UserError(
                "model.objective markov with neither monotonic nor jump_size is no chain; expected one of them, or "
                "model.objective marginal"
            )

    def build(self, attention, decoder, context):
        if decoder.feeds_attention:
            raise UserError(
                "model.objective markov needs a state that knows nothing of the attention: model.decoder luong and "
                "model.decoder.input_feeding False, or model.decoder transformer"
            )
        part, read = attention.map, attention.read
        plain = isinstance(part, Map) and isinstance(part.normalize, Normalize) and part.normalize.is_softmax
        if not plain or not read.is_mean(train=True) or attention.block_size:
            raise UserError(
                "model.objective markov sums over all keys by their scores; it needs model.attention.normalize "
                "softmax, and no wrappers but softcap, no dropout and no blocks"
            )
        return MarkovObjective(monotonic=self.monotonic, jump_size=self.jump_size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CopyOptions(SoftOptions):
    """Options of a mixture of the vocabulary with the source tokens by their weights (See 2017)."""

    def build(self, attention, decoder, context):
        return PointerObjective(pointer=build_pointer("model.objective copy", attention, *context))


OBJECTIVES = {
    "soft": SoftOptions,
    "top": TopOptions,
    "hard": HardOptions,
    "trajectory": TrajectoryOptions,
    "marginal": MarginalOptions,
    "elbo": ElboOptions,
    "markov": MarkovOptions,
    "copy": CopyOptions,
}
