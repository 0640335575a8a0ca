"""Regression and classification of points, from a CSV file with named columns or generated."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from attn_jax.data.tables import Table, digits_of, number, place_of, read_table
from attn_jax.errors import UserError, lookup
from attn_jax.parts import option
from attn_jax.tasks.options import TaskOptions, first_names
from attn_jax.tasks.points.curves import NUM_CLASSES, curve, grid, spirals
from attn_jax.tasks.points.points import Columns, Points, PointsTask, make_task

NUM_POINTS = 40  # default number of points of the curve
TEST_POINTS = 1000  # number of test points of the spirals


def read_points(
    path: pathlib.Path,
    inputs: Sequence[str],
    target: str,
    classification: bool,
    columns: Columns | None = None,
) -> tuple[Points, Columns]:
    """Reads the points of a CSV file, see read_table. `columns` are those of the training file; None: chosen here.

    Raises:
        UserError: as in read_table; a column is missing; a cell is not a number (see attn_jax.data.tables.number) or
            not a known class.
    """
    table = read_table(path)
    if columns is None:
        inputs, target = choose_columns(table, inputs, target)
        labels = sorted({label for _, label in labels_of(table, target)}) if classification else ()
        columns = Columns(inputs, target, tuple(labels), table.separator)
    else:
        choose_columns(table, columns.inputs, columns.target)
    x = numbers_of(table, columns.inputs)
    if not classification:
        return Points(x[None], numbers_of(table, [columns.target])[None]), columns
    known = {name: i for i, name in enumerate(columns.classes)}
    places = [
        lookup(known, label, f"class in {path}, line {line}, column {columns.target!r}:")
        for line, label in labels_of(table, columns.target)
    ]
    return Points(x[None], np.eye(len(known))[None, places]), columns


def choose_columns(table: Table, inputs: Sequence[str], target: str) -> tuple[tuple[str, ...], str]:
    """Returns the input columns, by default all but the target, and the target column, by default the last.

    The other columns may have any names.

    Raises:
        UserError: a column is missing, has no name, or shares its name with another one; the inputs contain the target,
            or an input twice.
    """
    names, path = table.names, table.path
    if not target and not names[-1]:
        raise UserError(f"{path}: the last column has no name; name it, or choose the target with task.target")
    if not inputs and "" in names:
        place = names.index("") + 1
        raise UserError(f"{path}: column {place} has no name; name it, or choose columns with task.inputs")
    target, named = target or names[-1], dict.fromkeys(filter(None, names))
    lookup(named, target, f"column of {path} (task.target)")
    place_of(names, target, str(path))
    inputs = tuple(inputs) or tuple(name for name in named if name != target)
    for name in inputs:
        lookup(named, name, f"column of {path} (task.inputs)")
        place_of(names, name, str(path))
    if not inputs or target in inputs or len(set(inputs)) != len(inputs):
        raise UserError(f"task.inputs {inputs}: expected one or more columns, each once, besides the target {target!r}")
    return inputs, target


def numbers_of(table: Table, names: Sequence[str]) -> Float[np.ndarray, "n d"]:
    """Returns the numbers in some columns; raises a UserError if a cell is not a number."""
    places = [(table.names.index(name), name) for name in names]
    numbers = [
        [number(cells[place], f"{table.path}, line {line}, column {name!r}") for place, name in places]
        for line, cells in table.rows
    ]
    return np.array(numbers, np.float64).reshape(len(numbers), len(places))


def labels_of(table: Table, name: str) -> list[tuple[int, str]]:
    """Returns (line number, class) for each row of a column; raises a UserError for an empty cell."""
    place = table.names.index(name)
    found = [(line, cells[place].strip()) for line, cells in table.rows]
    for line, label in found:
        if not label:
            raise UserError(f"{table.path}, line {line}, column {name!r}: the class is empty")
    return found


def check_training(points: Points, columns: Columns, source: str) -> None:
    """Raises a UserError if there are too few points, or a column has only one value."""
    if len(points) < 2:
        raise UserError(f"{source}: {len(points)} training points; expected at least 2")
    for values, names, key in ((points.inputs, columns.inputs, "task.inputs"), (points.targets, None, "task.target")):
        # [s, columns]; numbers whose variance underflows to 0 count as one value
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
    digits = [digits_of(column, 6) for column in points.inputs[0].T]
    rows = [zip(points.inputs[0, place], digits, strict=True) for place in places]
    return tuple(separator.join(f"{value:.{count}g}" for value, count in row) for row in rows) or ("0",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionOptions(TaskOptions):
    """Options of the task of predicting a column of numbers or classes.

    Each seed has its own sample of points, or its own points held out of a file.
    """

    data_kinds: ClassVar[tuple[str, ...]] = ("points",)
    of_pairs: ClassVar[bool] = False
    name: ClassVar[str] = "regression"

    train: tuple = option(("", ""), "(name, ''): CSV file in data_dir; empty: generated points", each=str, path=True)
    test: tuple = option(
        ("", ""), "(name, ''): CSV file of test points; empty: valid_size points are held out", each=str, path=True
    )
    valid_size: int = option(500, "number of points held out as a test", at_least=1)
    inputs: tuple = option((), "names of the input columns; (): all but the target", each=str)
    target: str = option("", "name of the target column; empty: the last column")
    classification: bool = option(False, "treat the target as a class")
    noise: float = option(1.0, "generated points: standard deviation of the noise")

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> PointsTask:
        """Makes the task, or returns the saved task of an earlier run.

        Raises:
            UserError: a file, a column or a size is wrong.
        """
        if isinstance(kept, PointsTask):
            return kept
        if not 0 <= self.noise < np.inf:
            raise UserError(f"task.noise {self.noise}: expected a finite number >= 0")
        names, folder = first_names(train=self.train, test=self.test), pathlib.Path(data_dir)
        chosen, count = (self.inputs, self.target, self.classification), self.num_examples
        if "train" in names:
            known, columns = read_points(folder / names["train"], *chosen)
            if "test" in names:
                path = folder / names["test"]
                held_out, _ = read_points(path, *chosen, columns)
                if len(held_out) < 1:
                    raise UserError(f"{path}: there is no row of data")
                tested = held_out.inputs[0], held_out.targets[0]
                samples = [(*_subset(known, count, 0, seed), *tested) for seed in seeds]
            else:
                samples = [_subset(known, count, self.valid_size, seed) for seed in seeds]
        elif self.classification:
            columns = Columns(("x1", "x2"), "arm", tuple("abc"[:NUM_CLASSES]))
            samples = [
                spirals(count or NUM_POINTS, self.noise, np.random.default_rng((seed, 0)))
                + spirals(TEST_POINTS, self.noise, np.random.default_rng((seed, 1)))
                for seed in seeds
            ]
        else:
            columns = Columns(("x",), "y")
            samples = [curve(count or NUM_POINTS, self.noise, np.random.default_rng(seed)) + grid() for seed in seeds]
        stacked = [np.stack(arrays) for arrays in zip(*samples, strict=True)]
        training, held_out = Points(*stacked[:2]), Points(*stacked[2:])
        check_training(training, columns, names.get("train", "the points"))
        stats = {"training points": len(training), "test points": len(held_out)}
        return make_task(training, held_out, columns, stats, _examples(held_out, columns.separator))
