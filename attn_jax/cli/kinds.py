"""The two kinds of runs, of sentences and of points: what is known of them before there is any data."""

from typing import NamedTuple

from ml_collections import ConfigDict

from attn_jax.attention.scores.kernels import KERNELS
from attn_jax.errors import UserError, check_known, lookup
from attn_jax.evaluation.points import METRICS, PointsEvaluator
from attn_jax.evaluation.text import TEXT_METRICS, TOKEN_METRICS, DecodeOptions, Evaluator, check_metrics
from attn_jax.models.families import MODELS
from attn_jax.models.kernel_regression.criteria import CRITERIA
from attn_jax.tasks import Pairs, Task
from attn_jax.tasks.batching import Batches
from attn_jax.tasks.buckets import make_buckets
from attn_jax.tasks.data_files import load_points, load_vocabularies, save_points, save_vocabularies
from attn_jax.tasks.point_batches import PointBatches
from attn_jax.tasks.points import Points, PointsTask
from attn_jax.tasks.vocabulary import SPECIAL, VOCABULARIES
from attn_jax.training.parallel import choose
from attn_jax.types import Callable


def check_regression(config: ConfigDict) -> None:
    """UserError for whatever is wrong with the config of a regression, but for what needs the data."""
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


AnyTask = Task | PointsTask
AnySplit = Pairs | Points
AnyBatches = Batches | PointBatches
AnyEvaluator = Evaluator | PointsEvaluator


class Kind(NamedTuple):
    """What differs. The rest is the evaluator's."""

    metrics: dict[str, str]  # name -> whether "min" or "max" of it is best
    check: Callable  # (config): UserError for what can be known to be wrong
    check_metrics: Callable  # (config): the same of the names in config.eval.metrics
    save: Callable  # (workdir, task.kept): what a model reads of the data
    load: Callable  # workdir -> the same again


def check_text(config: ConfigDict) -> None:
    """UserError for whatever is wrong with the config of a model of sentences."""
    lookup(VOCABULARIES, config.task.vocabulary, "task.vocabulary")
    lookup(MODELS, config.model.name, "model.name")(config, len(SPECIAL), len(SPECIAL))
    if config.task.buckets:
        make_buckets(config.task.buckets)
    DecodeOptions(**config.decode.to_dict()).check()
    check_text_metrics(config)


def check_text_metrics(config: ConfigDict) -> None:
    """UserError for a metric that there is not."""
    check_metrics(config.eval.metrics, config.eval.tokenize)


def check_point_metrics(config: ConfigDict) -> None:
    """UserError for a metric that there is not."""
    for name in config.eval.metrics:
        lookup(METRICS, name, "metric")


LOWEST = ("loss", "perplexity", "edit_distance")
KINDS = {
    "text": Kind(
        {name: "min" if name in LOWEST else "max" for name in TEXT_METRICS | TOKEN_METRICS},
        check_text,
        check_text_metrics,
        save_vocabularies,
        load_vocabularies,
    ),
    "points": Kind(
        {name: "max" if name in ("r2", "accuracy") else "min" for name in METRICS},
        lambda config: (check_regression(config), check_point_metrics(config)),
        check_point_metrics,
        save_points,
        load_points,
    ),
}


def kind_of(config: ConfigDict) -> Kind:
    """The kind of the run of a config."""
    return KINDS["points" if config.task.name == "regression" else "text"]
