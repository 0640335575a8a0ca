"""Options of training."""

import dataclasses

import optax

from attn_jax.errors import UserError
from attn_jax.options import option
from attn_jax.training.optimizers import OPTIMIZERS, SCHEDULES, Schedule, make_optimizer, make_schedule

SEED_CHOICES = ("", "train", "valid")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of a training run."""

    num_steps: int = option(0, "optimizer steps; 0: num_epochs decides", at_least=0)
    num_epochs: float = option(20.0, "passes over the training examples", at_least=0)
    log_every: int = option(50, "steps", at_least=1, affects="nothing")
    eval_every: int = option(0, "steps; 0: once an epoch", at_least=0)
    checkpoint_every: int = option(0, "steps; 0: at every evaluation", at_least=0)
    keep: int = option(2, "newest checkpoints that are kept, besides the best one", at_least=1, affects="nothing")
    best_metric: str = option("loss", "metric of the validation split by which a checkpoint is the best")
    patience: int = option(0, "stop after this many evaluations without a better best_metric; 0: never", at_least=0)
    goal: float = option(0.0, "stop where best_metric of every seed is as good as this; 0: never")
    average: int = option(
        0, "measure the mean of the parameters of the last N checkpoints; 0: the best one", at_least=0
    )

    def __post_init__(self):
        if not self.num_steps and not self.num_epochs:
            raise UserError("train.num_steps and train.num_epochs are both 0; expected one of them to be more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTrainOptions(TrainOptions):
    """Options of training on texts or stories."""

    microbatches: int = option(1, "gradient accumulation: parts that a batch is worked off in", at_least=1)
    choose_seed: str = option(
        "",
        "the seed to predict with: the first, that of lowest training loss, of best best_metric",
        choices=SEED_CHOICES,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenTrainOptions(TextTrainOptions):
    """Options of training a model with a softmax over tokens."""

    label_smoothing: float = option(0.0, "share of the probability that is spread evenly", at_least=0, at_most=0.999)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerOptions:
    """Options of the optimizer and its learning rate."""

    name: str = option("adam", "the optimizer", choices=OPTIMIZERS)
    learning_rate: float = option(1e-3, "its largest value")
    schedule: str = option("constant", "of the learning rate; plateau: halve", choices=SCHEDULES)
    warmup_steps: int = option(0, "steps in which the learning rate rises")
    plateau_patience: int = option(1, "plateau: evaluations without a better loss before the rate is halved")
    halve_every: int = option(0, "steps after which the rate is halved, again and again; 0: never")
    halve_after: int = option(0, "steps before the first of these periods begins")
    clip_norm: float = option(1.0, "largest global norm of the gradient; 0: no clipping")
    clip_each: bool = option(False, "clip each parameter array by its own norm, not all by theirs together")
    weight_decay: float = option(0.0, "adamw: share of a parameter that is subtracted, times the learning rate")
    momentum: float = option(0.0, "sgd: decay of the sum of gradients")
    b1: float = option(0.9, "adam: decay of the mean gradient", at_least=0, at_most=0.999999)
    b2: float = option(0.999, "adam: decay of the mean squared gradient", at_least=0, at_most=0.999999)
    eps: float = option(1e-8, "adam: added to the root of the mean squared gradient", at_least=0)

    def build(self, num_steps: int) -> optax.GradientTransformation:
        """Builds the optimizer of a run of `num_steps` updates.

        Raises:
            UserError: a number makes no sense.
        """
        return make_optimizer(**dataclasses.asdict(self), num_steps=num_steps)

    def build_schedule(self, num_steps: int) -> Schedule:
        """Builds the learning rate as a function of the update."""
        return make_schedule(**dataclasses.asdict(self), num_steps=num_steps)
