"""What the cells of a table say: means with intervals, differences to the baseline, and how many seeds have learned.

Five seeds are few, and a percentage is bounded, so intervals are those of the bootstrap: the quantiles of the means of
all samples of the seeds with replacement, 5^5 for five seeds. They cannot leave the range of the values. A difference
is paired by seed. Its p-value is the paired t-test's, since the signs of five seeds alone cannot reach 0.05, and Holm's
correction (Holm 1979) is over the rows of a column.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from attn_jax.evaluation.statistics import LEVEL, Interval, holm

LEARNED = 90.0  # percent above which a seed has learned a task
MOST = 6  # seeds up to which all samples with replacement are enumerated; 6^6 = 46,656


class Difference(NamedTuple):
    """The paired difference of a row to the baseline in a test."""

    interval: Interval
    p_value: float  # corrected for the other rows of the column
    smallest: float  # the smallest difference that these seeds, with their spread, could have shown

    @property
    def is_one(self) -> bool:
        """Tells whether the difference can be told from 0: by its interval, and after the correction."""
        return (self.interval.low > 0 or self.interval.high < 0) and self.p_value < 1 - LEVEL


def bootstrap(values: Sequence[float]) -> Interval:
    """Computes the mean of a few values with its bootstrap interval.

    Raises:
        ValueError: there are more than MOST values.
    """
    if not 1 <= len(values) <= MOST:
        raise ValueError(f"{len(values)} values; expected 1 to {MOST}, whose samples can be enumerated")
    means = np.mean(list(itertools.product(values, repeat=len(values))), axis=-1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(np.mean(values)), float(low), float(high), len(values))


def learned(values: Sequence[float]) -> str:
    """Tells whether all, some or none of the seeds have learned the task."""
    count = sum(value > LEARNED for value in values)
    return "all" if count == len(values) else "some" if count else "none"


def differences(column: Mapping[str, Sequence[float]], baseline: str) -> dict[str, Difference]:
    """Compares the rows of one test with the baseline, seed by seed; the baseline itself is left out."""
    others = {row: np.subtract(values, column[baseline]) for row, values in column.items() if row != baseline}
    p_values = holm({row: p_value(apart) for row, apart in others.items()})
    return {
        row: Difference(bootstrap(apart.tolist()), p_values[row], smallest(apart, len(others)))
        for row, apart in others.items()
    }


def p_value(apart: np.ndarray) -> float:
    """Computes the two-sided p-value of the paired t-test; 1 if there is no difference at all, 0 if it is constant."""
    if np.ptp(apart) < 1e-9:
        return float(abs(np.mean(apart)) < 1e-9)
    return float(scipy.stats.ttest_1samp(apart, 0).pvalue)


def smallest(apart: np.ndarray, comparisons: int) -> float:
    """Computes the smallest mean difference with p < 0.05 after Bonferroni, Holm's first step, for this spread."""
    quantile = scipy.stats.t.ppf(1 - (1 - LEVEL) / (2 * comparisons), len(apart) - 1)
    return float(quantile * np.std(apart, ddof=1) / np.sqrt(len(apart)))


def summary(cells: Mapping[tuple[str, str], Mapping[str, Any]], baseline: str) -> list[dict[str, Any]]:
    """Summarizes cells, by (row, column): one entry for each test of each cell, as the page shows them."""
    tests: dict[tuple[str, str], dict[str, Sequence[float]]] = {}
    for (row, column), cell in cells.items():
        for test, values in cell["tests"].items():
            tests.setdefault((column, test), {})[row] = values
    found = []
    for (column, test), rows in tests.items():
        apart = differences(rows, baseline) if baseline in rows else {}
        for row, values in rows.items():
            mean = bootstrap(values)
            entry = {"row": row, "column": column, "test": test, "values": [round(x, 2) for x in values]}
            entry |= {"mean": mean.mean, "low": mean.low, "high": mean.high, "learned": learned(values)}
            if row in apart:
                of = apart[row]
                entry |= {"difference": of.interval.mean, "from": of.interval.low, "to": of.interval.high}
                entry |= {"p_value": of.p_value, "smallest": of.smallest, "differs": of.is_one}
            found.append({key: round(x, 4) if isinstance(x, float) else x for key, x in entry.items()})
    return found
