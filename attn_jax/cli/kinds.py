"""The two kinds of runs, of sentences and of points: what is known of them before there is any data."""

from typing import NamedTuple

from ml_collections import ConfigDict

from attn_jax.errors import UserError, lookup
from attn_jax.evaluation.points import METRICS, PointsEvaluator
from attn_jax.evaluation.text import TEXT_METRICS, TOKEN_METRICS, Evaluator, check_metrics
from attn_jax.tasks import Pairs, Task
from attn_jax.tasks.batching import Batches
from attn_jax.tasks.buckets import make_buckets
from attn_jax.tasks.data_files import load_points, load_vocabularies, save_points, save_vocabularies
from attn_jax.tasks.point_batches import PointBatches
from attn_jax.tasks.points import Points, PointsTask
from attn_jax.training.parallel import choose
from attn_jax.types import Callable

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
    if config.task.buckets:
        make_buckets(config.task.buckets)
    check_text_metrics(config)


def check_points(config: ConfigDict) -> None:
    """UserError for whatever is wrong with the config of a regression."""
    if choose(config.parallel) != "single":
        raise UserError("a kernel regression trains on one device; set --config.parallel=single")
    check_point_metrics(config)


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
        check_points,
        check_point_metrics,
        save_points,
        load_points,
    ),
}


def kind_of(config: ConfigDict) -> Kind:
    """The kind of the run of a config."""
    return KINDS["text" if "method" in config.decode else "points"]
