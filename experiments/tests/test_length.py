"""Every run of the ladder is a valid config; the report says what the results say; a trained run is measured."""

import pathlib

import numpy as np
import pytest

from attn_jax.errors import UserError
from attn_jax.runs.options import change, resolve
from attn_jax.runs.python_files import load_file
from attn_jax.runs.training import check
from experiments import length, raw

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_run_of_the_sweep_is_a_valid_config():
    runs = list(length.sweep())
    assert len(length.names()) == len(runs) == 9 and all(len(run["seeds"]) == 3 for run in runs)
    for run in runs:
        config = load_file(ROOT / run.pop("config"), "get_config")
        config = change(config, run)
        check(resolve(config))


def metrics(**values):
    return {name: {"mean": np.mean(v), "std": np.std(v, ddof=1), "seeds": v} for name, v in values.items()}


def test_the_ladder_has_every_length_and_seed():
    rows = {16: metrics(exact_match=[100.0, 99.0, 98.0], accuracy=[100.0, 99.9, 99.8])}
    rows[32] = metrics(exact_match=[0.0, 1.0, 2.0], accuracy=[50.0, 51.0, 52.0])
    results = {("sort", "softmax"): rows, ("reverse", "1.5-entmax"): rows}
    text = length.report(results)
    assert "| sort | softmax | 99.0 (SD 1.0) | 1.0 (SD 1.0) |" in text
    assert "reverse, 1.5-entmax, length 32: 0.0 / 50.0, 1.0 / 51.0, 2.0 / 52.0" in text
    assert [axes.get_title() for axes in length.draw(results).axes] == ["sort", "reverse"]


def test_the_page_and_the_picture_are_made_of_the_json_file(tmp_path, capsys):
    rows = {"16": metrics(exact_match=[100.0, 99.0, 98.0], accuracy=[100.0, 99.9, 99.8])}
    runs = [{"task": task, "attention": name, "lengths": rows} for task, name in length.names()]
    path = tmp_path / "length.json"
    raw.write(path, {"runs": runs, "count": 5}, command="a command", begun=raw.Begun.now())
    length.main(["--render", f"--out={path}"])
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert text in capsys.readouterr().out and "5 sequences of each length" in text and "a command" in text
    assert "| sort | stick-breaking | 99.0 (SD 1.0) |" in text and "reverse | forgetting" not in text
    assert path.with_suffix(".png").stat().st_size > 1000


def test_no_trained_run_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no finished run in") as error:
        length.main([f"--runs={tmp_path}"])
    assert "\n" not in str(error.value)
