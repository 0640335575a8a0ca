"""Prediction with kernel regressions: lines of numbers to predictions, and pictures of the fit."""

import pathlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from attn_jax.data.pairs import Pairs
from attn_jax.data.point_batches import LARGEST
from attn_jax.data.tables import cells_of, number, place_of
from attn_jax.errors import UserError
from attn_jax.evaluation.files import chunks, float32_text, save_weights
from attn_jax.evaluation.points import report_unreached
from attn_jax.evaluation.regressor import Regressor
from attn_jax.figures import point_plots
from attn_jax.tasks.points.points import Points, PointsTask
from attn_jax.tasks.points.regression import read_points
from attn_jax.types import Float, Params


class PointPredictor:
    """Predicts with a kernel regression, see attn_jax.evaluation.base.Predictor.

    Args:
        regressor: the model with its training points.
        with_scores: print log p(inputs) before each prediction.
    """

    def __init__(self, regressor: Regressor, *, with_scores: bool = False):
        self.regressor, self.columns, self.with_scores = regressor, regressor.columns, with_scores
        self.unreached = 0  # points so far without a training point within reach

    def predict(self, params: Params, lines: Iterable[str], chunk: int) -> Iterator[tuple[list[str], list[str]]]:
        """Yields (lines "number,number", predictions) for every `chunk` lines; the prediction of an empty line is "".

        A prediction is the shortest text that Python reads as the same number. A class is printed by its name.

        Lines have the separator of the training file, and cells may be in quotes, as there. If the first line has the
        names of columns, it selects the columns and has no prediction. A score is log p(inputs) by Parzen windows,
        followed by a tab: a low score means that few training points are near.
        """
        for read in chunks(self._read(lines), chunk):
            rows = [numbers for _, numbers in read if numbers]
            printed = iter(self._printed(params, np.array(rows))) if rows else iter(())
            yield [text for text, _ in read], [next(printed) if numbers else "" for _, numbers in read]

    def log_probs(self, params: Params, pairs: Pairs) -> Float[np.ndarray, " n"]:
        """Raises a ValueError: points are no pairs of texts."""
        raise ValueError("a regression predicts no text")

    def checksums(self, split: Points) -> dict[str, int]:
        """Returns the checksum of the numbers; see attn_jax.evaluation.base.Predictor."""
        return {"examples": split.checksum}

    def read_lines(self, lines: Iterable[str]) -> list[str]:
        """Reads the numbers of each line that is not empty, as "number,number"; a first line may name the columns."""
        return [self.columns.separator.join(map(repr, numbers)) for _, numbers in self._read(lines) if numbers]

    def read_pairs(self, pairs: Pairs) -> Pairs:
        """Raises a ValueError: points are no pairs of texts."""
        raise ValueError("a regression predicts no text")

    def read_files(self, source: str, target: str) -> Points:
        """Reads the points of a CSV file with the columns of the training file.

        Raises:
            UserError: two files or none are given; or as read_points.
        """
        if target or not source:
            raise UserError("a regression takes --source=FILE.csv alone, with the target as one of its columns")
        points, _ = read_points(pathlib.Path(source), (), "", bool(self.columns.classes), self.columns)
        if len(points) < 1:
            raise UserError(f"{source}: there is no row of data")
        return points

    def accept(self, pairs: Pairs, file: str) -> Pairs:
        """Raises a ValueError: points are no pairs of texts."""
        raise ValueError("a regression predicts no text")

    def report(self, sources: Sequence[str], targets: Sequence[str] = ()) -> None:
        """Gives a notice if some predictions had no training point within reach."""
        report_unreached(self.unreached, len(sources))

    def plot(self, params: Params, pairs: Pairs, paths: Sequence[pathlib.Path]) -> None:
        """Plots the weights of the training points in the prediction for each source, a line of numbers.

        The JSON file has one number in "weights" for each training point in "source".
        """
        inputs = np.array([numbers for _, numbers in self._read(pairs.source)])
        predictions, reach = self.regressor.predict(params, inputs)
        self.unreached += int(np.sum(~reach))
        names, train = self.columns.inputs, self.training_points()
        points = [
            {**dict(zip(names, row, strict=True)), self.columns.target: self._target(target)}
            for row, target in zip(train.inputs.tolist(), train.targets, strict=True)
        ]
        for query, weights, prediction, path in zip(
            inputs, self.regressor.weights(params, inputs), predictions, paths, strict=True
        ):
            point_plots.plot_query(train, query, weights, prediction, path)
            asked = {"query": dict(zip(names, query.tolist(), strict=True)), "prediction": self._target(prediction)}
            save_weights(path, weights, **asked, source=points)

    def plot_overview(
        self, params: Params, task: PointsTask, split: Points, workdir: pathlib.Path, count: int
    ) -> list[pathlib.Path]:
        """Plots the fit and its attention weights: over the range of a single input, else at the first test points."""
        train = self.training_points()
        if train.inputs.shape[1] == 1:
            low, high = train.inputs.min(), train.inputs.max()
            queries = np.linspace(low, high, 101)[:, None]
        else:
            queries = split.inputs[0][:100]
        predictions, _ = self.regressor.predict(params, queries)
        paths = [workdir / "attention" / f"{name}.png" for name in ("fit", "weights")]
        held_out = split.inputs[0], split.targets[0]
        tested, _ = self.regressor.predict(params, held_out[0])
        point_plots.plot_fit(train, queries, predictions, held_out, tested, paths[0])
        if len(train.inputs) > LARGEST:
            return paths[:1]
        point_plots.plot_weights(train, queries, self.regressor.weights(params, queries), paths[1])
        return paths

    def training_points(self) -> point_plots.TrainingPoints:
        """Returns the training points of the first seed."""
        train = self.regressor.train
        return point_plots.TrainingPoints(self.columns, train.inputs[0], train.targets[0])

    def _read(self, lines: Iterable[str]) -> Iterator[tuple[str, list[float]]]:
        """Yields (line, numbers in it, or [] for an empty line); a first line of names is skipped.

        Raises:
            UserError: a line is malformed, or nothing follows the names.
        """
        chosen: list[int] | None = None
        first, names_alone = True, False
        for count, text in enumerate(lines, 1):
            if not text.strip():
                yield text, []
                continue
            where = f"input, line {count}"
            cells = cells_of(text, self.columns.separator, where)
            names = [cell.strip() for cell in cells]
            if first and set(names) >= set(self.columns.inputs):
                chosen = [place_of(names, name, where) for name in self.columns.inputs]
                names_alone = True
            else:
                yield text, self._numbers(cells, chosen, where)
                names_alone = False
            first = False
        if names_alone:
            raise UserError("input: there is no row of data after the names of the columns")

    def _numbers(self, cells: list[str], chosen: list[int] | None, where: str) -> list[float]:
        names = self.columns.inputs
        indices = range(len(names)) if chosen is None else chosen
        if len(cells) <= max(indices) or (chosen is None and len(cells) != len(names)):
            raise UserError(f"{where}: {len(cells)} cells; expected {self.columns.separator.join(names)}")
        return [number(cells[j], f"{where}, column {name!r}") for name, j in zip(names, indices, strict=True)]

    def _printed(self, params: Params, inputs: Float[np.ndarray, "n d"]) -> list[str]:
        predictions, reach = self.regressor.predict(params, inputs)
        self.unreached += int(np.sum(~reach))
        texts = [self._text(row) for row in predictions]
        if not self.with_scores:
            return texts
        density = self.regressor.log_density(params, inputs)
        return [f"{float32_text(value)}\t{text}" for value, text in zip(density, texts, strict=True)]

    def _target(self, values: Float[np.ndarray, " v"]) -> str | float:
        """Returns the name of the class, or the number."""
        return self._text(values) if self.columns.classes else float(values[0])

    def _text(self, prediction: Float[np.ndarray, " v"]) -> str:
        classes = self.columns.classes
        return classes[int(np.argmax(prediction))] if classes else repr(float(prediction[0]))
