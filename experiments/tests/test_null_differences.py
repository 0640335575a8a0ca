"""The experiment on differences that are not there: its runs, and that it counts what is found."""

import pathlib

import numpy as np

from attn_jax.data.files import save_json
from attn_jax.evaluation.paired import sentences_of
from attn_jax.sweeps.jobs import named
from experiments import null_differences as null


def test_the_runs_share_no_seed_and_their_options_exist():
    runs = list(null.sweep())
    assert named(runs, pathlib.Path("null_differences.py"))
    seeds = [seed for run in runs for seed in run["seeds"]]
    assert len(set(seeds)) == len(seeds) == 2 * null.REPETITIONS * null.GROUP


def test_a_difference_that_is_there_is_found_and_one_that_is_not_is_not():
    values = np.random.default_rng(0).normal(size=(40, 2, 8))
    by_sign, by_interval = null.found_by(values)
    assert by_sign <= 6 and by_interval <= 6
    values[:, 1] += 10
    assert null.found_by(values) == (40, 40)


def test_each_model_is_compared_with_its_own_sentences(tmp_path, monkeypatch):
    monkeypatch.setattr(null, "PER_RUN", 4)
    monkeypatch.setattr(null, "GROUP", 2)
    monkeypatch.setattr(null, "REPETITIONS", 3)
    folders, rng = [], np.random.default_rng(0)
    for first in range(0, 12, 4):
        # The first models of the third repetition, seeds 8 and 10, differ; all others are as good.
        tables = [np.stack([rng.normal(seed == 10, 0.1, 30), np.ones(30)], -1) for seed in range(first, first + 4)]
        folders.append(tmp_path / str(first))
        folders[-1].mkdir()
        statistics = {"loss": tables, "accuracy": tables}
        save_json(folders[-1] / "sentences.json", sentences_of(list(range(first, first + 4)), statistics, (), 1))
        metrics = {name: {"seeds": [float(seed) for seed in range(first, first + 4)]} for name in statistics}
        save_json(folders[-1] / "result.json", {"metrics": metrics, "sentences": 30})
    found = null.measure(folders)
    assert found["values"]["loss"] == list(range(12)) and found["sentences"] == 30
    p_values = found["p_values_over_sentences"]["loss"]
    assert p_values[2] < 0.01 and min(p_values[:2]) > 0.01
