"""The experiment of ensembles sets options that exist, and says of each metric what the seeds and the ensemble have."""

import pytest

from attn_jax.evaluation.statistics import t_interval
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.overrides import override
from experiments import ensembles, raw, render


@pytest.mark.parametrize("name", ensembles.RUNS)
def test_the_overrides_exist_and_each_run_has_several_seeds(name):
    run = ensembles.RUNS[name]
    texts = [f"--config.{key}={value}" for key, value in run.overrides.items()]
    config = override(load_config_file(run.config), [*texts, f"--config.seeds={ensembles.SEEDS}"])
    assert tuple(config.seeds) == ensembles.SEEDS


def test_the_interval_is_of_the_seeds_and_the_ensemble_is_one_value():
    each = {"bleu": {"seeds": [10.0, 12.0, 14.0]}, "edit_distance": {"seeds": [1.0, 2.0, 3.0]}}
    found = ensembles.summary(each, {"bleu": {"seeds": [15.0]}})
    interval = t_interval([10.0, 12.0, 14.0])
    assert found == {
        "bleu": {"seeds": [10.0, 12.0, 14.0], "mean": 12, "low": interval.low, "high": interval.high, "ensemble": 15.0}
    }
    table = ensembles.table({"captions": {"metrics": found}})
    assert table.splitlines()[-1] == "| captions | bleu | 10, 12, 14 | 12 [7.032, 16.97] | 15 |"


def test_an_option_that_does_not_exist(capsys):
    with pytest.raises(SystemExit):
        ensembles.main(["--data_dir=data", "--epochs=3"])
    assert "--config.train.num_epochs=2" in capsys.readouterr().err


def test_the_table_is_that_of_the_file_which_says_how_it_was_measured(tmp_path, monkeypatch):
    each = {"seeds": [10.0, 12.0], "mean": 11.0, "low": 9.0, "high": 13.0, "ensemble": 12.0}
    monkeypatch.setattr(ensembles, "measure", lambda run, *_: {"overrides": run.overrides, "metrics": {"bleu": each}})
    ensembles.main(["--data_dir=there", f"--out={tmp_path / 'ensembles.json'}", "--only", "captions"])
    record = raw.read(tmp_path / "ensembles.json")
    assert record["command"] == "python experiments/ensembles.py --data_dir=data --only captions"
    text = render.render_document("<!-- ensembles -->\n<!-- end -->\n", tmp_path)
    assert "| captions | bleu | 10, 12 | 11 [9, 13] | 12 |" in text
