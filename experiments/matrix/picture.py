"""The picture of a table: the mean of each cell as a number on a colour, a frame where it differs from the baseline.

python -m experiments.matrix.picture --out=matrix.png
"""

import argparse
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attn_jax.errors import one_line
from attn_jax.figures.plots import save
from attn_jax.paths import user_path
from experiments.matrix.__main__ import folder_of, table_of
from experiments.matrix.analysis import summary
from experiments.matrix.page import add_cells, read_cells
from experiments.matrix.tables import Table

MISSING = "#eeeeee"
DARK = 55.0  # percent above which numbers are white


def draw(cells: Mapping[tuple[str, str], Mapping[str, Any]], table: Table) -> Figure:
    """Draws the rows that have cells, by the tests of the columns that have cells for the baseline."""
    entries = {(one["row"], one["column"], one["test"]): one for one in summary(cells, table.baseline)}
    tests = [(column, test) for column, of in table.columns.items() for test in of.tests]
    tests = [key for key in tests if (table.baseline, *key) in entries]
    rows = [row for row in table.rows if any(key[0] == row for key in entries)]
    figure = Figure(figsize=(1.6 + 0.62 * len(tests), 1.0 + 0.24 * len(rows)), layout="constrained")
    axes = figure.subplots()
    means = [[entries[(row, *key)]["mean"] if (row, *key) in entries else np.nan for key in tests] for row in rows]
    axes.imshow(means, cmap=colormaps["viridis_r"].with_extremes(bad=MISSING), vmin=0, vmax=100, aspect="auto")
    for y, row in enumerate(rows):
        for x, key in enumerate(tests):
            if (one := entries.get((row, *key))) is None:
                continue
            colour = "white" if one["mean"] > DARK else "black"
            axes.text(x, y, f"{one['mean']:.0f}", ha="center", va="center", fontsize=7, color=colour)
            if one.get("differs"):
                axes.add_patch(Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, fill=False, edgecolor="crimson", lw=1.4))
    names = [column if len(table.columns[column].tests) == 1 else f"{column}\n{test}" for column, test in tests]
    axes.set_xticks(range(len(tests)), names, fontsize=7, rotation=90)
    axes.set_yticks(range(len(rows)), [row.replace("_", " ") for row in rows], fontsize=7)
    axes.tick_params(length=0, labelbottom=False, labeltop=True)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.matrix.picture", description=__doc__.splitlines()[0])
    add_cells(parser)
    parser.add_argument("--out", type=user_path, default=pathlib.Path("matrix.png"), help="the picture to write")
    given = parser.parse_args(argv)
    save(draw(read_cells(*given.cells or [folder_of(given.table)]), table_of(given.table, given.own)), given.out)
    print(given.out)


if __name__ == "__main__":
    with one_line("matrix.picture"):
        main()
