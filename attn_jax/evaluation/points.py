"""Measuring and using a kernel regression: predictions of points, their error, and pictures of both."""

import math
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attn_jax.errors import UserError, lookup
from attn_jax.evaluation import point_plots
from attn_jax.evaluation.metrics import summarize
from attn_jax.evaluation.text import chunks, save_weights
from attn_jax.models.kernel_regression.model import KernelRegression
from attn_jax.tasks.point_batches import PointBatches
from attn_jax.tasks.points import Points, PointsTask, number, read_points
from attn_jax.tasks.task import Pairs
from attn_jax.training.progress import notice
from attn_jax.types import Float, Params

LARGEST = 4096  # training points of which all pairs may be compared at once


def r2(predictions: Float[np.ndarray, "n v"], targets: Float[np.ndarray, "n v"]) -> float:
    """1 - the squared error / that of the targets' mean; nan where all targets are equal."""
    total = np.sum((targets - targets.mean(axis=0)) ** 2)
    return float(1 - np.sum((predictions - targets) ** 2) / total) if total else math.nan


METRICS = {  # name -> (predictions [n, v], targets [n, v]) -> value; classes have probabilities and one-hot targets
    "loss": lambda p, t: float(np.mean(np.sum((p - t) ** 2, axis=-1))),
    "mse": lambda p, t: float(np.mean(np.sum((p - t) ** 2, axis=-1))),
    "rmse": lambda p, t: float(np.sqrt(np.mean(np.sum((p - t) ** 2, axis=-1)))),
    "mae": lambda p, t: float(np.mean(np.sum(np.abs(p - t), axis=-1))),
    "r2": r2,
    "accuracy": lambda p, t: 100 * float(np.mean(p.argmax(axis=-1) == t.argmax(axis=-1))),
}


class PointsEvaluator:
    """A kernel regression with its training points: what a run asks of it, as attn_jax.evaluation.text.Evaluator.

    The model sees the inputs centred and, unless its width is given, divided by their standard deviations; the targets
    centred, so that where no training point is in reach the prediction is their mean.
    """

    unit = "points"
    loss_unit = ""  # training sees standardized targets

    def __init__(self, model: KernelRegression, task: PointsTask, batch_size: int = 256, with_scores: bool = False):
        self.model, self.columns, self.train = model, task.columns, task.splits["train"]
        self.batch_size, self.with_scores, self.unreached = batch_size, with_scores, 0
        inputs, targets = self.train.inputs, self.train.targets
        self.center, self.target_center = inputs.mean(axis=1), targets.mean(axis=1)  # [s, d], [s, v]
        self.scale = np.ones_like(self.center) if model.fixed else inputs.std(axis=1)
        self.target_scale = np.ones_like(self.target_center) if self.columns.classes else targets.std(axis=1)
        scaled = (targets - self.target_center[:, None]) / self.target_scale[:, None]
        self.memory = {
            "inputs": ((inputs - self.center[:, None]) / self.scale[:, None]).astype(np.float32),
            "targets": scaled.astype(np.float32),
        }
        self._mixture = jax.jit(model.mixture_weights)
        self._predict = jax.jit(model.predict)
        self._weights = jax.jit(model.weights)
        self._density = jax.jit(model.log_density)

    @property
    def example(self) -> dict[str, np.ndarray]:
        """What the parameters' shapes depend on."""
        return {"inputs": self.memory["inputs"][0, :1]}

    def batches(self, points: Points, task: ConfigDict, seeds: tuple[int, ...], devices: int) -> PointBatches:
        """Training batches; UserError where all pairs of points have to be compared at once and there are too many."""
        batches = PointBatches(self.memory, task.batch_size, seeds)
        if self.model.all_points:
            several = len(self.model.components) > 1
            what = f"a mixture of {len(self.model.components)}" if several else "model.criterion aicc"
            if batches.num_pairs > LARGEST:
                raise UserError(
                    f"{what} compares all pairs of training points at once, and takes at most {LARGEST}; there are "
                    f"{batches.num_pairs}: set model.degrees=(1,), model.num_widths=1, model.criterion=leave_one_out"
                )
            if batches.rows < batches.num_pairs:
                raise UserError(
                    f"{what} asks about all training points in each step; set task.batch_size to at least "
                    f"{batches.num_pairs}"
                )
        return batches

    def predictions(
        self, params: Params, inputs: Float[np.ndarray, "n d"], seed: int = 0, left_out: bool = False
    ) -> tuple[Float[np.ndarray, "n v"], np.ndarray]:
        """(predictions in the targets' units, or probabilities of the classes; whether a training point is in reach).

        `seed` is the place of the draw to read. With `left_out` the inputs are the training points, in their order.

        Raises:
            UserError: a prediction is not finite.
        """
        memory = self._memory_of(seed)
        mixture = self._mixture(params, **memory)
        results = []
        for rows, query in self._batched(inputs, seed):
            index = (
                jnp.asarray(np.arange(len(query)) + sum(len(r[0]) for r in results), jnp.int32) if left_out else None
            )
            found, reach = jax.device_get(self._predict(params, query, **memory, mixture=mixture, exclude=index))
            results.append((found[:rows], reach[:rows]))
        found, reach = (np.concatenate(parts) for parts in zip(*results, strict=True))
        self._check_finite(found, inputs)
        found = self.target_center[seed] + self.target_scale[seed] * found.astype(np.float64)
        if self.columns.classes:  # a local polynomial may leave [0, 1]
            found = np.clip(found, 0, 1)
            found /= np.maximum(found.sum(axis=-1, keepdims=True), 1e-12)
        return found, reach

    def smoother(self, params: Params, inputs: Float[np.ndarray, "n d"], seed: int = 0) -> Float[np.ndarray, "n k"]:
        """The attention weights: what each training point counts in each prediction."""
        memory = self._memory_of(seed)
        mixture = self._mixture(params, **memory)
        batches = self._batched(inputs, seed)
        weights = [np.asarray(self._weights(params, query, memory["inputs"], mixture))[:n] for n, query in batches]
        return np.concatenate(weights)

    def measure(self, params_of_seeds: Sequence[Params], points: Points, names: Sequence[str], tokenize: str):
        """({metric: {"mean", "std", "seeds"}}, {}) of these points, each seed reading its own training points.

        Of points with equal targets r2 is not defined: nan, and a notice.

        Raises:
            UserError: a prediction is not finite.
        """
        names = list(dict.fromkeys(["loss", *names]))
        values: dict[str, list[float]] = {name: [] for name in names}
        unreached = 0
        for seed, params in enumerate(params_of_seeds):
            draw = seed if len(points.inputs) > 1 else 0
            found, reach = self.predictions(params, points.inputs[draw], seed, points.left_out)
            unreached += int(np.sum(~reach))
            for name in names:
                values[name].append(lookup(METRICS, name, "metric")(found, points.targets[draw]))
        self._report(unreached, len(params_of_seeds) * len(points))
        for name, found in values.items():
            if not np.isfinite(found).all():
                notice(f"{'metrics':<14}{name} is not defined here: all {len(points):,} targets are equal")
        return {name: summarize(list_) for name, list_ in values.items()}, {}

    def read(self, source: str, target: str) -> Points:
        """The points of a CSV file with the columns of the training."""
        if target or not source:
            raise UserError(
                "--mode=eval of a regression takes --source=FILE.csv, with the target as one of its columns"
            )
        columns = self.columns
        points, _ = read_points(pathlib.Path(source), (), "", bool(columns.classes), columns)
        if len(points) < 1:
            raise UserError(f"{source}: there is no row of data")
        return points

    def predict(self, params: Params, lines: Iterable[str], at_once: int) -> Iterator[tuple[list[str], list[str]]]:
        """For so many lines "number,number" at once: (the lines, the predictions to print); an empty one stays empty.

        Between the numbers stands what separates the cells of the training file.

        A first line that names columns chooses them, and has no prediction. A class is printed by its name. Before
        each, decode.with_scores puts log p(inputs) by Parzen windows and a tab: how much the training knows of there.
        """
        places: list[int] | None = None
        first, count = True, 0
        for texts in chunks(lines, at_once):
            rows, filled = [], []
            for text in texts:
                count += 1
                cells = text.split(self.columns.separator)
                if first and text.strip() and {cell.strip() for cell in cells} >= set(self.columns.inputs):
                    header = [cell.strip() for cell in cells]
                    places, first = [header.index(name) for name in self.columns.inputs], False
                    continue
                first = first and not text.strip()
                filled.append(bool(text.strip()))
                if filled[-1]:
                    rows.append(self._numbers(cells, places, f"line {count}"))
            printed = iter(self._printed(params, np.array(rows))) if rows else iter(())
            yield texts, [next(printed) if full else "" for full in filled]

    def report(self, texts: list[str]) -> None:
        """A notice if some predictions had no training point in reach."""
        self._report(self.unreached, len(texts))

    def sources(self, lines: Iterable[str]) -> list[str]:
        """What there is to draw in lines of input: those that are not empty."""
        return [line for line in lines if line.strip()]

    def draw(self, params: Params, pairs: Pairs, paths: Sequence[pathlib.Path]) -> None:
        """A picture for each line of numbers: the training points by their weight in its prediction.

        Beside it the same as numbers: "weights" has one for each of the training points in "source".
        """
        lines = [text.split(self.columns.separator) for text in pairs.source]
        rows = [self._numbers(cells, None, f"line {i}") for i, cells in enumerate(lines, 1)]
        inputs = np.array(rows)
        predictions, reach = self.predictions(params, inputs)
        self.unreached += int(np.sum(~reach))
        names, shown = self.columns.inputs, self._shown()
        points = [
            {**dict(zip(names, place, strict=True)), self.columns.target: self._target(target)}
            for place, target in zip(shown.inputs.tolist(), shown.targets, strict=True)
        ]
        for query, weights, prediction, path in zip(
            inputs, self.smoother(params, inputs), predictions, paths, strict=True
        ):
            point_plots.query(shown, query, weights, self._text(prediction), path)
            asked = {"query": dict(zip(names, query.tolist(), strict=True)), "prediction": self._target(prediction)}
            save_weights(path, weights, **asked, source=points)

    def overview(
        self, params: Params, task: PointsTask, points: Points, workdir: pathlib.Path, count: int
    ) -> list[pathlib.Path]:
        """The fit and its attention weights: over the range of the only input, or at the first test points."""
        shown = self._shown()
        if shown.inputs.shape[1] == 1:
            low, high = shown.inputs.min(), shown.inputs.max()
            places = np.linspace(low, high, 101)[:, None]
        else:
            places = points.inputs[0][:100]
        predictions, _ = self.predictions(params, places)
        paths = [workdir / "attention" / f"{name}.png" for name in ("fit", "weights")]
        held_out = points.inputs[0], points.targets[0]
        point_plots.fit(shown, places, predictions, held_out, self.predictions(params, held_out[0])[0], paths[0])
        if len(shown.inputs) > LARGEST:
            return paths[:1]
        point_plots.weights(shown, places, self.smoother(params, places), paths[1])
        return paths

    def _shown(self) -> point_plots.Shown:
        return point_plots.Shown(self.columns, self.train.inputs[0], self.train.targets[0])

    def _memory_of(self, seed: int) -> dict[str, Any]:
        return {name: jnp.asarray(x[seed]) for name, x in self.memory.items()}

    def _batched(self, inputs: Float[np.ndarray, "n d"], seed: int) -> Iterator[tuple[int, Any]]:
        """(how many are real, standardized queries): all batches have the same shape."""
        size = self.batch_size
        for start in range(0, len(inputs), size):
            some = (inputs[start : start + size] - self.center[seed]) / self.scale[seed]
            padded = np.pad(some, ((0, size - len(some)), (0, 0)), mode="edge")
            yield len(some), jnp.asarray(padded, jnp.float32)

    def _numbers(self, cells: list[str], places: list[int] | None, where: str) -> list[float]:
        names = self.columns.inputs
        chosen = range(len(names)) if places is None else places
        if len(cells) <= max(chosen) or (places is None and len(cells) != len(names)):
            raise UserError(f"input, {where}: {len(cells)} cells; expected {self.columns.separator.join(names)}")
        return [number(cells[j], f"input, {where}, column {name!r}") for name, j in zip(names, chosen, strict=True)]

    def _printed(self, params: Params, inputs: Float[np.ndarray, "n d"]) -> list[str]:
        predictions, reach = self.predictions(params, inputs)
        self.unreached += int(np.sum(~reach))
        texts = [self._text(row) for row in predictions]
        if not self.with_scores:
            return texts
        units = np.sum(np.log(self.scale[0]))
        memory = self._memory_of(0)["inputs"]
        density = [np.asarray(self._density(params, query, memory))[:n] for n, query in self._batched(inputs, 0)]
        return [f"{value - units:.4f}\t{text}" for value, text in zip(np.concatenate(density), texts, strict=True)]

    def _target(self, values: Float[np.ndarray, " v"]) -> str | float:
        """A class by its name, or a number."""
        return self._text(values) if self.columns.classes else float(values[0])

    def _text(self, prediction: Float[np.ndarray, " v"]) -> str:
        classes = self.columns.classes
        return classes[int(np.argmax(prediction))] if classes else f"{prediction[0]:.6g}"

    def _check_finite(self, predictions: Float[np.ndarray, "n v"], inputs: Float[np.ndarray, "n d"]) -> None:
        """UserError that names the first inputs whose prediction is not finite."""
        wrong = np.flatnonzero(~np.isfinite(predictions).all(axis=-1))
        if len(wrong):
            at = ", ".join(f"{n} {value:.6g}" for n, value in zip(self.columns.inputs, inputs[wrong[0]], strict=True))
            raise UserError(
                f"the prediction at {at} is not a finite number: it is too far from the training points for float32, "
                "or the training went wrong"
            )

    def _report(self, unreached: int, total: int) -> None:
        if unreached:
            notice(
                f"{'reach':<14}{unreached:,} of {total:,} points have no training point within reach of the kernel; "
                "they get the mean of all"
            )
