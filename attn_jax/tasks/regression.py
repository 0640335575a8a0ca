"""Regression and classification of points, from a CSV file with named columns or generated."""

import csv
import dataclasses
import io
import math
import pathlib
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from attn_jax.errors import UserError, lookup
from attn_jax.options import option
from attn_jax.tasks.curves import NUM_CLASSES, curve, grid, spirals
from attn_jax.tasks.options import TaskOptions
from attn_jax.tasks.points import Columns, Points, PointsTask, make_task
from attn_jax.tasks.sizes import PointSizes
from attn_jax.tasks.text import read_text

NUM_POINTS = 40  # of the curve, by default
TEST_POINTS = 1000  # of the spirals
OTHERS = (";", "\t")  # separators of cells besides the comma
LARGEST_NUMBER = 1e18  # its square, and the sum of some such, has to fit in a float32


def regression(
    *,
    data_dir: str | pathlib.Path,
    train: Sequence[str],
    test: Sequence[str],
    valid_size: int,
    num_examples: int,
    inputs: Sequence[str],
    target: str,
    classification: bool,
    noise: float,
    seeds: Sequence[int] = (0,),
) -> PointsTask:
    """Predicts a column of numbers or classes from other columns.

    Args:
        data_dir: folder of the files.
        train: names of CSV files, of which the first is used; "": points are generated. See `read_points`.
        test: the same; "": valid_size points of the training file are held out.
        valid_size: points to hold out.
        num_examples: training points; 0 means all of a file, or NUM_POINTS.
        inputs: columns to predict from; (): all but the target.
        target: column to predict; "": the last one.
        classification: whether the target is a class.
        noise: of generated points: standard deviation of the target, or of the position of a point of a spiral.
        seeds: each has its own sample of points, or its own points held out of a file.

    Raises:
        UserError: something is wrong with a file, a column or a size.
    """
    names = {split: next(iter(files), "") for split, files in (("train", train), ("test", test))}
    if not (math.isfinite(noise) and noise >= 0):
        raise UserError(f"task.noise {noise}: expected a finite number >= 0")
    if names["train"]:
        path = pathlib.Path(data_dir) / names["train"]
        known, columns = read_points(path, inputs, target, classification)
        if names["test"]:
            path = pathlib.Path(data_dir) / names["test"]
            held_out, _ = read_points(path, inputs, target, classification, columns)
            if len(held_out) < 1:
                raise UserError(f"{path}: there is no row of data")
            tested = held_out.inputs[0], held_out.targets[0]
            samples = [(*_subset(known, num_examples, 0, seed), *tested) for seed in seeds]
        else:
            samples = [_subset(known, num_examples, valid_size, seed) for seed in seeds]
    elif classification:
        columns = Columns(("x1", "x2"), "arm", tuple("abc"[:NUM_CLASSES]))
        samples = [
            spirals(num_examples or NUM_POINTS, noise, np.random.default_rng((seed, 0)))
            + spirals(TEST_POINTS, noise, np.random.default_rng((seed, 1)))
            for seed in seeds
        ]
    else:
        columns = Columns(("x",), "y")
        samples = [curve(num_examples or NUM_POINTS, noise, np.random.default_rng(seed)) + grid() for seed in seeds]
    stacked = [np.stack(arrays) for arrays in zip(*samples, strict=True)]
    training, held_out = Points(*stacked[:2]), Points(*stacked[2:])
    check_training(training, columns, names["train"] or "the points")
    stats = {"training points": len(training), "test points": len(held_out)}
    return make_task(training, held_out, columns, stats, _examples(held_out, columns.separator))


def read_points(
    path: pathlib.Path,
    inputs: Sequence[str],
    target: str,
    classification: bool,
    columns: Columns | None = None,
) -> tuple[Points, Columns]:
    """Reads a CSV file whose first line names the columns. `columns` are those of the training file.

    Cells are separated by commas or, if the first line has no comma, by the separator of OTHERS that it has.

    Raises:
        UserError: no such file or column; a row with too few or too many cells; a cell that is no finite number, or
            one beyond LARGEST_NUMBER.
    """
    text = read_text(path, "a line with the names of the columns, then numbers")
    separator = find_separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        rows = [(reader.line_num, row) for row in reader if row]  # an empty line is none
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: not a row of a CSV file ({error})") from None
    if not rows:
        raise UserError(f"{path}: only empty lines; expected a line with the names of the columns, then numbers")
    (start, first), *rows = rows
    header = [name.strip() for name in first]
    if all(map(_is_number, header)):
        raise UserError(f"{path}, line {start}: only numbers; expected a first line with the names of the columns")
    if len(set(header)) != len(header) or "" in header:
        raise UserError(
            f"{path}, line {start}: expected different names of columns, got {', '.join(map(repr, header))}"
        )
    if len(header) == 1:
        raise UserError(
            f"{path}, line {start}: one column only, {header[0]!r}; expected several, with commas between them "
            "(or, without any comma, semicolons or tabs)"
        )
    if columns is not None:
        inputs, target = columns.inputs, columns.target
    where = {name: column for column, name in enumerate(header)}
    target = target or header[-1]
    lookup(where, target, f"column of {path} (task.target)")
    inputs = tuple(inputs) or tuple(name for name in header if name != target)
    for name in inputs:
        lookup(where, name, f"column of {path} (task.inputs)")
    if not inputs or target in inputs or len(set(inputs)) != len(inputs):
        raise UserError(f"task.inputs {inputs}: expected one or more columns, each once, besides the target {target!r}")
    numbers, labels = [], []
    for line, row in rows:
        if len(row) != len(header):
            raise UserError(f"{path}, line {line}: {len(row)} cells, but the first line names {len(header)} columns")
        read = inputs if classification else (*inputs, target)
        numbers.append([number(row[where[name]], f"{path}, line {line}, column {name!r}") for name in read])
        labels.append(row[where[target]].strip())
        if classification and not labels[-1]:
            raise UserError(f"{path}, line {line}, column {target!r}: the class is empty")
    data = np.array(numbers, np.float64).reshape(len(numbers), len(inputs) + (not classification))
    if not classification:
        found = columns or Columns(inputs, target, separator=separator)
        return Points(data[None, :, : len(inputs)], data[None, :, len(inputs) :]), found
    found = columns or Columns(inputs, target, tuple(sorted(set(labels))), separator)
    known = {name: i for i, name in enumerate(found.classes)}
    for (line, _), label in zip(rows, labels, strict=True):
        lookup(known, label, f"class in {path}, line {line}, column {target!r}:")
    places = [known[label] for label in labels]
    return Points(data[None].reshape(1, len(labels), len(inputs)), np.eye(len(known))[None, places]), found


def find_separator(text: str) -> str:
    """Separator of the cells: a comma, or one of OTHERS if the first line that is not empty has it and no comma."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return "," if "," in first else next((other for other in OTHERS if other in first), ",")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def number(text: str, where: str) -> float:
    """Parses a finite number of at most LARGEST_NUMBER; UserError, with the place in the file, for other text."""
    try:
        value = float(text)
    except ValueError:
        hint = "; write a point for the decimal comma" if re.fullmatch(r"[-+]?\d+,\d+", text.strip()) else ""
        raise UserError(f"{where}: {text.strip()!r} is not a number{hint}") from None
    if not math.isfinite(value):
        raise UserError(f"{where}: {text.strip()} is not a finite number")
    if abs(value) > LARGEST_NUMBER:
        raise UserError(
            f"{where}: {text.strip()} is too large to be squared in float32; expected a number from "
            f"{-LARGEST_NUMBER:g} to {LARGEST_NUMBER:g}, so choose another unit"
        )
    return value


def check_training(points: Points, columns: Columns, source: str) -> None:
    """Raises UserError if there are too few points, or a column has a single value."""
    if len(points) < 2:
        raise UserError(f"{source}: {len(points)} training points; expected at least 2")
    for values, names, key in ((points.inputs, columns.inputs, "task.inputs"), (points.targets, None, "task.target")):
        # [s, columns]; numbers so close together that their variance is 0 are one value, too
        spread = np.minimum(np.ptp(values, axis=1), values.std(axis=1))
        if names is None:
            if not spread.any(axis=1).all():
                raise UserError(f"{source}: the target {columns.target!r} has one value only; choose another {key}")
        elif (spread == 0).any():
            name = names[int(np.argmax((spread == 0).any(axis=0)))]
            raise UserError(f"{source}: column {name!r} has one value only; leave it out of {key}")


def _subset(points: Points, count: int, held_out: int, seed: int) -> tuple[np.ndarray, ...]:
    total = len(points)
    if not 0 <= held_out < total or count > total - held_out:
        raise UserError(
            f"task.valid_size {held_out} and task.num_examples {count}: there are {total} rows of data, of which "
            "valid_size are held out where there is no test file"
        )
    order = np.random.default_rng(seed).permutation(total) if held_out or count else np.arange(total)
    rest = order[held_out:]
    train = np.sort(rest[:count] if count else rest)
    parts = (train, np.sort(order[:held_out])) if held_out else (train,)
    return tuple(array[0, some] for some in parts for array in (points.inputs, points.targets))


def _examples(points: Points, separator: str) -> tuple[str, ...]:
    places = np.linspace(0, len(points) - 1, min(3, len(points))).astype(int)[1:2]
    return tuple(separator.join(f"{value:.6g}" for value in points.inputs[0, place]) for place in places) or ("0",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionOptions(TaskOptions):
    """Options of the task of predicting a column of numbers or classes."""

    task_class: ClassVar[type] = PointsTask
    any_sizes: ClassVar[PointSizes] = PointSizes(1, 100)

    name: str = option("regression", "name of the task")
    train: tuple = option(("", ""), "(name, ''): CSV file in data_dir; empty: generated points", each=str)
    test: tuple = option(
        ("", ""), "(name, ''): CSV file of test points; empty: valid_size points are held out", each=str
    )
    valid_size: int = option(500, "number of points held out as a test", at_least=1)
    inputs: tuple = option((), "names of the input columns; (): all but the target", each=str)
    target: str = option("", "name of the target column; empty: the last column")
    classification: bool = option(False, "treat the target as a class")
    noise: float = option(1.0, "generated points: standard deviation of the noise")

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> PointsTask:
        if isinstance(kept, PointsTask):
            return kept
        return regression(
            data_dir=data_dir,
            train=self.train,
            test=self.test,
            valid_size=self.valid_size,
            num_examples=self.num_examples,
            inputs=self.inputs,
            target=self.target,
            classification=self.classification,
            noise=self.noise,
            seeds=seeds,
        )
