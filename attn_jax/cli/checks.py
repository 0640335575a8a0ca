"""Checks of a config before the data is read; each raises a UserError of one line."""

from ml_collections import ConfigDict

from attn_jax.attention import READINGS
from attn_jax.attention.scores.kernels import KERNELS
from attn_jax.cli.overrides import check_ranges
from attn_jax.errors import UserError, check_known, lookup
from attn_jax.evaluation.decode_options import DecodeOptions
from attn_jax.evaluation.points import PointsEvaluator
from attn_jax.evaluation.text import TextEvaluator, check_text_metrics
from attn_jax.models.families import MODELS
from attn_jax.models.kernel_regression.model import CRITERIA
from attn_jax.tasks import TASKS, PointsTask, Task, task_class
from attn_jax.tasks.buckets import make_buckets
from attn_jax.tasks.vocabulary import SPECIAL, VOCABULARIES
from attn_jax.training.optimizers import make_optimizer
from attn_jax.training.parallel import choose


def check(config: ConfigDict) -> None:
    """Raises a UserError for a config that is wrong, as far as that is known without the data."""
    check_ranges(config)
    check_known(config.task.name, TASKS, "task.name")
    CHECKS[task_class(config.task.name)](config)
    check_metrics(config)
    make_optimizer(**config.optimizer.to_dict(), num_steps=1)
    best_metric(config)
    seeds_of(config)
    if config.train.choose_seed:
        check_known(config.train.choose_seed, ("train", "valid"), "train.choose_seed")
    choose(config.parallel)


def check_text(config: ConfigDict) -> None:
    """Raises a UserError for a config of a model of text that is wrong, as far as that is known without the data."""
    lookup(VOCABULARIES, config.task.vocabulary, "task.vocabulary")
    lookup(MODELS, config.model.name, "model.name")(config, len(SPECIAL), len(SPECIAL))
    if config.task.buckets:
        make_buckets(config.task.buckets)
    DecodeOptions(**config.decode.to_dict()).check()


def check_regression(config: ConfigDict) -> None:
    """Raises a UserError for a config of a regression that is wrong, as far as that is known without the data."""
    model, attention = config.model, config.model.attention
    check_known(model.name, ("kernel_regression",), "model.name for task.name regression")
    check_known(attention.score, KERNELS, "model.attention.score for model.name kernel_regression")
    check_known(model.criterion, CRITERIA, "model.criterion")
    if attention.normalize != "kernel_sum" and (attention.score, attention.normalize) != ("gaussian", "softmax"):
        raise UserError(f"model.attention.normalize {attention.normalize}: a kernel regression needs kernel_sum")
    if not model.degrees or any(not isinstance(degree, int) or not 0 <= degree <= 5 for degree in model.degrees):
        raise UserError(
            f"model.degrees {tuple(model.degrees)}: expected one or more integers of 0 to 5, such as (0, 1)"
        )
    if attention.read != "expectation" or attention.window != "global":
        raise UserError("a kernel regression reads the expectation of all points: no model.attention.read nor window")
    if attention.score == "boxcar" and not attention.width and model.num_widths == 1:
        raise UserError("model.attention.score boxcar has no gradient; set model.attention.width, or model.num_widths")
    if model.projection_size and tuple(model.degrees) != (0,):
        raise UserError("model.projection_size needs model.degrees (0,): a polynomial is one of the inputs themselves")
    if config.train.microbatches != 1:
        raise UserError("train.microbatches: the points of a regression are not worked off in parts")
    if config.train.choose_seed:
        raise UserError(
            "train.choose_seed: each seed of a regression has points of its own, so there is none to choose"
        )
    if choose(config.parallel) != "single":
        raise UserError("a kernel regression trains on one device; set --config.parallel=single")


def check_metrics(config: ConfigDict) -> None:
    """Raises a UserError for a metric of config.eval that is unknown, or cannot be computed."""
    evaluator = evaluator_class(config)
    for name in config.eval.metrics:
        lookup(evaluator.metrics, name, "metric")
    if task_class(config.task.name).of_pairs:
        check_text_metrics(config.eval.metrics, config.eval.tokenize)


def evaluator_class(config: ConfigDict) -> type[TextEvaluator] | type[PointsEvaluator]:
    """Returns the class that measures the model of a config."""
    return EVALUATORS[task_class(config.task.name)]


def best_metric(config: ConfigDict) -> tuple[str, str]:
    """Returns (train.best_metric, whether "min" or "max" of it is best).

    Raises:
        UserError: there is no such metric, or neither is better.
    """
    name, metrics = config.train.best_metric, evaluator_class(config).metrics
    best = lookup(metrics, name, "train.best_metric").best
    if best is None:
        known = ", ".join(other for other, metric in metrics.items() if metric.best)
        raise UserError(f"train.best_metric {name}: neither a low nor a high value is better; expected one of {known}")
    return name, best


def seeds_of(config: ConfigDict) -> tuple[int, ...]:
    """Returns config.seeds, or config.seed alone; a UserError if they are not different integers in range."""
    seeds = tuple(config.seeds) or (config.seed,)
    if len(set(seeds)) != len(seeds) or any(not 0 <= seed < 2**32 for seed in seeds):
        raise UserError(f"seeds {seeds}: expected different integers from 0 to {2**32 - 1}")
    return seeds


def check_num_samples(config: ConfigDict, longest: int) -> None:
    """Raises a UserError if a reading without replacement takes more samples than the longest source has keys."""
    reading = READINGS.get(config.model.attention.read)
    if reading is not None and reading.distinct and config.model.attention.num_samples > longest:
        raise UserError(
            f"model.attention.num_samples is {config.model.attention.num_samples}, but {reading.name} samples "
            f"different keys and the longest source has {longest}; expected at most that many"
        )


CHECKS = {Task: check_text, PointsTask: check_regression}
EVALUATORS = {Task: TextEvaluator, PointsTask: PointsEvaluator}
