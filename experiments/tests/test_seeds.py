"""The comparison of seeds reads what runs write, and its table has the medians."""

import json

import numpy as np
import pytest

from experiments import seeds


def test_the_seconds_of_steps_do_not_count_the_first_log_or_one_slow_interval(tmp_path):
    times = [(10, 5.0), (20, 6.0), (30, 7.0), (40, 60.0), (50, 61.0)]
    records = [{"step": step, "seconds": seconds, "train/loss": [1.0, 2.0]} for step, seconds in times]
    records.insert(2, {"step": 20, "valid/loss": [3.0, 4.0]})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert seeds.seconds_of_steps(tmp_path) == pytest.approx(50 * 0.1)
    assert seeds.losses(tmp_path).shape == (5, 2)


def test_the_difference_is_relative_to_the_largest_parameter():
    b = {"a": np.array([1.0, -4.0]), "b": {"c": np.zeros(2)}}
    a = {"a": np.array([1.0, -4.0]), "b": {"c": np.array([0.0, 0.2])}}
    assert seeds.largest_difference(a, b) == pytest.approx(0.05) and seeds.largest_difference(b, b) == 0


def test_the_table_shows_each_seed_and_the_medians():
    of = {"metrics": {"loss": [1.0, 1.5]}, "loss_difference_first_log": 3e-8}
    of |= {"loss_difference_largest": 1e-6, "parameter_difference_largest": 2e-6}
    together, alone = (
        [{"wall": w, "steps": w / 2} for w in walls] for walls in ((10.0, 30.0, 12.0), (24.0, 20.0, 99.0))
    )
    text = seeds.table({"seeds": [{"seed": 7, **of}], "seconds": {"together": together, "alone": alone}})
    assert "| 7 | 1, 1.5 | 3.0e-08 | 1.0e-06 | 2.0e-06 |" in text
    assert "| whole processes | 12.0 | 24.0 | 2.00 |" in text and "| training steps | 6.0 | 12.0 | 2.00 |" in text


def test_options_that_do_not_exist(capsys):
    for argv in (["--steps=3"], ["--num_seeds=1"], ["--repeats=0"]):
        with pytest.raises(SystemExit):
            seeds.main(argv)
    assert "--config.train.num_steps=300" in capsys.readouterr().err
