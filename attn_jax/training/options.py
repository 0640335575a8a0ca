"""Options of training."""

import dataclasses
from typing import ClassVar

import optax

from attn_jax.errors import UserError
from attn_jax.options import option
from attn_jax.training.optimizers import LEAST_EPS, OPTIMIZERS, SCHEDULES, Schedule, make_optimizer, make_schedule

SEED_CHOICES = ("", "train", "valid")
ON_NAN = {"stop": 0, "rewind": 10}  # how often a run may go back


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of a training run."""

    num_steps: int = option(0, "number of optimizer steps; 0: set by num_epochs", at_least=0)
    num_epochs: float = option(
        20.0, "number of passes over the training examples", at_least=0, at_most=1e9, only=("num_steps", (0,))
    )
    log_every: int = option(50, "number of steps between log lines", at_least=1, affects="nothing")
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

    # What a regression trains with; models of text and images have options of these names.
    lazy_rows: ClassVar[bool] = False
    microbatches: ClassVar[int] = 1
    choose_seed: ClassVar[str] = ""
    start_from: ClassVar[str] = ""
    source_vectors: ClassVar[str] = ""
    target_vectors: ClassVar[str] = ""
    label_smoothing: ClassVar[float] = 0.0

    def __post_init__(self):
        if not self.num_steps and not self.num_epochs:
            raise UserError("train.num_steps and train.num_epochs are both 0; expected one of them to be more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTrainOptions(TrainOptions):
    """Options of training on texts and stories."""

    lazy_rows: bool = option(
        False,
        "update only the rows of embeddings and sampled output layers that a step reads, and their moments (lazy Adam)",
    )
    microbatches: int = option(1, "gradient accumulation: number of parts of a batch", at_least=1)
    choose_seed: str = option(
        "",
        "seed to predict with: the first, the lowest training loss (train), the best best_metric (valid)",
        choices=SEED_CHOICES,
    )
    start_from: str = option(
        "",
        "work directory of a trained run with equal vocabularies, whose parameters a new run starts from; empty: none",
        path=True,
    )
    source_vectors: str = option(
        "",
        "file in data_dir of word vectors (text of GloVe or word2vec), first values of source embeddings; empty: none",
        path=True,
    )
    target_vectors: str = option("", "the same file for target embeddings; empty: none", path=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenTrainOptions(TextTrainOptions):
    """Options of training models with a softmax over tokens."""

    label_smoothing: float = option(
        0.0, "probability spread evenly over the vocabulary in the targets", at_least=0, at_most=0.999
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerOptions:
    """Options of the optimizer and its learning rate schedule."""

    name: str = option("adam", "type of optimizer", choices=OPTIMIZERS)
    learning_rate: float = option(1e-3, "peak learning rate")
    schedule: str = option(
        "constant",
        "schedule of the learning rate; plateau: halve it when the validation loss stalls",
        choices=SCHEDULES,
    )
    warmup_steps: int = option(0, "number of steps over which the learning rate rises linearly")
    plateau_patience: int = option(1, "plateau: number of evaluations without a better loss before the rate is halved")
    halve_every: int = option(0, "halve the rate every this many steps; 0: never")
    halve_after: int = option(0, "halve_every: steps before the first period begins")
    clip_norm: float = option(1.0, "largest global norm of the gradient; 0: no clipping")
    clip_each: bool = option(
        False, "clip the gradient of each parameter array by its own norm, in place of the global norm"
    )
    weight_decay: float = option(0.0, "adamw: weight decay per step, multiplied by the learning rate", at_least=0)
    momentum: float = option(0.0, "sgd: momentum, the decay rate of the sum of gradients", at_least=0, at_most=0.999999)
    b1: float = option(0.9, "adam: decay rate of the mean gradient", at_least=0, at_most=0.999999)
    b2: float = option(0.999, "adam: decay rate of the mean squared gradient", at_least=0, at_most=0.999999)
    eps: float = option(1e-8, "adam: added to the root of the mean squared gradient", at_least=LEAST_EPS)

    def build(self, num_steps: int) -> optax.GradientTransformation:
        """Builds the optimizer of a run of `num_steps` updates.

        Raises:
            UserError: a number is out of range.
        """
        return make_optimizer(**dataclasses.asdict(self), num_steps=num_steps)

    def build_schedule(self, num_steps: int) -> Schedule:
        """Builds the schedule: learning rate as a function of the number of updates."""
        return make_schedule(
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            warmup_steps=self.warmup_steps,
            halve_after=self.halve_after,
            halve_every=self.halve_every,
            num_steps=num_steps,
        )
