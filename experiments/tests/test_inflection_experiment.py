"""Every run is a config that can be checked, and the table says what the results say."""

import json
import pathlib
import shlex
import subprocess

import pytest
from ml_collections import ConfigDict

from attn_jax.data.files import load_json
from attn_jax.errors import UserError
from attn_jax.runs.checks import check
from attn_jax.runs.options import change, resolve
from attn_jax.runs.python_files import load_file
from attn_jax.runs.tree import flatten
from attn_jax.sweeps.jobs import jobs
from experiments import captions, inflection, inflection_peer, render, soft_vs_hard_tags, translation

ROOT = pathlib.Path(inflection.__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment, count", [(inflection, 3), (soft_vs_hard_tags, 3), (translation, 6), (captions, 3)]
)
def test_every_run_is_a_valid_config_with_a_name_of_its_own(experiment, count):
    runs = list(experiment.sweep())
    for run in runs:
        config = load_file(ROOT / run.pop("config"), "get_config")
        check(resolve(change(config, run)))
        assert len(run["seeds"]) == count
    assert len({job.name for job in jobs(pathlib.Path(experiment.__file__))}) == len(runs)


def test_the_settings_are_what_the_sweep_trains():
    for setting, run in zip(inflection.RUNS, inflection.sweep(), strict=True):
        assert run["task.language"] == setting.language and ("task.hallucinated" in run) == setting.made
        assert (run["task.size"] == "high") == (setting.forms == inflection.ALL)
        assert (run["config"] == "configs/inflection_soft.py") == (setting.place == "first")
    assert len(set(inflection.RUNS)) == len(inflection.RUNS)


@pytest.mark.parametrize(
    "name, setting",
    [
        ("inflection_wide", inflection.Setting("german", "fed", inflection.FIRST[1], False, 320, inflection.ALL)),
        ("inflection_few_forms", inflection.Setting("german", "fed", inflection.FIRST[1], True, 320)),
    ],
)
def test_a_config_is_the_run_whose_numbers_it_gives(name, setting):
    run = dict(zip(inflection.RUNS, inflection.sweep(), strict=True))[setting]
    config = change(load_file(ROOT / "configs" / f"{name}.py", "get_config"), {"task.language": "german"})
    trained = flatten(change(load_file(ROOT / run.pop("config"), "get_config"), run))
    apart = {"name", "description", "seeds", "eval.num_pictures", "train.num_epochs"}  # num_steps is read before these
    assert {key: value for key, value in flatten(config).items() if trained[key] != value and key not in apart} == {}


def test_a_row_has_the_interval_of_its_seeds():
    metrics = {"exact_match": {"seeds": [60.0, 62.0, 64.0]}, "loss": {"seeds": [0.2, 0.3, 0.4]}}
    found = {
        "setting": inflection.RUNS[0]._asdict(),
        "result": {"metrics": metrics, "steps": 1280, "train_seconds": 99.6, "batch_size": 32},
    }
    row = inflection.report([found]).splitlines()[-1]
    # t of two degrees of freedom, 4.3027, times 2 / sqrt(3)
    interval, seeds = "62.0 [57.0, 67.0]", "60.0, 62.0, 64.0"
    assert row == f"| german | fed | soft | 128 | 32 | 1,000 | no | {interval} | {seeds} |  | 0.300 | 1,280 | 100 |"


def test_differences_are_of_runs_that_differ_in_one_thing():
    def run(values, **changes):
        setting = inflection.RUNS[0]._replace(**changes)._asdict()
        return {"setting": setting, "result": {"metrics": {"exact_match": {"seeds": values}}}}

    soft, made, marginal = (
        run([60.0, 62.0, 64.0]),
        run([70.0, 74.0, 72.0], made=True),
        run([61.0, 63.0, 65.0], reading="marginal"),
    )
    lines = inflection.differences([soft, made, marginal]).splitlines()[2:]
    # gaps of 10, 12, 8: mean 10, standard deviation 2, and 4.3027 * 2 / sqrt(3) = 4.97
    assert lines == [
        "| made: True − False | german, fed, soft, 128, 1,000 forms | +10.0 [+5.0, +15.0] |",
        "| reading: marginal − soft | german, fed, 128, 1,000 forms | +1.0 [+1.0, +1.0] |",
    ]


GREEDY = {"name": "greedy"}


def test_an_ensemble_is_that_of_an_evaluation_of_all_seeds_on_the_same_sentences(tmp_path):
    metrics = {"exact_match": {"mean": 70.0}}
    result = {"split": "valid", "sentences": 3, "decode": {"method": GREEDY, "ensemble": {"name": "none"}}}
    together = result | {"decode": {"method": GREEDY, "ensemble": {"name": "seeds"}}, "metrics": metrics}
    assert inflection.of_ensemble(tmp_path, result) == {}
    beam = {"decode": {"method": {"name": "beam"}, "ensemble": {"name": "seeds"}}}
    for changes, found in [({}, {"ensemble": metrics}), (result, {}), ({"split": "files"}, {}), (beam, {})]:
        (tmp_path / "eval.json").write_text(json.dumps(together | changes))
        assert inflection.of_ensemble(tmp_path, result) == found


def test_an_ensemble_of_runs_has_its_members(tmp_path, monkeypatch):
    runs = {}
    for reading, values in inflection.READINGS.items():
        config = load_file(ROOT / "configs/inflection_wide.py", "get_config")
        changes = {"task.language": "finnish", "seeds": (3, 4), "model.objective": "soft"}
        runs[reading] = change(config, changes | values)
    monkeypatch.setattr(inflection, "load_config", lambda path: runs[path.name])
    first, *others = runs
    (tmp_path / first).mkdir()
    measured = {
        "decode": {"ensemble": {"name": "runs", "workdirs": others, "every_seed": True}},
        "metrics": {"exact_match": {"mean": 94.6}, "loss": {"mean": 0.02}},
    }
    measured |= {"split": "valid", "sentences": 9, "commit": "0a", "date": "2026", "machine": "m"}
    (tmp_path / first / "eval.json").write_text(json.dumps(measured))
    found = inflection.of_runs(tmp_path / first)
    assert [member["reading"] for member in found["members"]] == list(inflection.READINGS)
    row = inflection.ensembles([found | {"members": found["members"][-1:]}]).splitlines()[-1]
    assert row == "| finnish | high | monotonic, first order, width 320, seeds 3, 4 | 94.6 | 0.020 |"
    runs["hard"].task.language = "german"
    with pytest.raises(UserError, match="expected one language and size"):
        inflection.of_runs(tmp_path / first)
    for ensemble in ({"name": "seeds"}, {"name": "none"}, {"name": "runs", "workdirs": others, "every_seed": False}):
        (tmp_path / first / "eval.json").write_text(json.dumps(measured | {"decode": {"ensemble": ensemble}}))
        with pytest.raises(UserError, match="no ensemble of several runs"):
            inflection.of_runs(tmp_path / first)


def test_the_difference_of_readings_is_to_soft_whichever_is_first():
    def run(reading, values):
        setting = inflection.RUNS[0]._replace(reading=reading)._asdict()
        return {"setting": setting, "result": {"metrics": {"exact_match": {"seeds": values}}}}

    soft, exact = run("soft", [60.0, 62.0, 64.0]), run("marginal", [61.0, 63.0, 65.0])
    assert inflection.differences([soft, exact]) == inflection.differences([exact, soft])
    assert "marginal − soft" in inflection.differences([exact, soft])


def test_rows_of_runs_that_are_not_here_are_kept():
    """An earlier record has no number of forms: there was one size."""
    first, second, third = inflection.RUNS[:3]

    def row(setting, steps, without=()):
        return {"setting": {k: v for k, v in setting._asdict().items() if k not in without}, "result": {"steps": steps}}

    earlier = [row(first, 1, ("forms",)), row(third, 3)]
    found = inflection.added([row(third, 4), row(second, 2)], earlier)
    assert [one["result"]["steps"] for one in found] == [1, 2, 4]
    assert [inflection.Setting(**one["setting"]) for one in found] == [first, second, third]


def test_translation_has_seeds_and_ensemble_of_each_metric():
    metrics = {"bleu": [30.0, 32.0], "chrf": [40.0, 40.0], "perplexity": [3.0, 4.0]}
    measured = {name: {"seeds": values, "ensemble": max(values)} for name, values in metrics.items()}
    run = {"config": "enja_soft", "size": "small", "measured": {"greedy": measured}, "train_seconds": 120}
    report = translation.report([run])
    row = report.splitlines()[-1]
    assert "small" in report  # the size that all rows share, above the table
    assert row == "| enja_soft | greedy | 31.0 ± 12.7 | 32.0 | 40.0 ± 0.0 | 40.0 | 3.50 ± 6.35 | 4.00 | 2 |"


@pytest.mark.parametrize(
    "train, expected",
    [(("train.en", "train.ja"), ("dev.en", "dev.ja")), (("train.ja", "train.en"), ("dev.ja", "dev.en"))],
)
def test_a_translation_is_measured_in_its_own_direction(train, expected, tmp_path, monkeypatch):
    metrics = {name: {"seeds": [1.0]} for name in translation.METRICS}
    monkeypatch.setattr(translation, "load_config", lambda workdir: ConfigDict({"task": {"train": train}}))
    monkeypatch.setattr(translation, "load_json", lambda path: {"metrics": metrics})
    commands = []

    def run(command, **options):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(translation.subprocess, "run", run)
    found = translation.measure(tmp_path / "run", tmp_path, "dev")
    assert found["beam"]["bleu"] == {"seeds": [1.0], "ensemble": 1.0} and len(commands) == 4
    for command in commands:
        assert {f"--source={tmp_path / expected[0]}", f"--target={tmp_path / expected[1]}"} <= set(command)


LOG = """INFO - 11/25/26 01:06:37 - 0:00:00 - number of parameter 2206487
INFO - 11/25/26 01:14:54 - 0:08:17 - dev accuracy is 67.4 at epoch 25\r 50%|| 25/50 [00:07<00:09,  2.66it/s]
INFO - 11/25/26 01:16:11 - 1:09:34 - dev accuracy is 67.6 at epoch 28
INFO - 11/25/26 01:16:11 - 1:09:34 - loading /tmp/m.nll_0.2106.acc_68.1.dist_0.933.epoch_19 for testing
"""


def test_a_training_to_the_last_epoch_takes_the_last_that_is_best_in_both():
    measured = [(80.0, 0.5), (81.0, 0.6), (80.0, 0.4), (82.0, 0.4), (83.0, 0.41)]
    log = "".join(
        f"- 0:00:0{epoch} - dev accuracy is {accuracy} at epoch {epoch}\n"
        f"- 0:00:0{epoch} - dev average edit distance is {distance} at epoch {epoch}\n"
        for epoch, (accuracy, distance) in enumerate(measured)
    )
    assert inflection_peer.chosen(f"maximum training 25 steps (5 epochs)\n{log}") == (3, 82.0)
    assert inflection_peer.chosen(f"maximum training 30 steps (6 epochs)\n{log}") is None


def test_the_log_of_the_other_program_is_read_once_it_has_ended(tmp_path):
    run = inflection_peer.Setting("german", "soft", 1000)
    found = inflection_peer.facts(LOG)
    assert found["accuracy"] == {"25": 67.4, "28": 67.6} and found["seconds"] == 3600 + 9 * 60 + 34
    assert inflection_peer.report([{"setting": run._asdict()} | found]).splitlines()[-1] == (
        "| german | soft | 1,000 | 2,206,487 | 68.1 (epoch 19) | 67.6 (epoch 28) | 4,174 |"
    )
    with pytest.raises(UserError, match="has ended"):
        inflection_peer.facts(LOG[:-120])
    with pytest.raises(UserError, match="expected a clone of neural-transducer"):
        inflection_peer.train(tmp_path, tmp_path, run, tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    with pytest.raises(UserError, match="german-train-medium: there is no such file"):
        inflection_peer.train(tmp_path, tmp_path, run, tmp_path)
    (tmp_path / "german_1000_soft.log").write_text(LOG)
    assert inflection_peer.train(tmp_path, tmp_path, run, tmp_path) == (tmp_path / "german_1000_soft.log").read_text()


def test_a_run_of_the_other_program_is_not_taken_for_one_of_other_settings(tmp_path, monkeypatch, capsys):
    def run(command, log, **_):
        log.write_text(LOG)
        return LOG

    monkeypatch.setattr(inflection_peer.peers, "run", run)
    for name in ("src/train.py", "german-train-high", "german-dev"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    setting = inflection_peer.Setting("german", "monotonic, first order", inflection_peer.FORMS * 10)
    for data in (tmp_path, tmp_path / "moved"):  # a log that is kept needs no data
        inflection_peer.train(tmp_path, data, setting, tmp_path)
    kept = load_json(tmp_path / f"{setting.name}.settings.json")
    assert {"epochs": "20", "mono": True, "train": "german-train-high", "dropout": "0.4"}.items() <= kept[
        "settings"
    ].items()
    assert shlex.split(kept["command"])[-2:] == ["--forms=10000", "--reading=monotonic, first order"]
    assert capsys.readouterr().err == ""
    monkeypatch.setitem(inflection_peer.SIZES, 10_000, ("high", 40))
    with pytest.raises(
        UserError, match=r'first_order\.log is of other settings \(epochs: "20" there, "40" now\); remove'
    ):
        inflection_peer.train(tmp_path, tmp_path, setting, tmp_path)


def test_a_run_of_the_other_program_is_put_beside_the_earlier_ones(tmp_path):
    for language, reading in (("german", "soft"), ("finnish", "monotonic, first order"), ("german", "soft")):
        run = inflection_peer.Setting(language, reading, 10_000)
        (tmp_path / f"{run.name}.log").write_text(LOG)
        arguments = ["--program=there", "--data_dir=data", f"--language={language}", "--forms=10000"]
        inflection_peer.main([*arguments, f"--reading={reading}", f"--runs={tmp_path}", f"--out={tmp_path}"])
    record = load_json(tmp_path / "inflection_peer.json")
    assert [fact["setting"]["language"] for fact in record["results"]["runs"]] == ["finnish", "german"]
    assert (tmp_path / "inflection_peer.md").read_text().count("| 68.1 (epoch 19) |") == 2
    program, data, *chosen = shlex.split(record["command"])[2:]
    assert [program, data] == ["--program=there", "--data_dir=data/data"]
    assert chosen == ["--language=german", "--forms=10000", "--reading=soft"]


def test_a_row_keeps_the_command_commit_and_date_of_its_own_training(tmp_path, monkeypatch):
    def run(command, log, **_):
        log.write_text(LOG)
        return LOG

    def measure(reading):
        arguments = [f"--program={tmp_path}", f"--data_dir={tmp_path}", "--language=german", f"--reading={reading}"]
        inflection_peer.main([*arguments, f"--runs={tmp_path}", f"--out={tmp_path}"])
        return (tmp_path / "inflection_peer.md").read_text()

    known = {"commit": "abcdef0123", "date": "2026-11-25T01:00:00"}
    monkeypatch.setattr(inflection_peer.peers, "run", run)
    monkeypatch.setattr(inflection_peer.peers, "provenance", lambda: known)
    for name in ("src/train.py", "german-train-medium", "german-dev"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "german_1000_monotonic_first_order.log").write_text(LOG)  # its origin was not kept
    text = measure("monotonic, first order")
    assert "measured at" not in text and text.count("- `python") == 1
    text = measure("soft")
    assert "| last | s | measured at |" in text
    assert "| 4,174 | abcdef0, 2026-11-25 |" in text and "| 4,174 |  |" in text and text.count("- `python") == 2
    # A later run of another row leaves the origin of this one, also where this one is read again.
    known["commit"] = "another"
    for reading in ("monotonic, first order", "soft"):
        assert "| 4,174 | abcdef0, 2026-11-25 |" in measure(reading)
    rows = load_json(tmp_path / "inflection_peer.json")["results"]["runs"]
    assert "origin" not in rows[0] and rows[1]["origin"]["commit"] == "abcdef0123"
    assert shlex.split(rows[1]["origin"]["command"])[-2:] == ["--language=german", "--reading=soft"]
    assert "abcdef0, 2026-11-25" in render.render_document("<!-- inflection_peer -->\n<!-- end -->\n", tmp_path)
