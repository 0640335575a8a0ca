"""Every run of the two sweeps over output layers, and every short run that measures its speed, is a valid config."""

import json
import pathlib

import numpy as np
import pytest

from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import change, resolve
from attn_jax.runs.training import check
from attn_jax.sweeps.jobs import jobs
from experiments import output_layers, raw
from experiments.output_layers import at_the_end, briefly, compare, table, with_layer

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["output_layers", "output_layers_brown"])
def test_every_run_and_its_short_form_are_valid_configs(name):
    for job in jobs(ROOT / "experiments" / f"{name}.py"):
        for each in (job, briefly(job), briefly(with_layer(job, "full"))):
            config = load_config_file(str(ROOT / each.config))
            config = change(config, each.overrides)
            check(resolve(config))
        assert (
            each.name == job.name.replace(job.overrides["model.output.name"], "full") and config.train.num_steps == 50
        )


def test_layers_are_compared_where_both_have_been():
    """At the last step, and the last second, that the layer and the baseline have both reached."""
    full = {"steps": [10, 20, 30], "seconds": [10.0, 20.0, 30.0], "losses": [[4.0, 4.2], [3.0, 3.2], [2.0, 2.2]]}
    fast = {"steps": [10, 20, 30, 40], "seconds": [1.0, 2.0, 3.0, 20.0]}
    fast["losses"] = [[4.0, 4.2], [3.5, 3.7], [2.5, 2.7], [1.0, 1.2]]
    rows = compare({"full": full, "fast": fast})
    assert rows["fast"]["steps"]["at"] == 30 and rows["fast"]["seconds"]["at"] == 20
    np.testing.assert_allclose(rows["fast"]["steps"]["difference"], 0.5)
    np.testing.assert_allclose(rows["fast"]["seconds"]["difference"], -2.0)
    assert "(30 steps) | +0.5000 ± 0.0000" in table(rows)


def test_the_test_split_has_a_table_of_its_own():
    run = {"commit": "c", "date": "d", "steps": 9, "checkpoint": "best checkpoint (step 5)"}
    text = at_the_end({"full": run, "sampled": run | {"test": [100.0, 102.0, 104.0]}})
    assert "| sampled | best checkpoint (step 5) | 102.0 ± 5.0 | 100.0, 102.0, 104.0 |" in text and "full" not in text
    assert at_the_end({"full": run}) == ""


def test_the_file_says_how_it_was_measured_and_the_page_too(tmp_path, monkeypatch):
    monkeypatch.setattr(output_layers, "lowest_perplexity", lambda workdir: 2.5)
    records = [{"step": 10, "tokens": 100, "tokens_per_second": 10.0}, {"step": 10, "valid/loss": [1.0, 1.2]}]
    result = {"commit": "c", "date": "d", "steps": 10, "checkpoint": "last", "split": "valid"}
    for job in jobs(pathlib.Path(output_layers.__file__)):
        (tmp_path / job.name).mkdir()
        (tmp_path / job.name / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        (tmp_path / job.name / "result.json").write_text(json.dumps(result))
    output_layers.main([f"--runs={tmp_path}", f"--timed={tmp_path}", f"--out={tmp_path / 'output_layers.md'}"])
    record = raw.read(tmp_path / "output_layers.json")
    assert (
        record["command"] == "python experiments/output_layers.py" and record["results"]["runs"]["full"]["steps"] == 10
    )
    text = (tmp_path / "output_layers.md").read_text()
    assert "- `python experiments/output_layers.py`: " in text and "Lowest possible perplexity: 2.50." in text
    assert "| full | 1000 | 3.0 (10 steps) | +0.0000 ± 0.0000 |" in text and (tmp_path / "output_layers.png").exists()
