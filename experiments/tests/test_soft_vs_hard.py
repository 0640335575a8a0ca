"""Every variant is a config that can be built, and the table says what the results say."""

import numpy as np
import pytest

from attn_jax.runs.options import resolve
from attn_jax.runs.training import check
from experiments import soft_vs_hard
from experiments.soft_vs_hard import LANGUAGES, VARIANTS, closed, config_of, evaluations, overrides, report


def test_the_sweep_has_every_variant_in_every_language_with_three_seeds():
    runs = list(soft_vs_hard.sweep())
    assert len(runs) == len(VARIANTS) * len(LANGUAGES) and len(LANGUAGES) >= 3
    assert all(len(run["seeds"]) == 3 and run["task.size"] == "medium" for run in runs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_a_valid_config(variant):
    config = config_of("german", variant, "somewhere")
    check(resolve(config))
    assert config.task.language == "german" and config.data_dir == "somewhere"
    changed = {key.removeprefix("model."): value for key, value in overrides("german", variant).items()}
    for key, value in VARIANTS[variant].items():
        assert changed[key] == value


def test_evaluations_are_the_rows_of_the_draw():
    expected = {"soft": "1", "hard, enumeration": "all", "marginal": "all", "hard, 4 samples, leave-one-out": "4"}
    expected |= {"hard, 1 sample, learned baseline": "1", "hard, optimal resampling of 4, learned baseline": "4"}
    for variant, count in expected.items():
        assert evaluations(config_of("german", variant, "")) == count


def test_the_part_of_a_gap_that_is_closed():
    assert closed(np.array([1.0, 1.0]), np.array([0.5, 0.5]), np.array([0.5, 0.5])) == 100
    assert closed(np.array([1.0]), np.array([0.5]), np.array([1.0])) == 0
    np.testing.assert_allclose(closed(np.array([1.2, 0.8]), np.array([0.6, 0.4]), np.array([0.6, 0.5])), 90)


def test_report_has_every_result_of_every_seed():
    def metrics(exact, nll):
        return {
            name: {"mean": np.mean(values), "std": np.std(values, ddof=1), "seeds": values}
            for name, values in {"exact_match": exact, "loss": nll, "attention_entropy": [0.1, 0.2, 0.3]}.items()
        }

    results = {
        ("german", "hard, 1 sample, no baseline"): metrics([10.0, 11.0, 12.0], [1.0, 1.0, 1.0]),
        ("german", "hard, enumeration"): metrics([50.0, 51.0, 52.0], [0.5, 0.5, 0.5]),
        ("german", "hard, unordered set of 4"): metrics([49.0, 48.0, 47.0], [0.52, 0.51, 0.53]),
    }
    counts = dict.fromkeys(VARIANTS, "4")
    text = report(results, dict.fromkeys(VARIANTS, 0.02) | {"soft": 0.01}, counts)
    assert "49.0 / 0.520, 48.0 / 0.510, 47.0 / 0.530" in text and "51.0 (SD 1.0)" in text
    assert "unordered set of 4: german 96.0 %" in text and "| 2.00 |" in text
