"""The two kinds of runs, of sentences and of points: what is known of them before there is any data."""

from typing import NamedTuple

from ml_collections import ConfigDict

from attn_jax.build import MODELS
from attn_jax.build_regression import check_regression
from attn_jax.data_files import load_points, load_vocabularies, save_points, save_vocabularies
from attn_jax.errors import lookup
from attn_jax.evaluation import TEXT_METRICS, TOKEN_METRICS, DecodeOptions, Evaluator, check_metrics
from attn_jax.regression import METRICS, PointBatches, PointsEvaluator
from attn_jax.tasks import Pairs, PointsTask, Task
from attn_jax.tasks.batching import Batches
from attn_jax.tasks.buckets import make_buckets
from attn_jax.tasks.regression import Points
from attn_jax.tasks.vocabulary import SPECIAL, VOCABULARIES
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
