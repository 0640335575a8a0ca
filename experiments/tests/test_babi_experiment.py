"""The table of bAbI: published rows have the means that papers print, and errors stand where they should."""

import json
import pathlib
import signal

import numpy as np
import pytest

from attn_jax.errors import Interrupted, UserError, one_line
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.overrides import override
from attn_jax.runs.workdir import save_config
from attn_jax.sweeps import sweep
from configs import base
from experiments import babi, raw

# Mean errors as printed in the papers, or counted from their tables by others.
MEANS = {
    "memnn": 6.65,
    "memn2n": 13.9,
    "memn2n_pe": 20.3,
    "memn2n_bow": 25.1,
    "memn2n_10k": 6.6,
    "memn2n_joint": 12.4,
    "dmn": 6.4,
    "dmn_published": 6.4,
    "dmn_supervised": 6.4,
    "dmn_plus": 2.8,
    "entnet": 0.5,
    "universal": 0.21,
}


@pytest.mark.parametrize("name", babi.FAMILIES)
def test_published_rows_have_their_published_means(name):
    family = babi.FAMILIES[name]
    assert len(family.published) == 20
    assert np.mean(family.published) == pytest.approx(MEANS[name], abs=0.06)
    assert (babi.ROOT / "configs" / f"{family.config}.py").is_file()


def test_every_run_of_every_family_has_a_name_of_its_own():
    jobs = list(sweep.named(babi.sweep(), pathlib.Path("babi.py")))
    assert len(jobs) == sum(1 if f.joint else len(f.tasks) for f in babi.FAMILIES.values())
    lists = [job for job in jobs if job.config == "configs/babi_memnn.py" and job.overrides["task.numbers"] == (8,)]
    assert lists[0].overrides["model.num_hops"] == 8 and not lists[0].overrides["model.roles"]


def test_the_table_shows_the_chosen_seed_all_seeds_and_the_paper():
    rows = [babi.Row(1, [0.0, 10.0], 1), babi.Row(2, [8.0, 4.0], 0)]
    lines = babi.table("memn2n", rows).splitlines()
    assert lines[2] == "| 1 | 10.0 | 5.0 (SD 7.1) | 0.0, 10.0 | 0 |"
    assert lines[3] == "| 2 | 8.0 | 6.0 (SD 2.8) | 8.0, 4.0 | 8.3 |"
    assert lines[4] == "| mean of 2 | **9.00** | 5.5 |  | 4.15 |"
    assert lines[5] == "| more than 5 % | 2 |  |  | 1 |"


def test_the_table_shows_what_else_was_measured_of_the_chosen_seed():
    rows = [babi.Row(1, [0.0], 0, fresh=1.0, training=0.5), babi.Row(2, [8.0], 0, fresh=3.0, training=7.5)]
    lines = babi.table("memn2n", rows).splitlines()
    assert lines[0].endswith("| training file | fresh stories | published |")
    assert lines[2] == "| 1 | 0.0 |  |  | 0.5 | 1.0 | 0 |"
    assert lines[4] == "| mean of 2 | **4.00** | 4.0 |  | 4.0 | 2.0 | 4.15 |"
    assert lines[5] == "| more than 5 % | 1 |  |  |  |  | 1 |"


def test_an_unknown_family_is_one_line(tmp_path):
    with pytest.raises(SystemExit) as error, one_line("babi.py"):
        babi.main(["--family=memn3n", f"--data_dir={tmp_path}"])
    assert str(error.value).startswith("babi.py: ") and "did you mean memnn" in str(error.value)
    with pytest.raises(UserError, match=r"--tasks=1,21: 21 is not one of 1, 2"):
        babi.main(["--tasks=1,21", f"--data_dir={tmp_path}"])


def save_config_of(workdir, number):
    """Writes the config.json of a run on one of the twenty tasks."""
    config = base.get_config(task="babi", model="memn2n")
    config.task.numbers = (number,)
    save_config(workdir, config)


def test_a_table_of_some_tasks_does_not_replace_that_of_all(tmp_path, monkeypatch, capsys):
    metrics = {"accuracy": {"mean": 75.0, "std": 0.0, "seeds": [75.0]}}
    for job in sweep.named(babi.runs("memn2n", (1, 2)), pathlib.Path("babi.py")):
        (tmp_path / job.name).mkdir()
        result = {"metrics": metrics, "seeds": [0], "commit": "0123456789abcdef", "train_seconds": 90.0}
        (tmp_path / job.name / "result.json").write_text(json.dumps(result))
        save_config(tmp_path / job.name, override(load_config_file(job.config), sweep.overrides_of(job)))
    monkeypatch.setattr(babi, "RESULTS", tmp_path)
    arguments = [f"--data_dir={tmp_path}", f"--runs={tmp_path}"]

    def interrupted(*_):
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(babi, "run_jobs", interrupted)
    with pytest.raises(SystemExit) as error, one_line("babi.py"):
        babi.main(arguments)
    assert error.value.code == 143 and capsys.readouterr().out == ""
    monkeypatch.setattr(babi, "run_jobs", lambda todo, *_: [job.name for job in todo[2:]])
    with pytest.raises(SystemExit, match="18 runs failed"):
        babi.main(arguments)
    assert "mean of 2" in capsys.readouterr().out and not (tmp_path / "babi_memn2n.md").exists()
    # Asked for what there is, it says what is missing.
    monkeypatch.setattr(babi, "run_jobs", lambda *_: pytest.fail("--table trains nothing"))
    babi.main([*arguments, "--table"])
    written = (tmp_path / "babi_memn2n.md").read_text()
    assert "mean of 2" in written and "--table" not in written
    assert raw.read(tmp_path / "babi_memn2n.json")["results"]["tasks"][0]["errors"] == [25.0]
    assert "Trained at commit 0123456, 3 minutes.\n" in written
    assert written.endswith("Not trained to the end: " + ", ".join(map(str, range(3, 21))) + ".\n")
    with pytest.raises(UserError, match=r"holds the run of another config: train.num_steps is 0 there and 3 here"):
        babi.main([*arguments, "--table", "--config.train.num_steps=3"])


def test_added_results_keep_the_rows_of_tasks_that_are_not_here():
    def row(number, error):
        return babi.Row(number, [error], 0)._asdict()

    earlier = {"family": "dmn_plus", "tasks": [row(1, 1.0), row(9, 2.0)], "missing": [7, 8]}
    earlier |= {"commits": ["aaaaaaa"], "train_seconds": 60.0}
    here = {"family": "dmn_plus", "tasks": [row(7, 3.0), row(9, 4.0)], "missing": [1, 8]}
    here |= {"commits": ["aaaaaaa", "0123456"], "train_seconds": 30.0}
    expected = {"family": "dmn_plus", "tasks": [row(1, 1.0), row(7, 3.0), row(9, 4.0)], "missing": [8]}
    assert babi.added(here, earlier) == expected | {"commits": ["0123456", "aaaaaaa"], "train_seconds": 90.0}


@pytest.mark.parametrize("before, now, wanted", [(1.0, None, "give --fresh"), (None, 1.0, "leave --fresh out")])
def test_rows_with_and_without_new_stories_are_not_one_table(before, now, wanted):
    earlier, here = ({"tasks": [babi.Row(n, [1.0], 0, fresh)._asdict()]} for n, fresh in ((1, before), (2, now)))
    with pytest.raises(UserError, match=f"--add: .*; {wanted}"):
        babi.added(here, earlier)


def test_adding_to_no_page_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(babi, "RESULTS", tmp_path)
    with pytest.raises(UserError, match=r"--add: .*babi_memn2n\.json does not exist"):
        babi.main([f"--data_dir={tmp_path}", "--add", "--table"])


def test_fresh_questions_are_new():
    known = set(babi.make_fresh(1, set()).source)
    fresh = babi.make_fresh(1, known)
    assert len(fresh) == babi.FRESH and not known & set(fresh.source)


def test_a_finished_run_is_read_from_its_result(tmp_path):
    job = next(iter(sweep.named(babi.runs("memn2n", (4,)), pathlib.Path("babi.py"))))
    metrics = {"accuracy": {"mean": 75.0, "std": 1.0, "seeds": [70.0, 80.0]}}
    (tmp_path / "result.json").write_text(json.dumps({"metrics": metrics, "seeds": [3, 5], "chosen_seed": 5}))
    save_config_of(tmp_path, 4)
    assert babi.measure(job, tmp_path, "", False, False) == [babi.Row(4, [30.0, 20.0], 1)]
    (tmp_path / "result.json").unlink()
    with pytest.raises(UserError, match=r"result\.json"):
        babi.measure(job, tmp_path, "", False, False)
