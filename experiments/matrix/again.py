"""How far cells are apart that were measured twice, with the same seeds and batches, and rounded otherwise.

Sums are added in another order by another processor, another number of cores or other code for the same formula.
Training amplifies that, so a second measurement of the same seeds tells how much of a cell is rounding.

python -m experiments.matrix.again --cells=FIRST --cells=SECOND --out=again.json

SECOND may be left out for the published cells, and FIRST be those of an earlier checkout (`git worktree add ../first
COMMIT`): a cell that is the same file in both was not measured again, and is left out.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn_jax.data.files import save_json
from attn_jax.errors import UserError, one_line
from attn_jax.evaluation.provenance import provenance
from attn_jax.paths import user_path
from experiments.matrix.__main__ import folder_of, table_of
from experiments.matrix.analysis import summary
from experiments.matrix.page import add_cells, read_cells

Cells = Mapping[tuple[str, str], Mapping[str, Any]]
FACTS = ("commit", "machine", "date", "rate", "tests")


def compare(first: Cells, second: Cells, baseline: str) -> dict[str, Any]:
    """Compares the cells that both measurements have, with another date.

    Returns:
        {"tests": {"column, test": what differs}, "cells": {"row,column": [first, second]}}. For n cells of s seeds with
        values x and y: `within` is sqrt(mean((x - y)^2) / 2), the standard deviation of a seed that is measured again;
        `between` that of the seeds of a cell, sqrt(mean of the variances); `ratio` the median over cells of the
        quotient of both, 1 where a seed says no more than rounding, None if no cell has a spread; `means` the mean and
        `most` the largest absolute difference of the means of a cell. Rows are listed in `learned` if another number of
        seeds has learned (all, some, none), in `rates` if another rate was chosen, and in `differs` if the difference
        to the baseline is one in one measurement alone; since p-values are corrected for a column, the row itself need
        not be measured again.
    """
    both = sorted(key for key in set(first) & set(second) if first[key]["date"] != second[key]["date"])
    columns = {column for _, column in both}
    sides = [{key: of for key, of in cells.items() if key[1] in columns} for cells in (first, second)]
    found = [{(one["column"], one["test"], one["row"]): one for one in summary(side, baseline)} for side in sides]
    tests = {}
    for column, test in dict.fromkeys(key[:2] for key in found[0]):
        rows = [row for row, of in both if of == column]
        common = [key[2] for key in found[0] if key[:2] == (column, test) and key in found[1]]
        x, y = (np.array([side[row, column]["tests"][test] for row in rows]) for side in sides)
        apart = np.abs(x.mean(1) - y.mean(1))
        within, between = ((x - y) ** 2).mean(1) / 2, (x.var(1, ddof=1) + y.var(1, ddof=1)) / 2
        spread = between > 0

        def changed(name: str, among: Sequence[str], key: tuple[str, str] = (column, test)) -> list[str]:
            return [row for row in among if len({of[*key, row].get(name) for of in found}) > 1]

        tests[f"{column}, {test}"] = {
            "cells": len(rows),
            "equal": int((np.abs(x - y).max(1) < 1e-9).sum()),
            "within": math.sqrt(within.mean()),
            "between": math.sqrt(between.mean()),
            "ratio": float(np.median(np.sqrt(within[spread] / between[spread]))) if spread.any() else None,
            "means": float(apart.mean()),
            "most": float(apart.max()),
            "row": rows[int(apart.argmax())],
            "learned": changed("learned", rows),
            "rates": [row for row in rows if len({side[row, column]["rate"] for side in sides}) > 1],
            "differs": changed("differs", common),
        }
    facts = {",".join(key): [{name: side[key][name] for name in FACTS} for side in sides] for key in both}
    return {"tests": tests, "cells": facts}


def lines(tests: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Formats the tests of a comparison as a Markdown table."""
    names = ("test", "cells", "equal", "SD of a seed measured again", "SD between seeds", "ratio", "means apart")
    names += ("at most", "another rate", "learned otherwise", "difference in one alone")
    rows = [
        f"| {name} | {one['cells']} | {one['equal']} | {one['within']:.1f} | {one['between']:.1f} "
        f"| {'none' if one['ratio'] is None else format(one['ratio'], '.2f')} "
        f"| {one['means']:.1f} | {one['most']:.1f} ({one['row']}) "
        f"| {' | '.join(', '.join(one[key]) or 'none' for key in ('rates', 'learned', 'differs'))} |"
        for name, one in tests.items()
    ]
    return [f"| {' | '.join(names)} |", "|---" + "|--:" * 6 + "|---" * 4 + "|", *rows]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.matrix.again", description=__doc__.splitlines()[0])
    add_cells(parser)
    parser.add_argument("--out", type=user_path, help="a file for the numbers, and the scores of both measurements")
    given = parser.parse_args(argv)
    folders = given.cells or []
    if len(folders) == 1:
        folders = [*folders, folder_of(given.table)]
    if len(folders) != 2:
        raise UserError(f"--cells: {len(folders)} folders; expected one or two, each with one measurement")
    table = table_of(given.table, given.own)
    found = compare(*map(read_cells, folders), table.baseline)
    if not found["cells"]:
        raise UserError(f"--cells: {folders[0]} and {folders[1]} have no cell that was measured twice")
    if given.out:
        save_json(given.out, found | provenance())
    print(*lines(found["tests"]), sep="\n")


if __name__ == "__main__":
    with one_line("matrix.again"):
        main()
