"""The folder of a sweep: a work directory for each run, and their order.

Runs of one config with different seeds have names with equal digits, see attn_jax.sweeps.jobs, and are one row of every
table.
"""

import math
import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from attn_jax.data.files import load_json, save_json
from attn_jax.errors import UserError
from attn_jax.evaluation.paired import Result, Sentences, united, united_sentences
from attn_jax.runs import results
from attn_jax.runs.results import read_result
from attn_jax.runs.sentences import FILE, read_sentences

ORDER = "sweep.json"
NUM_DIGITS = 6
NAME = re.compile(rf"(.+)-([0-9a-f]{{{NUM_DIGITS}}})(?:-seeds[\d.+]+)?")
FILES = (results.FILE, FILE)


class Row(NamedTuple):
    """The finished runs of one config, as a row of a table."""

    runs: tuple[pathlib.Path, ...]  # work directories, each with other seeds
    result: Result
    sentences: Sentences | None


def save_order(folder: pathlib.Path, names: list[str]) -> None:
    """Writes the names of the runs of a sweep, in order; the first one is the baseline."""
    save_json(folder / ORDER, {"runs": names})


def is_sweep(folder: pathlib.Path) -> bool:
    """Tells whether a folder contains work directories, and is none itself."""
    return folder.is_dir() and not (folder / "config.json").exists() and bool(_workdirs(folder))


def runs_of(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the work directories in a folder: the runs of the sweep in its order, then others sorted by name.

    Raises:
        UserError: the file of the order is damaged.
    """
    names: list = []
    if (folder / ORDER).exists():
        names = load_json(folder / ORDER).get("runs", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(f"cannot read {folder / ORDER}: expected the names of the runs in order")
    place = {name: i for i, name in enumerate(names)}
    return sorted(_workdirs(folder), key=lambda path: (place.get(path.name, math.inf), path.name))


def _workdirs(folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in folder.iterdir() if path.is_dir() and (path / "config.json").exists()]


def named_alike(name: str, other: str) -> bool:
    """Tells whether two names of runs have equal digits, so that the runs differ at most in their seeds."""
    ours, theirs = NAME.fullmatch(name), NAME.fullmatch(other)
    return bool(ours and theirs and ours[2] == theirs[2])


def row_of(run: pathlib.Path, files: Sequence[str] = FILES) -> Row:
    """Reads a run, together with the runs beside it that have its config and other seeds.

    Args:
        run: work directory.
        files: names of the files with the result and with the statistics of the sentences.

    Raises:
        UserError: a file is missing or damaged.
    """
    beside = [path for path in run.absolute().parent.glob("*") if named_alike(path.name, run.name)]
    runs = [run, *(path for path in sorted(beside) if path.name != run.name and (path / files[0]).exists())]
    rows = [_read(each, files) for each in runs]
    return _united(rows) or rows[0]


def rows_of(runs: Sequence[pathlib.Path]) -> dict[str, Row]:
    """Reads the runs that have a result; those that differ only in their seeds are one row, by its label.

    Raises:
        UserError: a file is damaged.
    """
    groups: dict[str, list[Row]] = {}
    for run in runs:
        if (run / results.FILE).exists():
            found = NAME.fullmatch(run.name)
            groups.setdefault(found[2] if found else run.name, []).append(_read(run, FILES))
    rows = []
    for group in groups.values():
        one = _united(group)
        rows += [one] if one else group
    short = [found[1] if (found := NAME.fullmatch(row.runs[0].name)) else row.runs[0].name for row in rows]
    return {name if short.count(name) == 1 else row.runs[0].name: row for name, row in zip(short, rows, strict=True)}


def _read(run: pathlib.Path, files: Sequence[str]) -> Row:
    path, result = run / files[1], read_result(run / files[0])
    return Row((run,), result, read_sentences(path, result) if path.exists() else None)


def _united(rows: Sequence[Row]) -> Row | None:
    """Joins rows; None if they cannot be one, such as ensembles or runs of equal seeds."""
    result = united([row.result for row in rows])
    runs = tuple(run for row in rows for run in row.runs)
    return Row(runs, result, united_sentences([row.sentences for row in rows])) if result else None
