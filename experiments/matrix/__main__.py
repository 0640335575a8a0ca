"""The command line of the matrix."""

import argparse
import math
import pathlib
import runpy
import time
from collections.abc import Mapping, Sequence
from typing import Any

from attn_jax.cli.allocator import keep_memory
from attn_jax.data.files import load_json, save_json
from attn_jax.errors import UserError, lookup, one_line
from attn_jax.notices import notice
from attn_jax.paths import user_path
from experiments import matrix
from experiments.matrix.cell import RATES, measure
from experiments.matrix.tables import TABLES, Table

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "results"


def folder_of(table: str) -> pathlib.Path:
    """Returns the folder of the files of the cells of a table."""
    return RESULTS / ("matrix" if table == "self" else f"matrix_{table}")


def add_table(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose a table."""
    parser.add_argument("--table", default="self", choices=TABLES, help="self-attention, or attention to a source")
    parser.add_argument("--own", type=user_path, help="a Python file with ROWS or COLUMNS to add")


def cells(table: Table, only: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Returns the cells of these rows and columns, all without any.

    Raises:
        UserError: there is no such row or column.
    """
    for name in only:
        lookup({**table.rows, **table.columns}, name, "row or column")
    rows, columns = ([name for name in names if name in only] or names for names in (table.rows, table.columns))
    return [(row, column) for row, column in table.cells if row in rows and column in columns]


def cell_of(table: Table, text: str) -> tuple[str, str]:
    """Returns the cell of a text such as "delta,recall".

    Raises:
        UserError: there is no such row, column or cell.
    """
    row, comma, column = text.partition(",")
    if not comma:
        raise UserError(f"--cell={text}: expected a row, a comma and a column, such as {','.join(table.cells[0])}")
    lookup(table.rows, row, "row")
    lookup(table.columns, column, "column")
    if (row, column) in table.absent:
        raise UserError(f"--cell={text}: {table.absent[row, column]}")
    return row, column


def table_of(name: str, own: pathlib.Path | None = None) -> Table:
    """Returns a table, with the rows and columns of a Python file, which is executed.

    Raises:
        UserError: there is no such file, or it has neither ROWS nor COLUMNS.
    """
    table = TABLES[name]
    if own is None:
        return table
    if not own.is_file():
        raise UserError(f"--own={own}: there is no such file; expected a Python file with ROWS or COLUMNS")
    try:
        names = runpy.run_path(str(own))
    except Exception as error:  # any fault in the user's own code
        raise UserError(f"--own={own}: {type(error).__name__}: {error}") from error
    if not {"ROWS", "COLUMNS"} & set(names):
        raise UserError(f"--own={own}: expected a dictionary ROWS or COLUMNS, as in experiments/matrix/tables.py")
    rows, columns = {**table.rows, **names.get("ROWS", {})}, {**table.columns, **names.get("COLUMNS", {})}
    return table._replace(rows=rows, columns=columns)


def rates(text: str) -> tuple[float, ...]:
    """Reads learning rates with commas between."""
    return tuple(float(rate) for rate in text.split(","))


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
    parser.add_argument("--rates", type=rates, default=RATES, help="learning rates to choose from, with commas between")
    parser.add_argument("--data_dir", type=user_path, help="folder of files, for columns that read some")
    add_table(parser)
    parser.add_argument("--out", type=user_path, help="folder of the files of the cells")
    given, begun = parser.parse_args(argv), time.monotonic()
    if given.rates != RATES and not given.out:
        raise UserError("--rates: expected --out=FOLDER as well; the cells of the table choose from the same rates")
    table, out = table_of(given.table, given.own), given.out or folder_of(given.table)
    only = [name for name in given.only.split(",") if name]
    todo = [cell_of(table, given.cell)] if given.cell else cells(table, only)
    if not given.data_dir and not given.cell:
        for name in {column for _, column in todo if table.columns[column].reads_files and column not in only}:
            notice(f"{'left out':<14}{name}, which needs --data_dir")
            todo = [cell for cell in todo if cell[1] != name]
    for number, cell in enumerate(todo, 1):
        path = out / f"{','.join(cell)}.json"
        if path.exists() and not given.cell:
            continue
        if time.monotonic() - begun > 60 * given.budget:
            notice(f"{'budget':<14}used up; {len(todo) - number + 1} cells are left to look at")
            return
        notice(f"{'cell':<14}{number}/{len(todo)}  {', '.join(cell)}")
        row, column = cell
        found = measure(table.rows[row], table.columns[column], data_dir=str(given.data_dir or ""), rates=given.rates)
        save_json(path, {"row": row, "column": column} | found)
        print(line(load_json(path)), flush=True)


if __name__ == "__main__":
    keep_memory()
    with one_line("matrix"):
        main()
