"""Every run of the sweep is a valid config, those that need a start have it, and the page says what the results say."""

import pathlib

import pytest

from attn_jax.cli.overrides import load_file
from attn_jax.cli.runs import check
from attn_jax.cli.sweep import named
from attn_jax.errors import UserError
from attn_jax.tasks.files import save_json
from experiments import raw, where

JOBS = list(named(where.sweep(), pathlib.Path("where.py")))


def test_every_run_of_the_sweep_is_a_valid_config():
    assert len(JOBS) == len(where.FRESH) + len(where.STARTED) == 12
    for job in JOBS:
        config = load_file(where.ROOT / job.config, "get_config")
        config.update_from_flattened_dict(job.overrides)
        check(config)


def test_the_runs_with_a_start_come_after_the_soft_run_and_name_its_folder():
    starts = [job.overrides.get("train.start_from") for job in JOBS]
    assert starts == [None] * len(where.FRESH) + [f"runs/where/{JOBS[0].name}"] * len(where.STARTED)
    assert not any(key.startswith("model.") for key in JOBS[0].overrides)


def result(*values):
    numbers = {"seeds": list(values), "mean": sum(values) / len(values)}
    metrics = dict.fromkeys((*where.METRICS, "uniform"), numbers)
    return {"seeds": list(range(len(values))), "metrics": metrics, "num_parameters": 3}


def test_differences_are_to_soft_attention_of_as_many_steps():
    found = {"soft": result(2.0, 4.0), "marginal": result(3.0, 5.0), "soft, trained on": result(5.0, 7.0)}
    text = where.report(found | {"hard, running mean": result(5.5, 7.5)})
    assert "| marginal | 4.0 ± 12.7 |" in text and "| marginal − soft | 1.0 ± 0.0 |" in text
    assert "| hard, running mean * | 6.5 ± 12.7 |" in text
    assert "| hard, running mean − soft, trained on | 0.5 ± 0.0 |" in text and text.count("−") == 2
    alone = where.report({"soft": result(2.0), "marginal": result(3.0)})
    assert "| marginal | 3.0 | 3.0 | 3.0 | 3.00 |" in alone and "−" not in alone


def test_the_page_is_made_of_the_finished_runs(tmp_path):
    runs = tmp_path / "runs"
    for job in JOBS[:2]:
        kept = result(2.0, 4.0) | {"steps": 1, "train_seconds": 1.0, "checkpoint": "best checkpoint (step 1)"}
        save_json(runs / job.name / "result.json", kept | {"examples": []})
    where.main([f"--runs={runs}", f"--out={tmp_path}", "--table"])
    text = (tmp_path / "where.md").read_text(encoding="utf-8")
    assert "| sparsemax | 3.0 ± 12.7 |" in text and "Not trained to the end: largest norm, 2 cells, marginal" in text
    assert where.page(raw.read(tmp_path / "where.json")) == text
    with pytest.raises(UserError, match="unknown argument '--config'"):
        where.main(["--config"])
    with pytest.raises(UserError, match="no run is finished"):
        where.main([f"--runs={tmp_path / 'none'}", "--table"])
