"""Checks of a config before the data is read; each raises a one-line UserError."""

import math
import pathlib

import jax
from ml_collections import ConfigDict

from attn_jax.attention import READINGS
from attn_jax.cli.options import Options, resolve
from attn_jax.errors import UserError, lookup
from attn_jax.evaluation.pictures import PictureEvaluator
from attn_jax.evaluation.points import PointsEvaluator
from attn_jax.evaluation.text import TEXT_METRICS, TOKEN_METRICS, TextEvaluator, check_text_metrics
from attn_jax.tasks import TASKS, PictureTask, PointsTask, Task, task_class
from attn_jax.tasks.buckets import make_buckets
from attn_jax.training.parallel import choose, group_size


def check(config: ConfigDict) -> Options:
    """Checks a config as far as possible without the data; returns its options.

    Raises:
        UserError: the config is wrong.
    """
    options = resolve(config)
    options.build_model()
    CHECKS[options.task.task_class](config)
    check_metrics(config)
    check_ensemble(options)
    check_vectors(options)
    options.optimizer.build(1)
    best_metric(config)
    if choose(config.parallel).divides_state:
        group_size(jax.device_count(), config.replicas)
    return options


def check_text(config: ConfigDict) -> None:
    """Raises a UserError for invalid buckets."""
    if config.task.buckets:
        make_buckets(config.task.buckets)


def check_points(config: ConfigDict) -> None:
    """Raises a UserError for a kernel regression on several devices."""
    if choose(config.parallel).across_devices:
        raise UserError("a kernel regression trains on one device; set --config.parallel=single")


def check_metrics(config: ConfigDict) -> None:
    """Raises a UserError if a metric of config.eval is unknown or cannot be computed."""
    evaluator = evaluator_class(config)
    for name in config.eval.metrics:
        lookup(evaluator.metrics, name, "metric")
    if task_class(config.task.name).of_pairs:
        of_texts = [name for name in config.eval.metrics if name in TextEvaluator.metrics]
        check_text_metrics(of_texts, config.eval.tokenize)
        if not TASKS[config.task.name].has_sources:
            check_without_outputs(config)


def check_without_outputs(config: ConfigDict) -> None:
    """Raises a UserError for a metric of outputs where the task has no sources."""
    for key, names in (("eval.metrics", config.eval.metrics), ("train.best_metric", (config.train.best_metric,))):
        for name in names:
            if name in TEXT_METRICS:
                raise UserError(
                    f"{key} {name} compares outputs with references, but task.name {config.task.name} has no sources "
                    f"to write outputs for; expected {', '.join(TOKEN_METRICS)}"
                )


def check_ensemble(options: Options) -> None:
    """Raises a UserError for an ensemble of one seed, of stories and other runs, or with a wrong run.

    A run is wrong that is not there, or is there twice.
    """
    runs = options.decode.runs
    if options.decode.ensemble and not runs and len(options.run.all_seeds) < 2:
        raise UserError("decode.ensemble needs a run of several seeds, such as seeds=(0,1,2); this one has one")
    if runs and options.model.reads_stories:
        raise UserError(
            f"decode.runs averages models of texts or images, token by token; model.name {options.model.name} answers "
            "questions about stories: expected decode.ensemble"
        )
    for number, path in enumerate(runs):
        if pathlib.Path(path).resolve() in [pathlib.Path(other).resolve() for other in runs[:number]]:
            raise UserError(f"decode.runs {path}: it is named twice; a run counts once")
        if not pathlib.Path(path).is_dir():
            raise UserError(f"decode.runs {path}: there is no such folder; expected the work directory of a run")


def check_vectors(options: Options) -> None:
    """Raises a UserError for word vectors that are in no file."""
    for side, name in (("source", options.train.source_vectors), ("target", options.train.target_vectors)):
        if name and not (path := pathlib.Path(options.run.data_dir) / name).is_file():
            raise UserError(f"train.{side}_vectors {name}: there is no such file as {path}")


def check_weights(config: ConfigDict) -> None:
    """Raises a UserError for a model that has no attention weights."""
    model = resolve(config).model
    if not model.has_weights:
        given = getattr(model, "decoder", "")
        which = f"model.decoder {given}" if given == "none" else f"model.name {config.model.name}"
        raise UserError(f"{which} has no attention whose weights could be shown")


def evaluator_class(config: ConfigDict) -> type[TextEvaluator] | type[PointsEvaluator]:
    """Returns the class of the evaluator for a config."""
    return EVALUATORS[task_class(config.task.name)]


def best_metric(config: ConfigDict) -> tuple[str, str]:
    """Returns (train.best_metric, "min" or "max" for the better direction).

    Raises:
        UserError: there is no such metric, or neither direction is better.
    """
    name, metrics = config.train.best_metric, evaluator_class(config).metrics
    best = lookup(metrics, name, "train.best_metric").best
    if best is None:
        known = ", ".join(other for other, metric in metrics.items() if metric.best)
        raise UserError(f"train.best_metric {name}: neither a low nor a high value is better; expected one of {known}")
    return name, best


def seeds_of(config: ConfigDict) -> tuple[int, ...]:
    """Returns config.seeds, or config.seed alone."""
    return resolve(config).run.all_seeds


def check_num_samples(config: ConfigDict, longest: int, *, cells: tuple[int, int] | None = None) -> None:
    """Checks that sampling without replacement needs no more keys than there are.

    Args:
        config: of the run.
        longest: length of the longest source; of an image, that of its question.
        cells: rows and columns of the grid of an image; None for texts.

    Raises:
        UserError: it needs more keys.
    """
    attention = config.model.get("attention", {})
    reading = READINGS.get(attention.get("read"))
    num_keys, what = (longest, "the longest source") if cells is None else (math.prod(cells), "the grid of an image")
    if reading is not None and reading.distinct and attention.num_samples > num_keys:
        raise UserError(
            f"model.attention.num_samples is {attention.num_samples}, but {reading.name} samples different keys and "
            f"{what} has {num_keys}; expected at most that many"
        )


CHECKS = {Task: check_text, PictureTask: check_text, PointsTask: check_points}
EVALUATORS = {Task: TextEvaluator, PictureTask: PictureEvaluator, PointsTask: PointsEvaluator}
