"""Statistics over seeds and over sentences: intervals, paired comparisons, and corrections for multiple comparisons.

Equal seeds of two configs are paired, since seed and step determine the batches of both. The sentences of a test set
are paired as well. A paired comparison uses only the differences, in which variation common to both runs cancels.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy  # scipy.stats is imported at its first use: it takes a second, and training does not need it
from jaxtyping import Float, Int

LEVEL = 0.95
NUM_EXACT = 20  # up to this number of pairs all signs (2^20) are enumerated; for more they are sampled
NUM_RESAMPLES = 9999
MOST_PAIRS = 1_000_000  # from which on a number of pairs is not told apart
EVERYWHERE = (-math.inf, math.inf)
ROUNDING = 1e-12  # relative differences up to this are rounding errors
Values = Sequence[float] | Float[np.ndarray, " n"]


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean with an interval that contains the true mean with probability `level`."""

    mean: float
    low: float
    high: float
    num: int  # number of values
    level: float = LEVEL

    @property
    def half_width(self) -> float:
        """Half of the width of the interval."""
        return (self.high - self.low) / 2


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Paired differences to a baseline, value - baseline."""

    difference: Interval
    p_value: float  # two-sided; null hypothesis: positive and negative differences are equally likely
    smallest_p_value: float  # the smallest that this number of pairs can give
    effect_size: (
        float  # mean difference / standard deviation of the differences (Cohen's d_z); inf or nan if the deviation is 0
    )

    def concludes(self, level: float = LEVEL) -> bool:
        """Tells whether there are enough pairs for any outcome to be significant."""
        return self.smallest_p_value <= 1 - level


def seeds_needed(level: float = LEVEL, comparisons: int = 1) -> int:
    """Returns the fewest pairs whose sign-flip test can be significant after Holm's adjustment for `comparisons`."""
    return next(n for n in itertools.count(2) if comparisons * 2.0 ** (1 - n) <= 1 - level)


def seeds_to_show(difference: float, deviation: float, level: float = LEVEL, power: float = 0.8) -> int:
    """Returns about how many pairs a paired t-test needs to find a true difference with this probability.

    The fewest n of at least `seeds_needed` with n >= ((t_(1+level)/2 + t_power) deviation / difference)^2, t with n - 1
    degrees of freedom; at most MOST_PAIRS.

    Raises:
        ValueError: the difference is 0, which no number of pairs can show.
    """
    if difference == 0:
        raise ValueError("a difference of 0 cannot be shown")
    share = min(abs(deviation / difference), MOST_PAIRS) ** 2

    # Quantiles of t are above those of the normal distribution, so the search begins at its number, and ends at once.
    normal = np.sum(scipy.stats.norm.ppf([(1 + level) / 2, power])) ** 2 * share
    n = max(seeds_needed(level), math.ceil(min(normal, MOST_PAIRS)))
    while n < MOST_PAIRS and n < np.sum(scipy.stats.t.ppf([(1 + level) / 2, power], n - 1)) ** 2 * share:
        n += 1
    return n


def t_interval(values: Values, level: float = LEVEL, within: tuple[float, float] = EVERYWHERE) -> Interval:
    """Computes the interval of Student's t, mean +- t s / sqrt(n), for values from a normal distribution.

    It ends where the possible means end, `within`, such as 0 and 100 of a percentage. That costs no coverage, since the
    true mean is inside.

    Raises:
        ValueError: fewer than two values.
    """
    x = _checked(values, at_least=2)
    half = float(scipy.stats.t.ppf((1 + level) / 2, len(x) - 1) * np.std(x, ddof=1) / np.sqrt(len(x)))
    low, high = np.clip(np.mean(x) + np.array([-half, half]), *within)
    return Interval(float(np.mean(x)), float(low), float(high), len(x), level)


def sign_flip_test(differences: Values, seed: int = 0) -> float:
    """Computes the two-sided p-value of the mean of paired differences under random signs (Fisher 1935).

    The p-value is the share of the 2^n sign vectors whose |mean| is at least the observed one: exact up to NUM_EXACT
    pairs, for more from NUM_RESAMPLES random sign vectors. The test assumes only symmetry around zero. The smallest
    p-value of n pairs is 2^(1 - n), so fewer than six pairs are never significant at 0.05.

    Raises:
        ValueError: there are no differences.
    """
    x = _checked(differences, at_least=1)
    n = len(x)
    # Sums of the same numbers in another order may differ by rounding.
    observed = abs(np.sum(x)) - ROUNDING * np.sum(np.abs(x))
    if n <= NUM_EXACT:
        sums = np.zeros(1)
        for value in x[1:]:  # the first sign is fixed: flipping all signs gives the same |sum|
            sums = np.concatenate([sums + value, sums - value])
        return float(np.mean(np.abs(sums + x[0]) >= observed))
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), (NUM_RESAMPLES, n))
    return float((np.sum(np.abs(signs @ x) >= observed) + 1) / (NUM_RESAMPLES + 1))


def compare(
    values: Values, baseline: Values, level: float = LEVEL, within: tuple[float, float] = EVERYWHERE
) -> Comparison:
    """Compares values with a baseline pair by pair, such as values of the same seeds; for `within` see `t_interval`.

    Raises:
        ValueError: unequal numbers, or fewer than two pairs.
    """
    x, y = _checked(values, at_least=2), _checked(baseline, at_least=2)
    if len(x) != len(y):
        raise ValueError(f"compare: expected pairs, got {len(x)} values and {len(y)} of the baseline")
    differences = x - y
    deviation = np.std(differences, ddof=1)
    if deviation <= ROUNDING * np.max(np.abs([x, y])):  # equal differences may differ by rounding
        deviation = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = float(np.mean(differences) / deviation)
    smallest = 2.0 ** (1 - len(x)) if len(x) <= NUM_EXACT else 1 / (NUM_RESAMPLES + 1)
    ends = within[0] - within[1], within[1] - within[0]
    return Comparison(t_interval(differences, level, ends), sign_flip_test(differences), smallest, effect)


def common(results: Mapping[Any, Any], baseline: Mapping[Any, Any]) -> tuple[list, list]:
    """Returns the values of the common seeds of two results, in the same order.

    Raises:
        ValueError: the results have no common seed.
    """
    seeds = [seed for seed in results if seed in baseline]
    if not seeds:
        raise ValueError(f"no seeds in common for a paired comparison: {list(results)} and {list(baseline)}")
    return [results[seed] for seed in seeds], [baseline[seed] for seed in seeds]


def holm(p_values: Mapping[Any, float]) -> dict[Any, float]:
    """Adjusts the p-values of several comparisons so that the chance of any false one is bounded (Holm 1979).

    The i-th smallest of m p-values is multiplied by m - i + 1, and then raised to at least its predecessor.
    """
    adjusted, largest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


def paired_bootstrap(
    statistics: Float[np.ndarray, "n k"],
    baseline: Float[np.ndarray, "m k"],
    score: Callable[[Float[np.ndarray, " k"]], float],
    *,
    num_resamples: int = 1000,
    level: float = LEVEL,
    seed: int = 12345,
) -> Comparison:
    """Compares the scores of two systems on the same sentences by resampling sentences (Koehn 2004).

    Args:
        statistics: statistics of each sentence, such as the counts of matching n-grams.
        baseline: statistics of the other system.
        score: sum of statistics -> score of the corpus.
        num_resamples: number of resampled test sets.
        level: level of the interval between quantiles.
        seed: seed of the resampling; the default is sacrebleu's.

    Returns:
        The difference of the scores, with a two-sided p-value: the share of resampled differences that are as far from
        their mean as the difference is from zero. (sacrebleu subtracts the mean of the absolute differences, which
        gives about half this p-value.) The p-value is at least 2 / 2^m, the smallest of an exact sign test for m
        differing sentences, since the bootstrap underestimates it for few sentences; with a few dozen sentences it is
        still somewhat too small. The effect size is in standard deviations of the resampled differences.

    Raises:
        ValueError: the numbers of sentences differ, or a score is not finite.
    """
    a, b = np.asarray(statistics), np.asarray(baseline)
    if len(a) != len(b) or len(a) == 0:
        raise ValueError(f"paired_bootstrap: expected the same sentences, got {len(a)} and {len(b)}")
    observed = score(a.sum(0)) - score(b.sum(0))
    resampled = _checked(
        [
            score(one) - score(other)
            for counts in resampled_counts(len(a), num_resamples, seed)
            for one, other in zip(counts @ a, counts @ b, strict=True)
        ],
        at_least=1,
    )
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    # The null hypothesis moves the resampled differences to a mean of zero.
    p_value = (np.sum(np.abs(resampled - resampled.mean()) >= abs(observed)) + 1) / (num_resamples + 1)
    # For m sentences that differ, even an exact sign test gives at least 2 / 2^m.
    smallest = max(1 / (num_resamples + 1), 2.0 ** (1 - min(np.sum(np.any(a != b, axis=1)), 1000)))
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = float(np.divide(observed, np.std(resampled, ddof=1)))
    interval = Interval(float(observed), float(low), float(high), len(a), level)
    return Comparison(interval, float(min(1.0, max(p_value, smallest))), float(min(1.0, smallest)), effect)


def resampled_counts(
    number: int, num_resamples: int, seed: int, block: int = 50
) -> Iterator[Int[np.ndarray, "r {number}"]]:
    """Yields the count of each of `number` sentences in resampled test sets, `block` test sets at a time."""
    rng = np.random.default_rng(seed)
    for start in range(0, num_resamples, block):
        index = rng.choice(number, size=(min(block, num_resamples - start), number), replace=True)
        yield np.array([np.bincount(rows, minlength=number) for rows in index])


def almost_stochastic_order(values: Values, baseline: Values, level: float = LEVEL, seed: int = 0) -> float:
    """Computes an upper bound of the violation of "`values` are stochastically larger than `baseline`".

    The violation is the part of the squared distance of the two quantile functions where the baseline's is larger: 0 if
    no quantile of the values is smaller, 1 if none is larger, 1/2 for equal distributions. The bound holds with
    probability `level` for many values; for equal normal distributions it was below 1/2 in a fifth of simulated cases
    with 3 to 30 values per side. Below 1/2, and better below 0.2, the values are called almost stochastically larger.
    It needs no pairs (Dror 2019, "Deep dominance", equations 3 and 4; del Barrio 2018).

    Raises:
        ValueError: a side has fewer than two values.
    """
    x, y = _checked(values, at_least=2), _checked(baseline, at_least=2)
    rng, n, m = np.random.default_rng(seed), len(x), len(y)
    violation = _violation(x, y)
    scale = np.sqrt(n * m / (n + m))
    resampled = [_violation(rng.choice(x, n), rng.choice(y, m)) for _ in range(1000)]
    spread = np.std(scale * (np.array(resampled) - violation), ddof=1)
    return float(np.clip(violation - spread / scale * scipy.stats.norm.ppf(1 - level), 0.0, 1.0))


def _violation(x: np.ndarray, y: np.ndarray) -> float:
    """Computes the violation of `almost_stochastic_order`, 1/2 for equal values, from all steps of both quantiles."""
    n, m = len(x), len(y)
    ends = np.union1d(np.arange(1, n + 1) / n, np.arange(1, m + 1) / m)
    widths = np.diff(ends, prepend=0.0)
    middle = ends - widths / 2
    gap = (
        np.sort(x)[np.minimum((middle * n).astype(int), n - 1)]
        - np.sort(y)[np.minimum((middle * m).astype(int), m - 1)]
    )
    whole = np.sum(widths * gap**2)
    return 0.5 if whole == 0 else float(np.sum((widths * gap**2)[gap < 0]) / whole)


def _checked(values: Values, at_least: int) -> np.ndarray:
    x = np.asarray(values, np.float64).reshape(-1)
    if len(x) < at_least:
        raise ValueError(f"expected at least {at_least} values, got {len(x)}")
    if not np.all(np.isfinite(x)):
        raise ValueError(f"expected finite values, got {x[~np.isfinite(x)][0]}")
    return x
