"""Every set of overrides is a run of its own: skipped when finished, reported when failed, a row of the table."""

import json
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from itertools import product

import pytest

from attn_jax.cli.compare import compare_runs
from attn_jax.errors import Interrupted, UserError
from attn_jax.evaluation.metrics import summarize
from attn_jax.runs.workdir import save_config
from attn_jax.sweeps import sweep
from attn_jax.sweeps.grid import grid, read_seeds
from attn_jax.sweeps.jobs import config_of, labels
from attn_jax.sweeps.processes import Process

EDITED = """
from configs import quickstart


def get_config():
    config = quickstart.get_config()
    config.model.decoder.cell = "gru"
    return config
"""
PLACES = ("attention", "decoder.attention", "decoder.source_attention")
ROOT = pathlib.Path(__file__).resolve().parents[2]

FAKE = """
import json, os, pathlib, sys, time
options = dict(argument.lstrip("-").split("=", 1) for argument in sys.argv[1:])
print("working with", *sorted(sys.argv[1:]), "")
if options["config.seed"] == "2":
    sys.exit("launch.py: the loss became NaN at step 7")
if options["config.seed"] in ("3", "13"):
    print("sleeping", flush=True)
    time.sleep(60)
if options["config.seed"] == "4":
    sys.exit(143)  # the training itself was told to end, and saved
seeds = [float(options["config.seed"]), 2.0]
metrics = {"loss": {"mean": 1.25, "std": 0.5, "seeds": seeds}, "bleu": {"mean": 30.0, "std": 0.0, "seeds": [30.0]}}
pathlib.Path(options["workdir"], "result.json").write_text(json.dumps({"metrics": metrics, "seeds": [0, 1]}))
if options["config.seed"] == "6":
    others = pathlib.Path(options["workdir"]).parent.glob("*seed=7*/here")
    for _ in range(1000):
        time.sleep(0.01)
        if list(others) or list(pathlib.Path(options["workdir"]).parent.glob("*seed=7*/here")):
            break
    else:
        sys.exit("launch.py: alone")
if options["config.seed"] == "7":
    pathlib.Path(options["workdir"], "here").write_text("")
    time.sleep(0.3)
if options["config.seed"] in ("8", "9"):
    tried = pathlib.Path(options["workdir"], "tried")
    if options["config.seed"] == "9" or not tried.exists():
        tried.write_text("")
        os.kill(os.getpid(), 9)
if options["config.seed"] == "5":
    sys.exit("launch.py: no space left for the pictures")
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A program that needs no time, and a sweep file of these seeds."""
    (tmp_path / "launch.py").write_text(FAKE)
    monkeypatch.setattr(sweep, "PROGRAM", (sys.executable, str(tmp_path / "launch.py")))

    def write(*seeds):
        path = tmp_path / "three.py"
        rows = [{"config": "configs/quickstart.py", "seed": seed, "model.attention.score": "dot"} for seed in seeds]
        path.write_text(f"def sweep():\n    yield from {rows!r}\n")
        return path

    return write


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.encodr": "gru"}, "unknown config key model.encodr; did you mean model.encoder?; nothing was run"),
        ({"model.hidden_size": "many"}, "expected an integer"),
        ({"model.encoder": "gruu"}, "did you mean gru"),
        (
            {"decode.beam_size": 3},
            "key decode.beam_size; did you mean decode.method.beam_size, with decode.method=beam?",
        ),
        ({"config": "configs/quikstart.py"}, "did you mean quickstart.py"),
    ],
)
def test_a_wrong_override_of_one_run_is_told_before_anything_runs(changes, message, fake, tmp_path):
    rows = [{"config": "configs/quickstart.py", "seed": 0}, {"config": "configs/quickstart.py", "seed": 1} | changes]
    path = tmp_path / "wrong.py"
    path.write_text(f"def sweep():\n    yield from {rows!r}\n")
    with pytest.raises(UserError) as error:
        sweep.run_sweep(path, str(tmp_path / "runs"), [])
    assert message in str(error.value) and "seed=1" in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_runs_are_made_skipped_reported_and_listed(fake, tmp_path, capsys):
    path, folder = fake(0, 2), tmp_path / "runs"
    common = ["--config.train.num_steps=5"]
    names = [job.name for job in sweep.jobs(path, common)]
    with pytest.raises(UserError, match=f"1 of 2 runs failed: {names[1]}"):
        sweep.run_sweep(path, str(folder), common)
    out, err = capsys.readouterr()
    table = ["| run | loss | bleu | seeds |", "| --- | --- | --- | --- |", "| seed=0 | 1.25 (SD 0.5) | 30 | 2 |"]
    assert out.splitlines() == [*table, "", "SD: standard deviation over the seeds"]
    log = folder / names[1] / "log.txt"
    assert err.splitlines() == [
        f"sweep         1/2  {names[0]}",
        f"              log: {folder / names[0] / 'log.txt'}",
        f"sweep         2/2  {names[1]}",
        f"              log: {log}",
        f"              failed: launch.py: the loss became NaN at step 7 ({log})",
    ]
    results = json.loads((folder / "results.json").read_text())
    assert list(results["runs"]) == names[:1] and results["without_result"] == names[1:]
    run = results["runs"][names[0]]
    assert run["result"] == json.loads((folder / names[0] / "result.json").read_text())
    assert run["config"] == "configs/quickstart.py" and "--config.train.num_steps=5" in run["overrides"]
    assert {"commit", "machine", "date", "versions"} <= results.keys()
    words = (folder / names[0] / "log.txt").read_text()
    for option in (
        "--config.train.num_steps=5",
        "--config=configs/quickstart.py",
        "--config.model.attention.score=dot",
    ):
        assert option in words
    assert f"--workdir={folder / names[0]}" in words

    sweep.run_sweep(fake(0, 1), str(folder), ["--config.data_dir=elsewhere", "--config.train.num_steps=5"])
    out, err = capsys.readouterr()
    assert f"              finished before: {folder / names[0] / 'result.json'}" in err.splitlines()
    first, _, second = (part.splitlines() for part in out.split("\n\n")[:3])
    assert len(first) == 4 and first[:3] == table
    assert second[0] == "| difference to seed=0 | loss |" and len(second) == 3


def test_a_sweep_in_the_folder_of_a_run_is_one_line(fake, tmp_path):
    path, folder = fake(0), tmp_path / "runs"
    sweep.run_sweep(path, str(folder), [])
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match="is the work directory of a run; expected a folder for the runs of a sweep"):
        sweep.run_sweep(path, str(folder), [])


def test_a_run_of_another_config_has_another_folder_and_a_changed_one_is_refused(fake, tmp_path):
    path, folder, common = fake(0), tmp_path / "runs", ["--config.train.num_steps=5"]
    (job,) = sweep.jobs(path, common)
    sweep.run_sweep(path, str(folder), common)
    config = config_of(job, common)
    save_config(folder / job.name, config)
    sweep.run_sweep(path, str(folder), [*common, "--config.train.log_every=7", "--config.data_dir=elsewhere"])
    assert len(list(folder.glob("*/result.json"))) == 1  # what changes no number
    for other in ([], [*common, "--config.decode.method=beam"], [*common, "--config.model.decoder.cell=gru"]):
        before = len(list(folder.glob("*/result.json")))
        sweep.run_sweep(path, str(folder), other)
        assert len(list(folder.glob("*/result.json"))) == before + 1
    config.train.num_steps += 1
    save_config(folder / job.name, config)
    with pytest.raises(UserError, match=f"{job.name} holds the run of another config: train.num_steps is 6 there"):
        sweep.run_sweep(path, str(folder), common)


def test_a_sweep_of_which_nothing_has_a_result_prints_no_table(fake, tmp_path, capsys):
    with pytest.raises(UserError, match="1 of 1 runs failed"):
        sweep.run_sweep(fake(2), str(tmp_path / "runs"), [])
    assert capsys.readouterr().out == ""


def test_a_run_of_a_config_that_was_changed_while_the_sweep_ran_has_failed(fake, tmp_path, capsys):
    """Its name, which has the name of the file and the overrides, is that of the run that was asked for."""
    path, folder = fake(0), tmp_path / "runs"
    (job,) = sweep.jobs(path)
    config = config_of(job)
    config.train.log_every += 1
    save_config(tmp_path, config)
    program = tmp_path / "launch.py"
    copy = f"import shutil; shutil.copy('{tmp_path}/config.json', options['workdir'])\n"
    program.write_text(program.read_text() + copy)
    assert sweep.run_jobs([job], folder, []) == []  # an option that changes no number
    shutil.rmtree(folder)
    config.train.num_steps += 1
    save_config(tmp_path, config)
    assert sweep.run_jobs([job], folder, []) == [job.name]
    assert "its file was changed while the sweep ran" in (err := capsys.readouterr().err)
    assert "train.num_steps is" in err


@pytest.mark.slow
def test_one_sweep_at_a_time_in_a_folder(fake, tmp_path, capsys):
    """The log of a run that another sweep has begun would be taken for that of the run that could not begin."""
    path, folder = fake(0), tmp_path / "runs"
    code = "import sys, pathlib; from attn_jax.runs.locks import lock\n"
    code += "f = lock(pathlib.Path(sys.argv[1])); print(1); input()"
    command = [sys.executable, "-c", code, str(folder)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert other.stdout.readline() == "1\n"
    with pytest.raises(UserError, match=r"runs is in use: another process is writing there"):
        sweep.run_sweep(path, str(folder), [])
    assert [each.name for each in folder.iterdir()] == ["lock"]
    other.communicate("")
    for _ in range(2):
        sweep.run_sweep(path, str(folder), [])


@pytest.mark.parametrize("finished", [True, False])
def test_a_refused_sweep_runs_nothing_and_leaves_the_order_of_the_one_before(fake, tmp_path, finished):
    """The first run of the order is the baseline of its report."""
    folder = tmp_path / "runs"
    sweep.run_sweep(fake(1, 0), str(folder), [])
    (job,) = sweep.planned(sweep.jobs(path := fake(0)), folder)
    config = config_of(job)
    config.train.eval_every += 1
    save_config(folder / job.name, config)
    (folder / job.name / "result.json").touch()
    if not finished:
        (folder / job.name / "result.json").unlink(missing_ok=True)
        (folder / job.name / "checkpoints" / "2").mkdir(parents=True)
    before = (folder / "sweep.json").read_text()
    with pytest.raises(UserError, match="cannot read" if finished else "holds the run of another config"):
        sweep.run_sweep(path, str(folder), [])
    assert (folder / "sweep.json").read_text() == before


def test_a_damaged_result_is_told_before_anything_runs(fake, tmp_path):
    path, folder = fake(1, 0), tmp_path / "runs"
    _, job = sweep.jobs(path)
    (folder / job.name).mkdir(parents=True)
    for text, words in (('{"metrics": ', "not valid JSON"), ("{}", "expected the result of a run")):
        (folder / job.name / "result.json").write_text(text)
        with pytest.raises(UserError, match=rf"result\.json: {words}.*; delete it, and the same command measures"):
            sweep.run_sweep(path, str(folder), [])
    assert [each.name for each in folder.iterdir() if each.is_dir()] == [job.name]


def test_keys_that_end_alike_are_whole_in_labels():
    rows = [("configs/c.py", {}), *(("configs/c.py", {f"model.{place}.normalize": "softmax"}) for place in PLACES)]
    assert labels(rows) == ["c", *(f"model.{place}.normalize=softmax" for place in PLACES)]
    assert labels([("a/c.py", {}), ("d.py", {"model.output.name": (1, "x y")})]) == ["c", "d,output=1+xy"]


def test_the_log_of_a_failed_run_may_have_any_bytes(tmp_path):
    """One that was killed in the middle of a letter must not end the other runs of the sweep."""
    log = tmp_path / "log.txt"
    assert sweep._log_of(Process("run", [], log)) == ""
    log.write_bytes(b"epoch 1\ncaf\xe9")
    assert sweep._log_of(Process("run", [], log)) == "epoch 1\ncaf\ufffd"


def test_a_run_that_ends_with_an_error_has_failed_even_with_a_result(fake, tmp_path, capsys):
    with pytest.raises(UserError, match=r"1 of 1 runs failed: quickstart-"):
        sweep.run_sweep(fake(5), str(tmp_path / "runs"), [])
    assert "failed: launch.py: no space left for the pictures" in capsys.readouterr().err


@pytest.mark.parametrize("planted", ["log.txt", ""])
def test_a_planted_link_is_named_and_leads_nowhere(fake, tmp_path, planted):
    path, victim = fake(1), tmp_path / "victim"
    victim.mkdir() if not planted else victim.write_text("mine\n")
    (name,) = [job.name for job in sweep.jobs(path)]
    link = tmp_path / "runs" / name / planted
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    with pytest.raises(UserError, match=r" is a link; .*: remove it$") as error:
        sweep.run_sweep(path, str(tmp_path / "runs"), [])
    assert str(error.value).startswith(str(link))
    assert not any(victim.iterdir()) if not planted else victim.read_text() == "mine\n"


def test_commands_are_those_of_the_runs_without_a_result(fake, tmp_path, capsys):
    """Each trains its run as the sweep would."""
    path, folder, common = fake(0, 1), tmp_path / "runs", ["--config.train.keep=1"]
    names = [job.name for job in sweep.jobs(path)]
    sweep.run_sweep(path, str(folder), common, commands=True)
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert [line[: len(sweep.PROGRAM)] for line in lines] == [[*sweep.PROGRAM]] * len(names)
    assert [f"--workdir={folder / name}" for name in names] == [line[len(sweep.PROGRAM) + 1] for line in lines]
    assert all(common[0] in line for line in lines) and not folder.exists()
    (folder / names[0]).mkdir(parents=True)
    subprocess.run(lines[0], check=True, capture_output=True)
    sweep.run_sweep(path, str(folder), common, commands=True)
    assert [shlex.split(line) for line in capsys.readouterr().out.splitlines()] == lines[1:]


def test_runs_at_the_same_time(fake, tmp_path, capsys):
    sweep.run_sweep(fake(6, 7), str(tmp_path / "runs"), [], at_once=2)
    assert "failed" not in capsys.readouterr().err


def test_a_run_that_was_killed_is_tried_once_more(fake, tmp_path, capsys):
    with pytest.raises(UserError, match=r"1 of 2 runs failed: seed=9-"):
        sweep.run_sweep(fake(8, 9), str(tmp_path / "runs"), [])
    err = capsys.readouterr().err
    assert err.count("killed by signal 9, once more: seed=8-") == 1
    assert err.count("killed by signal 9, once more: seed=9-") == 1
    (log,) = (tmp_path / "runs").glob("*seed=9*/log.txt")
    assert f"              failed: killed by signal 9 ({log})" in err.splitlines()  # not what it wrote last


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 2])
def test_sigterm_is_passed_on(at_once, fake, tmp_path):
    path = fake(3, 0) if at_once == 1 else fake(3, 13, 0)
    code = "import sys, pathlib; from attn_jax import errors; from attn_jax.sweeps import sweep\n"
    code += "sweep.PROGRAM = (sys.executable, sys.argv[2])\n"
    code += "with errors.one_line('x'): sweep.run_sweep(pathlib.Path(sys.argv[1]), sys.argv[3], [], int(sys.argv[4]))"
    command = [sys.executable, "-c", code, str(path), sweep.PROGRAM[1], str(tmp_path / "runs"), str(at_once)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    logs = lambda: [file.read_text() for file in (tmp_path / "runs").glob("*/log.txt")]  # noqa: E731
    deadline = time.monotonic() + 60
    while sum("sleeping" in log for log in logs()) < at_once and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (128 + signal.SIGTERM, "")
    assert err.splitlines()[-1] == "interrupted   the same command goes on from there"
    assert not list((tmp_path / "runs").glob("seed=0-*"))


def test_a_run_that_was_told_to_end_has_not_failed_and_ends_the_sweep(fake, tmp_path, capsys):
    with pytest.raises(Interrupted) as error:
        sweep.run_sweep(fake(4, 0), str(tmp_path / "runs"), [])
    assert error.value.status == 143 and not list((tmp_path / "runs").glob("seed=0-*"))
    out, err = capsys.readouterr()
    assert out == "" and "failed" not in err
    assert err.splitlines()[-1] == "interrupted   the same command goes on from there"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("yield {'seed': 1}", 'without a "config", the file of the run\'s config'),
        ("yield 3", "yielded 3; expected a dict of overrides"),
        ("return None", "sweep() gave None; expected dicts of overrides"),
        ("yield {'config': nothing}", "name 'nothing' is not defined"),
        ("yield {'config': 'a.py', 3: 4}", "yielded the key 3; expected names of options"),
        ("yield from ()", "sweep() yielded no runs"),
        ("yield from 2 * [{'config': 'configs/quickstart.py', 'seed': 1}]", "the sweep has a run twice, quickstart-"),
    ],
)
def test_a_wrong_sweep_is_told_before_anything_runs(tmp_path, body, words):
    path = tmp_path / "x.py"
    path.write_text(f"def sweep():\n    {body}\n")
    with pytest.raises(UserError) as error:
        sweep.run_sweep(path, str(tmp_path / "runs"), [])
    assert words in str(error.value) and not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.py")), ids=lambda path: path.stem)
def test_the_sweeps_of_the_experiments_name_configs_and_keys_that_exist(path):
    if "def sweep(" not in path.read_text(encoding="utf-8"):
        pytest.skip("not a sweep")
    assert sweep.jobs(path)


@pytest.mark.parametrize("values", [("x" * 300, "y" * 300), ("d/x", "d_x", "d x"), ("訳" * 100, "a'b\"(c),d")])
def test_every_name_is_short_and_its_own_and_needs_no_quotes(tmp_path, values):
    rows = [{"config": "configs/quickstart.py", "data_dir": value, "train.num_steps": 3} for value in values]
    names = [job.name for job in sweep.named(rows, tmp_path)]
    assert len(set(names)) == len(values) and names == [job.name for job in sweep.named(rows, tmp_path)]
    assert all(len(name.encode()) < 255 and re.fullmatch(r"data_dir=[\w.+-]+-[0-9a-f]{6}", name) for name in names)


def pretend(todo, folder, common, at_once):
    """What the runs of a sweep leave, with the seed as the value of each seed."""
    for job in todo:
        if not (folder / job.name / "result.json").exists():
            save_config(folder / job.name, config_of(job, common))
            values = {"loss": summarize([float(seed) for seed in job.seeds])}
            (folder / job.name / "result.json").write_text(json.dumps({"metrics": values, "seeds": job.seeds}))
    return []


def test_a_run_is_found_again_though_the_sweep_grew_and_more_seeds_are_a_run_beside_it(tmp_path, monkeypatch, capsys):
    """The table has a row for each config, with all of its seeds; compare reads them together as well."""
    monkeypatch.setattr(sweep, "run_jobs", pretend)
    folder, rows = tmp_path / "runs", [{"config": "configs/quickstart.py", "train.num_steps": 3}]

    def run(seeds, rows):
        before = set(folder.glob("*/"))
        sweep.run_sweep(pathlib.Path("x"), str(folder), [f"--config.seeds={seeds}"], rows=rows)
        return sorted(path.name for path in set(folder.glob("*/")) - before)

    (first,) = run((0, 1), rows)
    rows.append(rows[0] | {"model.attention.score": "general"})
    (second,) = run((0, 1), rows)
    capsys.readouterr()
    assert run((0, 1, 2, 3), rows) == [f"{first}-seeds2..3", f"{second}-seeds2..3"]
    out, err = capsys.readouterr()
    assert first.startswith("quickstart-") and second.startswith("score=general-")
    assert f"seeds         {second}: 0, 1 are there, 2, 3 are trained" in err.splitlines()
    assert out.splitlines()[2:4] == ["| quickstart | 1.5 (SD 1.3) | 4 |", "| score=general | 1.5 (SD 1.3) | 4 |"]
    assert run((0, 1), rows) == [] and run((1, 3, 2, 7), rows[:1]) == [f"{first}-seeds7"]
    found = compare_runs(folder / f"{second}-seeds2..3", folder / first)
    assert found["seeds"] == [2, 3, 0, 1] and len(found["united"]) == 2


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["normalize=softmax,sparsemax; b=(1,2),(3, 4)"], [["softmax", "sparsemax"], ["(1,2)", "(3, 4)"]]),
        (["a='x,y',z", "--config.b=1"], [["'x,y'", "z"], ["1"]]),
        (["a=1,,2"], "'a=1,,2'; expected KEY=VALUE"),
        (["a=1;a=2"], "'a=2'; expected KEY=VALUE"),
        (["a=1,1"], "'a=1,1'; expected KEY=VALUE"),
        (["a=(1,2"], "a bracket or a quote that is not closed"),
        (["a=1;b"], "'b'; expected KEY=VALUE"),
    ],
)
def test_a_grid_on_the_command_line_has_all_combinations(texts, expected):
    if isinstance(expected, str):
        with pytest.raises(UserError, match=re.escape(expected)):
            grid("c", texts)
        return
    rows = grid("c", texts)
    assert [[row[key] for key in row if key != "config"] for row in rows] == list(map(list, product(*expected)))


@pytest.mark.parametrize(("text", "seeds"), [("0..5", (0, 1, 2, 3, 4, 5)), ("7", (7,)), ("2,0", (2, 0))])
def test_seeds_are_a_range_or_a_list(text, seeds):
    assert read_seeds(text) == seeds
    for wrong in (f"{text},", f"{text}..", "5..0", ""):
        with pytest.raises(UserError, match=re.escape(f"--seeds={wrong}: expected seeds such as 0..5")):
            read_seeds(wrong)


def test_an_option_that_the_sweep_sets_itself_is_refused(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("def sweep():\n    yield {'config': 'configs/quickstart.py', 'train.num_steps': 2}\n")
    with pytest.raises(UserError, match=r"--config\.train\.num_steps is set by the sweep itself"):
        sweep.run_sweep(path, str(tmp_path / "runs"), ["--config.train.num_steps=3"])
    assert not (tmp_path / "runs").exists()
