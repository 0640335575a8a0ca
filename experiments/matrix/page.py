"""The page of a table: one HTML file without a network, to sort, filter and open.

python -m experiments.matrix.page --out=matrix.html
python -m experiments.matrix.page --cells=experiments/results/matrix --cells=my_cells --own=mine.py --out=matrix.html
"""

import argparse
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from attn_jax.data.files import load_json, write
from attn_jax.errors import UserError, one_line
from attn_jax.paths import user_path
from experiments.matrix.__main__ import add_table, folder_of, table_of
from experiments.matrix.analysis import summary
from experiments.matrix.cell import LOGGED
from experiments.matrix.tables import Table

TEMPLATE = pathlib.Path(__file__).with_name("page.html")
SHOWN = (
    "changes",
    "losses",
    "weights",
    "rates",
    "rate",
    "num_parameters",
    "minutes",
    "megabytes",
    "machine",
    "date",
    "commit",
)
MORE = 0.05  # share of parameters above softmax's from which a row is marked


def read_cells(*folders: pathlib.Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Reads the files of all cells of folders, by (row, column); the cells of later folders win.

    Raises:
        UserError: a folder has none.
    """
    cells = {}
    for folder in folders:
        found = [load_json(path) for path in sorted(folder.glob("*,*.json"))]
        if not found:
            raise UserError(f"--cells={folder}: there is no cell; measure some with python -m experiments.matrix")
        cells |= {(cell["row"], cell["column"]): cell for cell in found}
    return cells


def add_cells(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose a table and its cells."""
    parser.add_argument(
        "--cells", type=user_path, action="append", help="folder of the files of cells; may be given several times"
    )
    add_table(parser)


def data_of(cells: Mapping[tuple[str, str], Mapping[str, Any]], table: Table, flag: str = "") -> dict[str, Any]:
    """Collects what the page of a table shows; `flag` is the option of the command line that chooses the table."""
    shown = {
        ",".join(key): {name: cell[name] for name in SHOWN} | {"beside": cell.get("beside", {}), "every": LOGGED}
        for key, cell in cells.items()
    }
    for (row, column), cell in cells.items():
        base = cells.get((table.baseline, column))
        excess = cell["num_parameters"] / base["num_parameters"] - 1 if base else 0.0
        if excess > MORE:
            shown[f"{row},{column}"]["more"] = f"{100 * excess:.0f} % more than {table.baseline}"
    steps = max(cell["steps"] for cell in cells.values())
    measured = {column for _, column in cells}
    bleu = " or in BLEU" if any(table.columns[name].score_name == "BLEU" for name in measured) else ""
    return {
        "about": f"Rows are {table.about}, columns are tasks. A cell is the mean of its seeds after at most "
        f"{steps:,} steps, in percent{bleu}; the learning rate is chosen by another seed on other data. "
        f"{len(cells)} of {len(table.cells)} cells are measured. Click a cell.",
        "baseline": table.baseline,
        "flag": flag,
        "rows": [row for row in table.rows if any(name == row for name, _ in cells)],
        "columns": [
            {"name": name, "tests": list(column.tests), "score": column.score_name, "data": column.reads_files}
            for name, column in table.columns.items()
            if name in measured
        ],
        "absent": {",".join(key): why for key, why in table.absent.items()},
        "tests": summary(cells, table.baseline),
        "cells": shown,
    }


def render(data: Mapping[str, Any]) -> str:
    """Puts data into the template."""
    return TEMPLATE.read_text(encoding="utf-8").replace("DATA", json.dumps(data).replace("</", "<\\/"), 1)


def of_table(name: str, folders: Sequence[pathlib.Path] = (), own: pathlib.Path | None = None) -> str:
    """Renders the page of a table from folders of cells, without any from the published cells.

    Raises:
        UserError: there is no cell; the user's own rows and columns cannot be read.
    """
    flag = "" if name == "self" else f" --table={name}"
    return render(data_of(read_cells(*folders or [folder_of(name)]), table_of(name, own), flag))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.matrix.page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_cells(parser)
    parser.add_argument("--out", type=user_path, default=pathlib.Path("matrix.html"), help="the page to write")
    given = parser.parse_args(argv)
    write(given.out, of_table(given.table, given.cells or (), given.own).encode())
    print(given.out)


if __name__ == "__main__":
    with one_line("matrix.page"):
        main()
