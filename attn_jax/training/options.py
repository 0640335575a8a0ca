"""Options of training and of optimizers."""

import dataclasses
from typing import ClassVar

import optax

from attn_jax.errors import UserError
from attn_jax.parts import Options, Where, choice, option
from attn_jax.training import optimizers
from attn_jax.training.optimizers import LEAST_EPS, Schedule, make_optimizer

SEED_CHOICES = ("", "train", "valid")
ON_NAN = {"stop": 0, "rewind": 10}  # how often a run may rewind
TEXTS = Where(lambda chosen: chosen["task"].of_pairs, "a task.name of texts or images, not of points")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartOptions(Options):
    """Options of random initial parameters."""

    workdir: ClassVar[str] = ""
    vectors: ClassVar[dict[str, str]] = {}  # side -> file


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunStart(StartOptions):
    """Options of initial parameters copied from a trained run, for each array that both have."""

    workdir: str = option("", "work directory of a trained run with equal vocabularies", path=True)

    def __post_init__(self):
        if not self.workdir:
            raise UserError("train.start.workdir is empty; expected the work directory of a trained run")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorStart(StartOptions):
    """Options of embeddings initialized with word vectors."""

    source: str = option(
        "", "file in data_dir of word vectors (text of GloVe or word2vec) of the source; empty: random", path=True
    )
    target: str = option("", "file in data_dir of word vectors of the target; empty: random", path=True)

    def __post_init__(self):
        if not self.vectors:
            raise UserError("train.start vectors names no file; expected train.start.source, target or both")

    @property
    def vectors(self) -> dict[str, str]:
        """{side: file of word vectors}, for sides with a file."""
        return {side: name for side, name in (("source", self.source), ("target", self.target)) if name}


STARTS = {"random": StartOptions, "run": RunStart, "vectors": VectorStart}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """Options of a training run."""

    num_steps: int = option(0, "largest number of optimizer steps; 0: num_epochs decides", at_least=0)
    num_epochs: float = option(
        20.0, "largest number of passes over the training examples; 0: num_steps decides", at_least=0, at_most=1e9
    )
    log_every: int = option(50, "number of steps between log lines", at_least=1, affects="nothing")
    log_to: tuple = option(
        ("tensorboard",), "where metrics go besides metrics.jsonl, of tensorboard, wandb", each=str, affects="nothing"
    )
    eval_every: int = option(0, "number of steps between evaluations; 0: once an epoch", at_least=0)
    checkpoint_every: int = option(0, "number of steps between checkpoints; 0: at every evaluation", at_least=0)
    keep: int = option(2, "number of newest checkpoints to keep, besides the best one", at_least=1, affects="nothing")
    best_metric: str = option("loss", "validation metric that selects the best checkpoint", afterwards=True)
    patience: int = option(0, "stop after this many evaluations without a better best_metric; 0: never", at_least=0)
    goal: float = option(0.0, "stop when best_metric of every seed is as good as this; 0: never")
    on_nan: str = option(
        "stop",
        "at a loss or gradient that is not finite: stop, or rewind to the newest checkpoint and leave out the batch",
        choices=ON_NAN,
        affects="nothing",
    )
    average: int = option(
        0,
        "evaluate the mean of the parameters of this many last checkpoints; 0: the best checkpoint",
        at_least=0,
        afterwards=True,
    )
    lazy_rows: bool = option(
        False,
        "update only the rows of embeddings and sampled output layers that a step reads, and their moments (lazy Adam)",
        where=TEXTS,
    )
    microbatches: int = option(1, "gradient accumulation: number of parts of a batch", at_least=1, where=TEXTS)
    choose_seed: str = option(
        "",
        "seed to predict with: the first, the lowest training loss (train), the best best_metric (valid)",
        choices=SEED_CHOICES,
        where=TEXTS,
    )
    start: StartOptions | None = choice(STARTS, "random", "first parameters of a new run", where=TEXTS)

    def __post_init__(self):
        if not self.num_steps and not self.num_epochs:
            raise UserError("train.num_steps and train.num_epochs are both 0; expected one of them to be more")

    def steps(self, steps_per_epoch: int) -> int:
        """Returns the number of training steps: num_steps or the steps of num_epochs, whichever is less."""
        of_epochs = max(1, round(self.num_epochs * steps_per_epoch)) if self.num_epochs else self.num_steps
        return min(self.num_steps or of_epochs, of_epochs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleOptions(Options):
    """Options of a schedule of the learning rate. A subclass defines `build`."""

    patience: ClassVar[int] = 0  # evaluations without a better loss before the rate is halved; 0: it never is

    def build(self, learning_rate: float, warmup_steps: int, num_steps: int) -> Schedule:
        """Builds the schedule: learning rate as a function of the number of updates."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantOptions(ScheduleOptions):
    """Options of a constant learning rate."""

    def build(self, learning_rate, warmup_steps, num_steps):
        return optimizers.constant(learning_rate, warmup_steps, num_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlateauOptions(ConstantOptions):
    """Options of a learning rate that is halved when the validation loss stalls."""

    patience: int = option(1, "number of evaluations without a better loss before the rate is halved", at_least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InverseSqrtOptions(ScheduleOptions):
    """Options of a learning rate that decays with the inverse square root of the step."""

    def build(self, learning_rate, warmup_steps, num_steps):
        return optimizers.inverse_sqrt(learning_rate, warmup_steps, num_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CosineOptions(ScheduleOptions):
    """Options of a learning rate with cosine decay."""

    def build(self, learning_rate, warmup_steps, num_steps):
        return optimizers.cosine(learning_rate, warmup_steps, num_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HalvingOptions(ScheduleOptions):
    """Options of a learning rate that is halved at fixed steps."""

    every: int = option(10_000, "number of steps between two halvings", at_least=1)
    after: int = option(0, "steps before the first period begins", at_least=0)

    def build(self, learning_rate, warmup_steps, num_steps):
        rate = optimizers.constant(learning_rate, warmup_steps, num_steps)
        return optimizers.halving(rate, self.after, self.every)


SCHEDULES = {
    "constant": ConstantOptions,
    "inverse_sqrt": InverseSqrtOptions,
    "cosine": CosineOptions,
    "plateau": PlateauOptions,
    "halving": HalvingOptions,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlobalClip(Options):
    """Options of clipping the gradient by its global norm (Pascanu 2013)."""

    each: ClassVar[bool] = False

    norm: float = option(1.0, "largest norm of the gradient", at_least=1e-30)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EachClip(GlobalClip):
    """Options of clipping the gradient of each parameter array by its own norm."""

    each: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoClip(Options):
    """Options of a gradient that is not clipped."""

    each: ClassVar[bool] = False
    norm: ClassVar[float] = 0.0


CLIPS = {"none": NoClip, "global": GlobalClip, "each": EachClip}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerOptions(Options):
    """Options of the optimizer and its learning rate schedule. A subclass defines `precondition`."""

    learning_rate: float = option(1e-3, "peak learning rate", at_least=0)
    schedule: ScheduleOptions = choice(SCHEDULES, "constant", "schedule of the learning rate")
    warmup_steps: int = option(0, "number of steps over which the learning rate rises linearly", at_least=0)
    clip: GlobalClip | NoClip = choice(
        CLIPS, "global", "largest norm of the gradient, of all of it or of each parameter array by itself"
    )
    groups: tuple = option(
        (),
        "((pattern, factor), ...): factor of the learning rate of the parameters whose path matches, such as "
        "(('encoder/.*', 0.1),); 0: they are not trained",
    )

    def __post_init__(self):
        for group in self.groups:
            optimizers.check_group(group)

    def precondition(self) -> optax.GradientTransformation:
        """Returns the transformation of the clipped gradient."""
        raise NotImplementedError

    def build(self, num_steps: int) -> optax.GradientTransformation:
        """Builds the optimizer of a run of `num_steps` updates."""
        return make_optimizer(
            precondition=self.precondition(),
            rate=self.build_schedule(num_steps),
            clip_norm=self.clip.norm,
            clip_each=self.clip.each,
            on_plateau=self.schedule.patience > 0,
            groups=self.groups,
        )

    def build_schedule(self, num_steps: int) -> Schedule:
        """Builds the schedule: learning rate as a function of the number of updates."""
        return self.schedule.build(self.learning_rate, self.warmup_steps, num_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamOptions(OptimizerOptions):
    """Options of Adam (Kingma & Ba 2015)."""

    b1: float = option(0.9, "decay rate of the mean gradient", at_least=0, at_most=0.999999)
    b2: float = option(0.999, "decay rate of the mean squared gradient", at_least=0, at_most=0.999999)
    eps: float = option(1e-8, "added to the root of the mean squared gradient", at_least=LEAST_EPS)

    def precondition(self) -> optax.GradientTransformation:
        return optimizers.adam(b1=self.b1, b2=self.b2, eps=self.eps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamWOptions(AdamOptions):
    """Options of Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""

    weight_decay: float = option(0.0, "weight decay per step, multiplied by the learning rate", at_least=0)

    def precondition(self) -> optax.GradientTransformation:
        return optimizers.adamw(weight_decay=self.weight_decay, b1=self.b1, b2=self.b2, eps=self.eps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SGDOptions(OptimizerOptions):
    """Options of gradient descent."""

    momentum: float = option(0.0, "decay rate of the sum of gradients", at_least=0, at_most=0.999999)

    def precondition(self) -> optax.GradientTransformation:
        return optimizers.sgd(momentum=self.momentum)


OPTIMIZERS = {"adam": AdamOptions, "adamw": AdamWOptions, "sgd": SGDOptions}
