"""Every run of the sweep is a valid config, and the report says what the results say."""

import pathlib

import pytest

from attn_jax.errors import UserError
from attn_jax.runs.options import change, resolve
from attn_jax.runs.python_files import load_file
from attn_jax.runs.training import check
from attn_jax.runs.workdir import save_config
from attn_jax.sweeps import jobs as sweep
from attn_jax.sweeps.jobs import jobs
from experiments import inflection, of_sweep, recall

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_run_of_the_sweep_is_a_valid_config():
    runs = list(recall.sweep())
    assert len(runs) == len(recall.MECHANISMS) == 11 and all(len(run["seeds"]) == 5 for run in runs)
    for run in runs:
        config = load_file(ROOT / run.pop("config"), "get_config")
        config = change(config, run)
        check(resolve(config))


def test_the_report_has_every_mechanism_and_seed_and_paired_differences():
    text = recall.report({"softmax": [100.0, 98.0], "linear attention": [50.0, 52.0], "delta rule": [92.0, 94.0]})
    assert "| softmax | 99.0 ± 12.7 | 100.0 | 98.0 |" in text
    assert "| linear attention − softmax | -48.0 ± 25.4 |" in text
    assert "| delta rule − linear attention | 42.0 ± 0.0 |" in text and "gated" not in text
    alone = recall.report({"softmax": [100.0]})
    assert "| softmax | 100.0 | 100.0 |" in alone and "Differences" not in alone


def test_the_page_says_which_task_it_is_of():
    config = load_file(ROOT / "configs/recall.py", "get_config")
    assert recall.described(config) == "4 pairs in 64 tokens, width 64"
    assert recall.described(config) in recall.page(_record())
    config.task.num_pairs, config.task.length = 16, 222
    assert recall.described(config) == "16 pairs in 256 tokens, width 64"
    assert recall.described(config) in recall.page(_record(task=recall.described(config)))


def test_the_page_says_when_the_runs_were_trained():
    runs = {"a": (60.0, "2026-11-24T1", "abcdef12"), "b": (120.0, "2026-11-25T1", "abcdef12")}
    trained = {name: dict(zip(("train_seconds", "date", "commit"), of, strict=True)) for name, of in runs.items()}
    text = recall.page(_record(trained=trained))
    assert "- trained 2026-11-24, 2026-11-25, commit abcdef1, 1 to 2 minutes each" in text
    assert "trained" not in recall.page(_record())


def test_rows_are_added_to_those_of_an_earlier_record():
    before = _record(task="t", recalled={"softmax": [1.0], "delta rule": [2.0]}, steps={"softmax": 1, "delta rule": 1})
    now = {"task": "t", "texts": 1, "recalled": {"delta rule": [3.0], "sparsemax": [4.0]}, "trained": {}}
    now |= {"steps": {"delta rule": 5, "sparsemax": 5}, "measured": {"delta rule": "b" * 9, "sparsemax": "b" * 9}}
    found = recall.added(now, before)
    assert list(found["recalled"].items()) == [("softmax", [1.0]), ("sparsemax", [4.0]), ("delta rule", [3.0])]
    assert found["steps"] == {"softmax": 1, "sparsemax": 5, "delta rule": 5}
    assert found["measured"]["softmax"] == "abc" and found["measured"]["delta rule"] == "b" * 9
    assert "measured by commits abc, bbbbbbb" in recall.page(_record(**found))
    with pytest.raises(UserError, match="results of texts 1, the runs are of 2"):
        recall.added(now | {"texts": 2}, before)


@pytest.mark.parametrize("experiment", [recall, inflection])
def test_without_a_record_there_is_nothing_to_add_to(experiment, tmp_path):
    with pytest.raises(
        UserError, match=r"--add: .*\.json does not exist, so there are no rows to keep; leave --add out"
    ):
        experiment.main(["--add", f"--out={tmp_path}", f"--runs={tmp_path}"])


def test_finished_runs_are_those_with_a_result(tmp_path):
    script = pathlib.Path(recall.__file__)
    with pytest.raises(UserError, match=r"no finished run in .*; train with launch.py --sweep=experiments/recall.py"):
        of_sweep.finished(script, recall.MECHANISMS, tmp_path)
    folders = [tmp_path / job.name for job in jobs(script)]
    for folder in folders[:2]:
        folder.mkdir()
    (folders[1] / "result.json").touch()
    assert of_sweep.finished(script, recall.MECHANISMS, tmp_path) == {"sparsemax": folders[1]}


def test_finished_runs_of_another_config_are_none_of_the_sweep(tmp_path):
    """Of the same name: its config.json is another one."""
    script = pathlib.Path(recall.__file__)
    job, *_ = jobs(script)
    config = sweep.config_of(job)
    config.train.num_steps += 1
    save_config(tmp_path / job.name, config)
    (tmp_path / job.name / "result.json").touch()
    with pytest.raises(UserError, match=r"holds the run of another config: train.num_steps is"):
        of_sweep.finished(script, recall.MECHANISMS, tmp_path)


def test_runs_of_different_tasks_have_no_common_page(tmp_path, monkeypatch, capsys):
    for job in list(jobs(pathlib.Path(recall.__file__)))[:2]:
        (tmp_path / job.name).mkdir()
        (tmp_path / job.name / "result.json").write_text('{"steps": 1}')
    widths = iter((64, 128))

    def config_of(workdir):
        config = load_file(ROOT / "configs/recall.py", "get_config")
        config.model.hidden_size = next(widths)
        return config

    monkeypatch.setattr(recall, "load_config", config_of)
    monkeypatch.setattr(recall, "measure", lambda workdir, count: [100.0])
    with pytest.raises(SystemExit):
        recall.main([f"--runs={tmp_path}", f"--out={tmp_path}"])
    assert "of different tasks: 4 pairs in 64 tokens, width 128; 4 pairs" in capsys.readouterr().err
    assert not (tmp_path / "recall.json").exists()


def _record(**results):
    found = {"texts": 1, "recalled": {"softmax": [100.0]}, "steps": {"softmax": 1}, **results}
    about = {"command": "python", "seconds": 1.0, "commit": "abc", "machine": "one", "date": "today"}
    return about | {
        "results": found,
        "versions": {"python": "3", "jax": "1"},
        "device": {"platform": "cpu", "kind": "cpu", "count": 1},
        "cores": 1,
        "processor_seconds": 1.0,
        "load": [0.0, 0.0],
    }
