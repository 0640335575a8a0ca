"""Whether one task stands for another: rank correlations of the columns of a table, over its rows.

Spearman's coefficient of the means of the rows in two columns, with the bootstrap over rows and p-values after Holm's
correction over all pairs. The rows are the mechanisms that the table happens to have, so the interval says how much
hangs on single rows, and nothing about other mechanisms.

python -m experiments.matrix.ranks --out=ranks.json
"""

import argparse
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from attn_jax.data.files import save_json
from attn_jax.errors import one_line
from attn_jax.evaluation.provenance import provenance
from attn_jax.evaluation.statistics import LEVEL, holm
from attn_jax.paths import user_path
from experiments.matrix.__main__ import folder_of, table_of
from experiments.matrix.page import add_cells, read_cells
from experiments.matrix.tables import Table

SAMPLES = 10_000


class Correlation(NamedTuple):
    """Spearman's coefficient of two columns over `rows` rows, with its interval and its corrected p-value."""

    coefficient: float
    low: float
    high: float
    p_value: float
    rows: int


def correlations(cells: Mapping[tuple[str, str], Mapping[str, Any]], table: Table) -> dict[str, Correlation]:
    """Computes the rank correlation of each pair of columns, by "one, other"; of a column its first test counts."""
    means: dict[str, dict[str, float]] = {}
    for (row, column), cell in cells.items():
        means.setdefault(column, {})[row] = float(np.mean(next(iter(cell["tests"].values()))))
    rng, found = np.random.default_rng(0), {}
    for one, other in itertools.combinations([name for name in table.columns if name in means], 2):
        rows = sorted(means[one].keys() & means[other].keys())
        x, y = (np.array([means[column][row] for row in rows]) for column in (one, other))
        if len(rows) < 3 or min(np.ptp(x), np.ptp(y)) == 0:  # nothing can be ordered
            continue
        test = scipy.stats.spearmanr(x, y)
        drawn = rng.integers(len(rows), size=(SAMPLES, len(rows)))
        samples = pearson(*(scipy.stats.rankdata(values[drawn], axis=-1) for values in (x, y)))
        low, high = np.nanquantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        found[f"{one}, {other}"] = Correlation(test.statistic, low, high, test.pvalue, len(rows))
    corrected = holm({pair: of.p_value for pair, of in found.items()})
    return {pair: Correlation(*map(float, of[:3]), corrected[pair], of.rows) for pair, of in found.items()}


def pearson(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Computes the correlation coefficient along the last axis, NaN where one side is constant."""
    x, y = (values - values.mean(-1, keepdims=True) for values in (x, y))
    with np.errstate(invalid="ignore"):
        return (x * y).sum(-1) / np.sqrt((x**2).sum(-1) * (y**2).sum(-1))


def lines(found: Mapping[str, Correlation]) -> list[str]:
    """Formats correlations as a Markdown table, the largest first."""
    ordered = sorted(found.items(), key=lambda pair: -pair[1].coefficient)
    rows = [
        f"| {pair} | {of.coefficient:.2f} [{of.low:.2f} to {of.high:.2f}] | {of.p_value:.3f} |" for pair, of in ordered
    ]
    return ["| columns | rank correlation | p |", "|---|--:|--:|", *rows]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.matrix.ranks", description=__doc__.splitlines()[0])
    add_cells(parser)
    parser.add_argument("--out", type=user_path, help="a file for the numbers")
    given = parser.parse_args(argv)
    found = correlations(read_cells(*given.cells or [folder_of(given.table)]), table_of(given.table, given.own))
    if given.out:
        save_json(given.out, {"pairs": {pair: of._asdict() for pair, of in found.items()}} | provenance())
    print(*lines(found), sep="\n")


if __name__ == "__main__":
    with one_line("matrix.ranks"):
        main()
