"""The command line of the matrix."""

import argparse
import math
import pathlib
import runpy
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attn_jax.data.files import load_json, save_json
from attn_jax.errors import UserError, lookup, one_line
from attn_jax.notices import notice
from attn_jax.paths import user_path
from experiments import matrix
from experiments.matrix.cell import measure
from experiments.matrix.columns import Column
from experiments.matrix.tables import COLUMNS, ROWS

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "results" / "matrix"


def cells(rows: Mapping[str, Any], columns: Mapping[str, Any], only: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yields the cells of these rows and columns, all without any; of a column with softmax first.

    Raises:
        UserError: there is no such row or column.
    """
    for name in only:
        lookup({**rows, **columns}, name, "row or column")
    of_rows = [name for name in rows if name in only] or list(rows)
    of_columns = [name for name in columns if name in only] or list(columns)
    yield from ((row, column) for column in of_columns for row in of_rows)


def tables_of(path: pathlib.Path | None) -> tuple[dict[str, Any], dict[str, Column]]:
    """Returns (rows, columns), with those of a Python file, which is executed.

    Raises:
        UserError: there is no such file, or it has neither ROWS nor COLUMNS.
    """
    if path is None:
        return ROWS, COLUMNS
    if not path.is_file():
        raise UserError(f"--own={path}: there is no such file; expected a Python file with ROWS or COLUMNS")
    own = runpy.run_path(str(path))
    if not {"ROWS", "COLUMNS"} & set(own):
        raise UserError(f"--own={path}: expected a dictionary ROWS or COLUMNS, as in experiments/matrix/tables.py")
    return ROWS | own.get("ROWS", {}), COLUMNS | own.get("COLUMNS", {})


def line(found: Mapping[str, Any]) -> str:
    """Formats a cell: the scores of its seeds in each test."""
    tests = "   ".join(f"{test} {' '.join(f'{x:.1f}' for x in of)}" for test, of in found["tests"].items())
    return f"{found['row']:<18}{found['column']:<14}rate {found['rate']:g}   {tests}   {found['minutes']} minutes"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.matrix",
        description=matrix.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cell", default="", help="ROW,COLUMN: this one alone, measured again")
    parser.add_argument("--only", default="", help="names of rows and columns, with commas between")
    parser.add_argument("--budget", type=float, default=math.inf, help="minutes after which no further cell begins")
    parser.add_argument("--data_dir", default="", help="folder of the file of a text, for the column of characters")
    parser.add_argument("--own", type=user_path, help="a Python file with ROWS or COLUMNS to add")
    parser.add_argument("--out", type=user_path, default=FOLDER, help="folder of the files of the cells")
    given, begun = parser.parse_args(argv), time.monotonic()
    rows, columns = tables_of(given.own)
    only = [name for name in given.only.split(",") if name]
    todo = [tuple(given.cell.split(","))] if given.cell else list(cells(rows, columns, only))
    if not given.data_dir and not given.cell:
        for name in {column for _, column in todo if columns[column].reads_files and column not in only}:
            notice(f"{'left out':<14}{name}, which needs --data_dir")
            todo = [cell for cell in todo if cell[1] != name]
    for number, cell in enumerate(todo, 1):
        if len(cell) != 2 or cell[0] not in rows or cell[1] not in columns:
            raise UserError(f"--cell={given.cell}: expected a row, a comma and a column, such as delta,recall")
        path = given.out / f"{','.join(cell)}.json"
        if path.exists() and not given.cell:
            continue
        if time.monotonic() - begun > 60 * given.budget:
            notice(f"{'budget':<14}used up; {len(todo) - number + 1} cells are left to look at")
            return
        notice(f"{'cell':<14}{number}/{len(todo)}  {', '.join(cell)}")
        row, column = cell
        found = measure(rows[row], columns[column], data_dir=given.data_dir)
        save_json(path, {"row": row, "column": column} | found)
        print(line(load_json(path)), flush=True)


if __name__ == "__main__":
    with one_line("matrix"):
        main()
