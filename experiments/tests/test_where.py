"""Every run of the sweep is a valid config, those that need a start have it, and the page says what the results say."""

import pathlib
import shlex

import numpy as np
import pytest

from attn_jax.data.files import save_json
from attn_jax.errors import UserError
from attn_jax.runs.options import change, resolve
from attn_jax.runs.python_files import load_file
from attn_jax.runs.training import check
from attn_jax.sweeps.jobs import named
from attn_jax.sweeps.sweep_folder import named_alike
from attn_jax.tasks.images.scenes import ScenesOptions
from experiments import raw, where, where_beyond, xu_tricks

JOBS = list(named(where.sweep(), pathlib.Path("where.py")))


def test_every_run_of_the_sweep_is_a_valid_config():
    assert len(JOBS) == len(where.FRESH) + len(where.STARTED) == 12
    for job in JOBS:
        config = load_file(where.ROOT / job.config, "get_config")
        config = change(config, job.overrides)
        check(resolve(config))


def test_the_runs_with_a_start_come_after_the_soft_run_and_name_its_folder():
    starts = [job.overrides.get("train.start.workdir") for job in JOBS]
    assert starts == [None] * len(where.FRESH) + [f"runs/where/{JOBS[0].name}"] * len(where.STARTED)
    assert not any(key.startswith("model.") for key in JOBS[0].overrides)


def result(*values):
    metrics = {name: {"seeds": list(values)} for name in (*where.METRICS, "uniform")}
    return {"seeds": list(range(len(values))), "metrics": metrics, "num_parameters": 3, "steps": 1}


LOOKS = {
    "image": np.full((8, 8, 3), 9).tolist(),
    "edges": [[0.0, 4.0, 8.0]] * 2,
    "words": ["a", "disc"],
    "boxes": [[], [[1, 1, 5, 5]]],
    "variants": {"soft": np.full((2, 2, 2), 0.25).tolist(), "marginal": np.eye(4).reshape(4, 2, 2)[:2].tolist()},
}


def test_differences_are_to_soft_attention_of_as_many_steps():
    found = {"soft": result(2.0, 4.0), "marginal": result(3.0, 5.0), "soft, trained on": result(5.0, 7.0)}
    text = where.report(found | {"hard, running mean": result(5.5, 7.5)})
    assert "| marginal | 4.0 ± 12.7 |" in text and "| marginal − soft | 1.0 ± 0.0 |" in text
    assert "| hard, running mean * | 6.5 ± 12.7 |" in text
    assert "| hard, running mean − soft, trained on | 0.5 ± 0.0 |" in text and text.count("−") == 2
    alone = where.report({"soft": result(2.0), "marginal": result(3.0)})
    assert "| marginal | 3.0 | 3.0 | 3.0 | 3.0 | 3.0 | 3.00 |" in alone and "−" not in alone


def test_the_page_is_made_of_the_finished_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(where, "looks", lambda *args: LOOKS)
    monkeypatch.setattr(where, "measure", lambda path: result(2.0, 4.0)["metrics"])
    runs = tmp_path / "runs"
    for job in JOBS[:2]:
        kept = result(2.0, 4.0) | {"train_seconds": 1.0, "checkpoint": "best checkpoint (step 1)"}
        save_json(runs / job.name / "result.json", kept | {"examples": []})
    where.main([f"--runs={runs}", f"--out={tmp_path}", "--table"])
    text = (tmp_path / "where.md").read_text(encoding="utf-8")
    assert "| sparsemax | 3.0 ± 12.7 |" in text and "Not trained to the end: largest norm, 2 cells, marginal" in text
    assert where.page(raw.read(tmp_path / "where.json")) == text and (tmp_path / "where.png").exists()
    where.main([f"--runs={runs}", f"--out={tmp_path}", "--table", "--small", "--name=where_mnist"])
    text = (tmp_path / "where_mnist.md").read_text(encoding="utf-8")
    assert "`python experiments/where.py --name=where_mnist --small`" in text and "(where_mnist.png)" in text
    assert "Not trained to the end: marginal, soft, trained on, hard, learned baseline" in text
    override = "--config.task.kinds=('digits',)"
    where.main([f"--runs={runs}", f"--out={tmp_path}", "--table", override])
    assert shlex.split(raw.read(tmp_path / "where.json")["command"]) == ["python", "experiments/where.py", override]
    with pytest.raises(UserError, match="unknown argument '--config'"):
        where.main(["--config"])
    with pytest.raises(UserError, match="no run is finished"):
        where.main([f"--runs={tmp_path / 'none'}", "--table"])


def test_one_cell_alone_is_read_by_every_variant():
    for job in JOBS:
        config = load_file(where.ROOT / job.config, "get_config")
        config = change(config, job.overrides)
        single = where.one_cell(config)
        check(resolve(single))
        objective = single.model.objective
        if objective.name == "top":
            assert objective.num_samples == 1
        else:
            reading = objective.reading
            assert (objective.name, reading.name, reading.num_samples) == ("trajectory", "reinforce", 1)


def test_the_figure_has_a_row_for_each_variant_and_a_column_for_each_word():
    drawn = where.figure({"results": {"looks": LOOKS}})
    assert len(drawn.axes) == 4 and [axes.get_title() for axes in drawn.axes] == ["a", "disc", "", ""]
    assert [len(axes.patches) for axes in drawn.axes] == [0, 1, 0, 1]


def test_a_smaller_sweep_has_the_runs_of_the_whole_one():
    small = named(where.sweep(names=where.SMALL), pathlib.Path("where.py"))
    assert len(small) == len(where.SMALL)
    assert all(any(named_alike(one.name, other.name) for other in JOBS) for one in small)


# ---- the tricks of Xu 2015, and scenes beyond training


def test_every_trick_is_on_and_off_alone_and_with_the_others():
    jobs = list(named(xu_tricks.sweep(), pathlib.Path("xu_tricks.py")))
    assert len(jobs) == len(xu_tricks.VARIANTS) == 2**3
    settings = set()
    for job in jobs:
        config = load_file(where.ROOT / job.config, "get_config")
        config = change(config, job.overrides)
        check(resolve(config))
        objective, penalties = config.model.objective, config.model.penalties
        bonus = penalties.parts.entropy.weight if penalties.pattern == ("entropy",) else 0.0
        assert len(penalties.pattern) == (bonus > 0)
        settings.add((objective.baseline.name, bonus, objective.mean_probability))
        start = config.train.start.to_dict()
        assert start == {"name": "run", "workdir": f"runs/where/{JOBS[0].name}"} and objective.name == "trajectory"
    assert len(settings) == 8


def test_the_page_of_the_tricks_compares_with_all_of_them(tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    jobs = list(named(xu_tricks.sweep(), pathlib.Path("xu_tricks.py")))
    values = {job.name: own for job, own in zip(jobs, [(4.0, 6.0), (3.0, 5.0)], strict=False)}
    monkeypatch.setattr(where, "measure", lambda path: result(*values[path.name])["metrics"])
    for name in values:
        kept = result() | {"train_seconds": 1.0, "checkpoint": "best checkpoint (step 1)"}
        save_json(runs / name / "result.json", kept)
    xu_tricks.main([f"--runs={runs}", f"--out={tmp_path}", "--table"])
    text = (tmp_path / "xu_tricks.md").read_text(encoding="utf-8")
    assert "| without baseline − all three | -1.0 ± 0.0 |" in text and "Not trained to the end: without entropy" in text
    assert xu_tricks.page(raw.read(tmp_path / "xu_tricks.json")) == text


def test_worlds_beyond_training_differ_in_one_thing():
    task = ScenesOptions(num_objects=(1, 2))
    worlds = {name: where_beyond.changed(task, changes) for name, changes in where_beyond.BEYOND.items()}
    assert worlds["as in training"] == task and worlds["16 pieces of clutter"].clutter == 16
    assert worlds["as many objects as most"].num_objects == (2, 2) and worlds["one object more"].num_objects == (3, 3)
    record = {"results": {"runs": {"soft": {name: {m: [1.0] for m in where_beyond.METRICS} for name in worlds}}}}
    record |= {"command": "c", "seconds": 1, "processor_seconds": 1, "date": "2026-11-24", "commit": "abc", "cores": 1}
    record |= {"machine": "m", "load": [0, 0], "versions": {"python": "3.11"}}
    text = where_beyond.page(record)
    assert text.count("| soft | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 |") == 2 and "one object more" in text
    assert "Differences" not in text  # of a single seed
    with pytest.raises(UserError, match=r"no run is finished; train them with python experiments/where.py"):
        where_beyond.main(["--runs=nowhere"])


def test_differences_beyond_training_are_to_soft_attention_of_as_many_steps():
    values = {"soft": [50.0, 60.0], "marginal": [51.0, 61.0], where.STARTED_BASELINE: [70.0, 80.0]}
    values |= {"hard, running mean": [72.0, 82.0]}
    runs = {
        variant: {name: {"exact_match": seeds} for name in where_beyond.BEYOND} for variant, seeds in values.items()
    }
    text = where_beyond.differences(runs, "exact_match")
    assert "| marginal − soft | 1.0 ± 0.0 |" in text
    assert f"| hard, running mean − {where.STARTED_BASELINE} | 2.0 ± 0.0 |" in text and text.count("−") == 2
