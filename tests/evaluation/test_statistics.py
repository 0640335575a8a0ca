"""Statistics against scipy, sacrebleu and enumeration, and on data without any effect."""

import itertools
import math

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest
from scipy import stats

from attn_jax.evaluation import statistics
from attn_jax.evaluation.kinds import possible
from attn_jax.evaluation.statistics import (
    almost_stochastic_order,
    compare,
    holm,
    paired_bootstrap,
    seeds_to_show,
    sign_flip_test,
)

RNG = np.random.default_rng(0)


def test_the_interval_of_t_is_scipys():
    x = RNG.normal(3, 2, 7)
    expected = stats.ttest_1samp(x, 0).confidence_interval(0.9)
    found = statistics.t_interval(x, 0.9)
    np.testing.assert_allclose((found.low, found.high), expected)
    assert found.num == 7 and found.half_width == pytest.approx((found.high - found.low) / 2)


@pytest.mark.parametrize(
    ("metric", "values", "low", "high"),
    [
        ("exact_match", [86.0, 87.0, 99.0], None, 100.0),
        ("loss", [0.01, 0.8], 0.0, None),
        ("perplexity", [1.0, 1.5], 1.0, None),
        ("r2", [0.2, 0.9], None, 1.0),
        ("none", [-1.0, 200.0], None, None),
    ],
)
def test_no_interval_leaves_the_possible_values(metric, values, low, high):
    """Only the end that would leave them is another; a difference is at most as large as their range."""
    plain, found = statistics.t_interval(values), statistics.t_interval(values, within=possible(metric))
    assert (found.low, found.high) == (plain.low if low is None else low, plain.high if high is None else high)
    ends = statistics.compare([0.0, 100.0], [100.0, 90.0], within=(0.0, 100.0)).difference
    assert (ends.low, ends.high) == (-100.0, 100.0)


@pytest.mark.parametrize("n", [1, 2, 6, 9])
def test_the_sign_flip_test_is_an_enumeration(n):
    x = RNG.normal(0.5, 1, n)
    every = [abs(np.dot(signs, x)) for signs in itertools.product((-1, 1), repeat=n)]
    expected = np.mean([value >= abs(x.sum()) - 1e-9 for value in every])
    assert sign_flip_test(x) == pytest.approx(expected)
    if n > 2:
        of_pairs = {"permutation_type": "samples", "n_resamples": np.inf}
        found = stats.permutation_test((x, np.zeros(n)), lambda a, b: np.mean(a - b), **of_pairs)
        assert sign_flip_test(x) == pytest.approx(found.pvalue)


def test_differences_that_cancel_say_nothing():
    """Their sum is zero but for rounding, and no choice of signs has a smaller one."""
    assert sign_flip_test([0.1, 0.2, -0.3]) == sign_flip_test([0.1, 0.2, 0.3, -0.6]) == 1


def test_many_pairs_are_sampled():
    x = RNG.normal(0.4, 1, 40)
    assert sign_flip_test(x) == pytest.approx(stats.ttest_1samp(x, 0).pvalue, abs=0.01)


@pytest.mark.parametrize(("n", "enough"), [(3, False), (5, False), (6, True), (30, True)])
def test_few_pairs_never_conclude(n, enough):
    found = compare(np.arange(n) + 10.0, np.arange(n) + RNG.normal(0, 0.1, n))
    assert found.concludes() == enough and (found.p_value <= 0.05) == enough
    assert found.smallest_p_value <= found.p_value and found.difference.low > 9


def test_the_effect_size_is_the_mean_over_the_standard_deviation():
    assert compare([2.0, 4.0], [1.0, 1.0]).effect_size == pytest.approx(2 / math.sqrt(2))
    assert compare([2.0, 2.0], [1.0, 1.0]).effect_size == math.inf
    assert math.isnan(compare([1.0, 1.0], [1.0, 1.0]).effect_size)
    # 2 / 7 more in both pairs, apart from rounding
    assert compare([300 / 7, 500 / 7], [100 / 7, 300 / 7]).effect_size == math.inf
    assert compare([1.1, 1.2, 1.3], [1.0, 1.1, 1.2]).effect_size == math.inf


def test_without_an_effect_about_one_comparison_in_twenty_is_significant():
    found = [compare(*np.random.default_rng(seed).normal(size=(2, 8))) for seed in range(1000)]
    share = np.mean([comparison.p_value <= 0.05 for comparison in found])
    assert 0.03 < share <= 0.06
    covered = np.mean([c.difference.low <= 0 <= c.difference.high for c in found])
    assert 0.93 < covered < 0.97


def test_holm():
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = {name: float(value) for name, value in zip("abcdefg", RNG.random(7) ** 3, strict=True)}
    _, expected, _, _ = multitest.multipletests(list(p.values()), method="holm")
    assert list(holm(p)) == list(p)
    np.testing.assert_allclose(list(holm(p).values()), expected)
    assert holm({"one": 0.03}) == {"one": 0.03} and holm({}) == {}


def test_paired_bootstrap_has_the_scores_of_sacrebleu():
    words = np.array("a b c d e f g h".split())
    references = [" ".join(RNG.choice(words, 9)) for _ in range(60)]

    def spoilt(share):
        return [" ".join(w if RNG.random() > share else "x" for w in line.split()) for line in references]

    metric, systems = sacrebleu.BLEU(), {"baseline": spoilt(0.3), "other": spoilt(0.25)}
    compared = PairedTest(list(systems.items()), {"BLEU": metric}, [references], "bs", n_samples=300)
    _, scores = compared()
    _, expected = scores["BLEU"]
    counts = [np.array(metric._extract_corpus_statistics(system, [references]), float) for system in systems.values()]
    score = lambda total: metric._compute_score_from_stats(list(total)).score  # noqa: E731
    found = paired_bootstrap(counts[1], counts[0], score, num_resamples=300)
    assert found.p_value >= expected.p_value  # nearly that of one side
    assert found.difference.mean == pytest.approx(expected.score - scores["BLEU"][0].score)
    assert found.difference.low < found.difference.mean < found.difference.high
    same = paired_bootstrap(counts[0], counts[0], score, num_resamples=300)
    assert same.p_value == 1 and same.difference.low == same.difference.high == 0


def test_the_p_value_of_the_paired_bootstrap_is_of_two_sides():
    """Two systems that are right equally often differ at 5 % in 5 % of the test sets, and a mean has the normal p."""
    p_values = []
    for seed in range(300):
        one, other = (np.random.default_rng(seed).random((2, 150, 1)) < 0.7).astype(float)
        found = paired_bootstrap(one, other, lambda total: total[0] / 150, num_resamples=400)
        p_values.append(found.p_value)
        error = np.std(one - other) / np.sqrt(150)
        assert found.p_value == pytest.approx(2 * stats.norm.sf(abs(found.difference.mean) / error), abs=0.12)
    assert 0.02 < np.mean(np.array(p_values) <= 0.05) < 0.09


def test_few_sentences_that_differ_are_no_evidence():
    """Of n equal differences every resampled one is the same, however small n is."""
    for n in (1, 2, 5, 6, 12):
        found = paired_bootstrap(np.ones((n, 1)), np.zeros((n, 1)), lambda total: float(total[0]))
        assert found.p_value >= min(1, 2.0 ** (1 - n)) and found.concludes() == (n > 5)
    a, b = np.zeros((1000, 1)), np.zeros((1000, 1))
    a[:5] = 1
    assert not paired_bootstrap(a, b, lambda total: float(total[0])).concludes()


def test_resampling_in_blocks_is_resampling_at_once():
    whole = np.random.default_rng(3).choice(7, size=(120, 7), replace=True)
    blocks = np.concatenate([*statistics.resampled_counts(7, 120, seed=3)])
    np.testing.assert_array_equal(blocks, [np.bincount(rows, minlength=7) for rows in whole])


@pytest.mark.slow
def test_almost_stochastic_order():
    low, high = RNG.normal(0, 1, 30), RNG.normal(3, 1, 30)
    assert almost_stochastic_order(high, low) < 0.05 and almost_stochastic_order(low, high) > 0.95
    same = [almost_stochastic_order(*np.random.default_rng(seed).normal(size=(2, 20))) for seed in range(40)]
    assert np.mean(np.array(same) < 0.2) <= 0.1
    assert 0.05 < np.mean(np.array(same) < 0.5) < 0.4  # a fifth, not one in twenty: the bound is too narrow
    # Two values against one in between: half of the distance is a violation.
    assert almost_stochastic_order([0.0, 2.0], [1.0, 1.0], level=0.5) == pytest.approx(0.5)


def test_seeds_in_common():
    assert statistics.common({0: 1.0, 1: 2.0, 5: 3.0}, {5: 30.0, 0: 10.0}) == ([1.0, 3.0], [10.0, 30.0])
    with pytest.raises(ValueError, match=r"no seeds in common for a paired comparison: \[0\] and \[1\]"):
        statistics.common({0: 1.0}, {1: 1.0})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: statistics.t_interval([1.0]), "at least 2 values, got 1"),
        (lambda: statistics.t_interval([1.0, math.nan]), "expected finite values, got nan"),
        (lambda: compare([1.0, 2.0], [1.0, 2.0, 3.0]), "got 2 values and 3 of the baseline"),
        (lambda: paired_bootstrap(np.ones((2, 1)), np.ones((3, 1)), sum), "the same sentences, got 2 and 3"),
        (lambda: paired_bootstrap(np.full((2, 1), math.nan), np.ones((2, 1)), sum), "expected finite values, got nan"),
        (lambda: sign_flip_test([]), "at least 1 values, got 0"),
    ],
)
def test_what_cannot_be_compared(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_fewest_seeds_are_those_whose_most_extreme_outcome_is_significant_after_holm():
    for comparisons in (1, 2, 3, 4, 10):
        fewest = statistics.seeds_needed(0.95, comparisons)
        for count, enough in ((fewest - 1, False), (fewest, True)):
            p_values = {i: sign_flip_test(np.arange(1.0, count + 1)) for i in range(comparisons)}
            assert (max(holm(p_values).values()) <= 0.05) == enough


@pytest.mark.parametrize("effect", [0.1, 0.5, 1.0, 3.0])
def test_the_seeds_that_would_show_a_difference_are_those_of_statsmodels(effect):
    power = pytest.importorskip("statsmodels.stats.power")
    expected = power.TTestPower().solve_power(effect_size=effect, alpha=0.05, power=0.8) if effect < 2 else 0
    assert seeds_to_show(effect, 1.0) == pytest.approx(max(6, expected), abs=1.5)
    assert seeds_to_show(1e-200, 1.0) == statistics.MOST_PAIRS  # at once, for a difference of almost nothing
    with pytest.raises(ValueError, match="cannot be shown"):
        seeds_to_show(0.0, 1.0)
