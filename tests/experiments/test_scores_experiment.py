"""The comparison of scores: what is swept, and the interval that is reported."""

import numpy as np
import pytest

from experiments import scores


def test_the_half_width_is_that_of_the_t_interval():
    stats = pytest.importorskip("scipy.stats")
    for seeds in ([1.0, 2.0, 4.0], [3.0, 3.5, 2.0, 5.0, 4.0]):
        low, high = stats.t.interval(0.95, len(seeds) - 1, np.mean(seeds), stats.sem(seeds))
        assert scores.half_width(seeds) == pytest.approx((high - low) / 2, rel=1e-3)


def test_each_score_is_a_row_with_all_of_its_seeds():
    measured = {
        name: {"mean": np.mean(values), "seeds": values}
        for name, values in {"bleu": [1.0, 2.0, 3.0], "perplexity": [5.0, 5.0, 5.0]}.items()
    }
    lines = scores.report({"dot": measured, "concat": measured}).splitlines()
    assert lines[0] == "| score | bleu | perplexity |"
    assert lines[2] == "| dot | 2.0 ± 2.5 | 5.000 ± 0.000 |"
    assert lines[-1] == "- concat: 1.0 / 5.000, 2.0 / 5.000, 3.0 / 5.000"


def test_the_runs_differ_in_the_score_alone():
    runs = list(scores.sweep())
    assert [run.pop("model.attention.score") for run in runs] == list(scores.SCORES)
    assert all(run == runs[0] for run in runs)
