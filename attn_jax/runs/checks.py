"""Checks of a config before the data is read; each raises a one-line UserError."""

import math
import pathlib

import jax

from attn_jax.errors import UserError, lookup
from attn_jax.runs.options import RunOptions
from attn_jax.training.loggers import LOGGERS
from attn_jax.training.options import StartOptions
from attn_jax.training.parallel import group_size


def check(options: RunOptions) -> None:
    """Checks the options of a run that can be checked without the data.

    Raises:
        UserError: an option is wrong.
    """
    options.build_model()
    check_metrics(options)
    options.kind.check(options)
    check_ensemble(options)
    check_vectors(options)
    for name in options.train.log_to:
        lookup(LOGGERS, name, "train.log_to")
    options.optimizer.build(1)
    best_metric(options)
    if options.parallel.strategy.divides_state:
        group_size(jax.device_count(), options.parallel.replicas)


def check_metrics(options: RunOptions) -> None:
    """Raises a UserError if a metric of eval.metrics is unknown."""
    for name in options.eval.metrics:
        lookup(options.kind.metrics, name, "metric")


def check_ensemble(options: RunOptions) -> None:
    """Raises a UserError for an ensemble of one seed, or for a run that is named twice or does not exist."""
    ensemble = options.decode.ensemble
    runs = ensemble.workdirs
    if ensemble.every_seed and not runs and len(options.all_seeds) < 2:
        raise UserError("decode.ensemble seeds needs a run of several seeds, such as seeds=(0,1,2); this one has one")
    for number, path in enumerate(runs):
        if pathlib.Path(path).resolve() in [pathlib.Path(other).resolve() for other in runs[:number]]:
            raise UserError(f"decode.ensemble.workdirs {path}: it is named twice; a run counts once")
        if not pathlib.Path(path).is_dir():
            raise UserError(
                f"decode.ensemble.workdirs {path}: there is no such folder; expected the work directory of a run"
            )


def check_vectors(options: RunOptions) -> None:
    """Raises a UserError if a file of word vectors does not exist."""
    for side, name in start_of(options).vectors.items():
        if not (path := pathlib.Path(options.data_dir) / name).is_file():
            raise UserError(f"train.start.{side} {name}: there is no such file as {path}")


def start_of(options: RunOptions) -> StartOptions:
    """Returns the options of the initial parameters; the defaults for a regression, which has none."""
    return options.train.start or StartOptions()


def check_weights(options: RunOptions) -> None:
    """Raises a UserError for a model that has no attention weights."""
    model = options.model
    if not model.has_weights:
        raise UserError(f"{model.label} has no attention whose weights could be shown")


def best_metric(options: RunOptions) -> tuple[str, str]:
    """Returns (train.best_metric, "min" or "max" for the better direction).

    Raises:
        UserError: there is no such metric, or neither direction is better.
    """
    name, metrics = options.train.best_metric, options.kind.metrics
    best = lookup(metrics, name, "train.best_metric").best
    if best is None:
        known = ", ".join(other for other, metric in metrics.items() if metric.best)
        raise UserError(f"train.best_metric {name}: neither a low nor a high value is better; expected one of {known}")
    return name, best


def check_num_samples(options: RunOptions, longest: int, *, cells: tuple[int, int] | None = None) -> None:
    """Checks that sampling without replacement has enough keys.

    Args:
        options: options of the run.
        longest: length of the longest source; for images, of the longest question.
        cells: rows and columns of the grid of an image; None for texts.

    Raises:
        UserError: there are fewer keys than samples.
    """
    num_keys, what = (longest, "the longest source") if cells is None else (math.prod(cells), "the grid of an image")
    reading = options.model.reading
    if reading is not None and reading.num_keys > num_keys:
        raise UserError(
            f"model.objective.reading.num_samples is {reading.num_keys}, but {reading.name} samples different keys and "
            f"{what} has {num_keys}; expected at most that many"
        )
