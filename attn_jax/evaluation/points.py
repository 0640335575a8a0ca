"""Evaluation of kernel regressions: errors of predicted points."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from attn_jax.errors import lookup
from attn_jax.evaluation.base import PERCENT, Metric, Results
from attn_jax.evaluation.metrics import summarize
from attn_jax.evaluation.regressor import Regressor
from attn_jax.notices import notice
from attn_jax.tasks.points.points import Points
from attn_jax.types import Float, Params


def mean_squared(predictions: Float[np.ndarray, "n v"], targets: Float[np.ndarray, "n v"]) -> float:
    """Returns the mean of |prediction - target|^2."""
    return float(np.mean(np.sum((predictions - targets) ** 2, axis=-1)))


def r2(predictions: Float[np.ndarray, "n v"], targets: Float[np.ndarray, "n v"]) -> float:
    """Returns 1 - squared error / squared error of the mean target; nan if all targets are equal."""
    differ = np.ptp(targets, axis=0).any()  # not target != mean: the mean of equal targets may be rounded
    total = np.sum((targets - targets.mean(axis=0)) ** 2) if differ else 0.0
    return float(1 - np.sum((predictions - targets) ** 2) / total) if total else math.nan


POINT_METRICS = {  # compute(predictions [n, v], targets [n, v]); for classes, probabilities and one-hot targets
    "loss": Metric(mean_squared, "min"),
    "mse": Metric(mean_squared, "min"),
    "rmse": Metric(lambda p, t: float(np.sqrt(np.mean(np.sum((p - t) ** 2, axis=-1)))), "min"),
    "mae": Metric(lambda p, t: float(np.mean(np.sum(np.abs(p - t), axis=-1))), "min"),
    "r2": Metric(r2, "max", within=(-math.inf, 1.0)),
    "accuracy": Metric(
        lambda p, t: 100 * float(np.mean(p.argmax(axis=-1) == t.argmax(axis=-1))), "max", within=PERCENT
    ),
}


class PointsEvaluator:
    """Measures a kernel regression, see attn_jax.evaluation.base.Evaluator.

    Each seed reads its own training points. Errors are in the units of the targets, accuracy is in percent.
    """

    metrics: ClassVar = POINT_METRICS
    unit: ClassVar = "points"
    loss_unit: ClassVar = ""  # training sees standardized targets

    def __init__(self, regressor: Regressor):
        self.regressor = regressor

    def measure(
        self, params_of_seeds: Sequence[Params], split: Points, names: Sequence[str], each: bool = False
    ) -> Results:
        """Computes the loss and the metrics `names` of n points, for each seed.

        Gives notices of undefined metrics, and of points without a training point within reach.
        """
        names = list(dict.fromkeys(["loss", *names]))
        values: dict[str, list[float]] = {name: [] for name in names}
        unreached = 0
        for seed, params in enumerate(params_of_seeds):
            index = seed if len(split.inputs) > 1 else 0
            found, reach = self.regressor.predict(params, split.inputs[index], seed=seed, left_out=split.left_out)
            unreached += int(np.sum(~reach))
            for name in names:
                values[name].append(lookup(POINT_METRICS, name, "metric").compute(found, split.targets[index]))
        report_unreached(unreached, len(params_of_seeds) * len(split))
        for name, found in values.items():
            if not np.isfinite(found).all():
                notice(f"{'metrics':<14}{name} is not defined here: all {len(split):,} targets are equal")
        return Results({name: summarize(list_) for name, list_ in values.items()}, {})


def report_unreached(count: int, total: int) -> None:
    """Gives a notice if `count` of `total` points have no training point within reach of the kernel."""
    if count:
        notice(
            f"{'reach':<14}{count:,} of {total:,} points have no training point within reach of the kernel; "
            "they get the mean of all"
        )
