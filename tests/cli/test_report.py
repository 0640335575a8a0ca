"""--mode=report writes one file from a work directory or from the folder of a sweep; bad input is one line."""

import json
import os
import re
import shutil

import jax
import numpy as np
import pytest
from absl import flags
from report_digits import read_digits
from tiny_run import tiny_config

from attn_jax.cli import commands, main
from attn_jax.cli.command_line import parse
from attn_jax.cli.report import FILE, check_seeds, sources_of, write_sweep_report
from attn_jax.errors import UserError
from attn_jax.runs.load import load
from attn_jax.runs.options import resolve
from attn_jax.runs.results import read_result
from attn_jax.sweeps import sweep
from attn_jax.sweeps.sweep_folder import is_sweep, runs_of, save_order

FILES = commands.Files(num_examples=3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two seeds."""
    workdir = tmp_path_factory.mktemp("report") / "run"
    config = tiny_config(seeds=(0, 1), train__num_steps=2, train__log_every=1)
    commands.train(resolve(config), workdir, commands.Files())
    return config, workdir


@pytest.fixture
def folder(trained, tmp_path):
    """Two copies of the run, as a sweep makes them, and something else beside them."""
    for name in ("quickstart,seed=1", "quickstart,seed=0"):
        shutil.copytree(trained[1], tmp_path / name, ignore=shutil.ignore_patterns(FILE))
    (tmp_path / "notes").mkdir()
    save_order(tmp_path, ["quickstart,seed=1", "quickstart,seed=0"])
    return tmp_path


@pytest.fixture
def fresh_flags():
    """Flags as they are when a process begins."""
    yield
    for name in (main.MODE.name, main.WORKDIR.name, main.SOURCE.name, main.SPLIT.name, main.NUM_EXAMPLES.name):
        flags.FLAGS[name].unparse()


def data_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def report(config, workdir):
    """What the command writes for a run."""
    commands.report(resolve(config), workdir, FILES)
    return data_of(workdir / FILE)


@pytest.mark.slow
def test_the_page_has_the_weights_that_the_model_gives(trained, capsys):
    config, workdir = trained
    page = report(config, workdir)
    assert "3 examples" in capsys.readouterr().out
    snapshot = commands.restore(resolve(config), workdir)
    _, split = commands.split_of(workdir, FILES, snapshot)
    assert [item["source"] for item in page["examples"]["items"]] == split.source[:3]
    assert page["examples"]["seeds"] == ["0", "1"]
    for i, params in enumerate(snapshot.params):
        outputs = [found[0].text for found in snapshot.predictor.translator.translate(params, split.source[:3])]
        pairs = split.select(range(3))
        losses = -snapshot.predictor.log_probs(params, pairs) / [len(target) + 1 for target in pairs.target]
        weights = snapshot.predictor.weights(params, type(pairs)(pairs.source, outputs))
        for item, output, loss, expected in zip(page["examples"]["items"], outputs, losses, weights, strict=True):
            own = item["of_seeds"][i]
            assert own["output"] == output and own["loss"] == pytest.approx(loss, rel=1e-3)
            (one,) = own["maps"]
            found = np.array(read_digits(one["weights"])).reshape(one["shape"]) * one["unit"]
            np.testing.assert_allclose(found, expected, atol=0.51 * one["unit"])
            assert page["examples"]["labels"][one["columns"]] == [*item["source"], "<eos>"]
    assert page["curves"][0]["lines"][0]["steps"] == [1, 2]
    assert ["task.num_examples", "200", True] in page["config"]
    assert {row["name"] for row in page["results"]["rows"]} == {"loss", "perplexity"}


@pytest.mark.slow
def test_the_page_has_the_table_of_an_analysis(trained, tmp_path, capsys):
    copy = tmp_path / "run"
    shutil.copytree(trained[1], copy, ignore=shutil.ignore_patterns(FILE))
    assert report(trained[0], copy)["analysis"] is None
    row = {"place": "source", "head": 1, "values": {"entropy": {"mean": 1.5, "std": 0.25, "seeds": [1.25, 1.75]}}}
    (copy / "analysis.json").write_text(json.dumps({"split": "test", "date": "2026-11-24T08:00:00", "rows": [row]}))
    page = report(trained[0], copy)["analysis"]
    assert page["table"] == [["place", "head", "entropy"], ["source", "1", "1.5 (SD 0.25)"]]
    assert page["meanings"] == [["entropy", "of the weights, in nats"]]
    assert page["of"] == "Means over test, measured 2026-11-24."
    found = {"split": "test", "checkpoint": "best checkpoint (step 1)", "date": "2026-11-24T08:00:00", "rows": [row]}
    (copy / "analysis.json").write_text(json.dumps(found))
    of = report(trained[0], copy)["analysis"]["of"]
    assert of == "Means over test, best checkpoint (step 1), measured 2026-11-24."
    wrong = {"place": "source", "values": {"entropy": {"mean": 10**400, "std": 0, "seeds": [1]}}}
    for damaged in ({"rows": 3}, {"rows": [wrong]}, {"rows": [wrong | {"values": {"entropy": 3}}]}, {}):
        (copy / "analysis.json").write_text(json.dumps(damaged))
        with pytest.raises(UserError, match=r"analysis\.json: expected what --mode=analyze writes"):
            report(trained[0], copy)


@pytest.mark.slow
def test_a_run_without_a_result_has_a_page_as_well(trained, tmp_path):
    shutil.copytree(trained[1], tmp_path / "run")
    for name in ("result.json", "metrics.jsonl"):
        (tmp_path / "run" / name).unlink()
    page = report(trained[0], tmp_path / "run")
    assert page["results"]["rows"] == [] and page["curves"] == [] and len(page["examples"]["items"]) == 3
    assert ["attention of", "best checkpoint (step 2)"] in page["facts"]  # which a result would tell
    assert "attention of" not in dict(report(trained[0], trained[1])["facts"])


@pytest.mark.slow
def test_a_sweep_has_a_table_with_links_to_the_pages_of_its_runs(folder, capsys):
    assert is_sweep(folder) and not is_sweep(folder / "quickstart,seed=0") and not is_sweep(folder / "notes")
    assert [path.name for path in runs_of(folder)] == ["quickstart,seed=1", "quickstart,seed=0"]
    made = []
    (folder / "quickstart,seed=1" / FILE).write_bytes(b"there already" + sources_of(folder / "quickstart,seed=1"))

    def report_run(config, workdir):
        made.append(workdir.name)
        (workdir / FILE).write_bytes(config.name.encode() + sources_of(workdir))

    write_sweep_report(folder, report_run)
    page = data_of(folder / FILE)
    assert made == ["quickstart,seed=0"]
    assert page["links"] == {f"quickstart,seed={n}": f"quickstart%2Cseed%3D{n}/report.html" for n in (1, 0)}
    assert [row[0] for row in page["table"]] == ["run", *(f"quickstart,seed={n}" for n in (1, 0))]
    assert len(page["figure"]) == 2
    assert page["sentence_differences"][1] == ["quickstart,seed=0", "+0 [+0, +0]", "+0 [+0, +0]"]  # they are copies
    os.utime(folder / "quickstart,seed=1" / FILE, (0, 0))
    write_sweep_report(folder, report_run)
    assert made == ["quickstart,seed=0"]  # older, but of the same files
    metrics = folder / "quickstart,seed=1" / "metrics.jsonl"
    before, size = metrics.stat(), metrics.stat().st_size
    metrics.write_text(metrics.read_text().replace("1", "2"))
    os.utime(metrics, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert metrics.stat().st_size == size and metrics.stat().st_mtime_ns == before.st_mtime_ns
    write_sweep_report(folder, report_run)
    assert made == ["quickstart,seed=0", "quickstart,seed=1"]
    write_sweep_report(folder, report_run, refresh=True)
    assert made[2:] == ["quickstart,seed=1", "quickstart,seed=0"]
    (folder / "quickstart,seed=0" / "result.json").unlink()
    write_sweep_report(folder, report_run)
    assert data_of(folder / FILE)["notes"] == ["Without a result yet: quickstart,seed=0"]


def test_a_sweep_keeps_the_order_of_its_runs(tmp_path, monkeypatch):
    path = tmp_path / "three.py"
    rows = [{"config": "configs/quickstart.py", "seed": seed} for seed in (7, 3)]
    path.write_text(f"def sweep():\n    yield from {rows!r}\n")
    monkeypatch.setattr(sweep, "run_jobs", lambda *arguments: [])
    sweep.run_sweep(path, str(tmp_path / "runs"), [])
    names = [job.name for job in sweep.jobs(path)]
    for name in ("another", *reversed(names)):
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / "config.json").write_text("{}")
    assert [found.name for found in runs_of(tmp_path / "runs")] == [*names, "another"]


@pytest.mark.slow
def test_runs_that_cannot_be_compared_are_one_line(folder):
    other = folder / "quickstart,seed=0" / "result.json"
    result = json.loads(other.read_text())
    other.write_text(json.dumps(result | {"split": "valid"}))
    with pytest.raises(UserError, match=r"quickstart,seed=1 was measured on 'test', quickstart,seed=0 on 'valid'; exp"):
        write_sweep_report(folder, lambda *run: None)
    other.write_text(json.dumps(result)[:100])
    with pytest.raises(UserError, match=f"cannot read {other}: not valid JSON"):
        write_sweep_report(folder, lambda *run: None)
    for name, seeds in (("quickstart,seed=1", [0, 1]), ("quickstart,seed=0", [2, 3])):
        (folder / name / "result.json").write_text(json.dumps(result | {"seeds": seeds}))
    message = r"quickstart,seed=1 has the seeds 0, 1, quickstart,seed=0 2, 3; expected seeds in common, since runs"
    with pytest.raises(UserError, match=message):
        write_sweep_report(folder, lambda *run: None)
    check_seeds(folder, {"a": {"seeds": [0]}, "b": {"seeds": [1]}, "c": {"seeds": [1, 2]}, "d": {"seeds": [2, 3]}})
    config = json.loads((folder / "quickstart,seed=0" / "config.json").read_text())
    config["task"]["name"] = "sequences"
    config.pop("crc32")
    (folder / "quickstart,seed=0" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"quickstart,seed=1 is of task\.name dates, quickstart,seed=0 of sequences"):
        write_sweep_report(folder, lambda *run: None)


def test_a_result_that_is_none_is_one_line(tmp_path):
    values = [{"loss": 3}, *({"loss": {"mean": mean, "std": 0, "seeds": [1]}} for mean in ("a", float("nan"), 10**400))]
    for result in (
        {"metrics": {}},
        {"metrics": [], "seeds": []},
        *({"metrics": each, "seeds": [0]} for each in values),
    ):
        (tmp_path / "result.json").write_text(json.dumps(result))
        with pytest.raises(UserError, match=r"result\.json: expected the result of a run, with finite numbers"):
            read_result(tmp_path / "result.json")


@pytest.mark.slow
def test_a_loaded_model_predicts_the_same_where_jax_has_64_bits(trained):
    expected = load(trained[1]).predict(["2026年11月25日"])
    with jax.enable_x64(True):
        assert load(trained[1]).predict(["2026年11月25日"]) == expected


@pytest.mark.slow
def test_a_work_directory_without_a_checkpoint_is_one_line(trained, tmp_path):
    shutil.copytree(trained[1], tmp_path / "run", ignore=lambda *_: ["checkpoints"])
    with pytest.raises(UserError, match="there are no checkpoints: "):
        commands.report(resolve(load(trained[1]).config), tmp_path / "run", FILES)
    with pytest.raises(UserError, match="--source=FILE and --target=FILE together"):
        commands.report(resolve(trained[0]), trained[1], commands.Files("only"))
    with pytest.raises(UserError, match=r"^--target=only has no --source; a file of the task's own form"):
        commands.report(resolve(trained[0]), trained[1], commands.Files("", "only"))
    with pytest.raises(UserError, match=r"^--split=valid and --target=only: expected one$"):
        commands.report(resolve(trained[0]), trained[1], commands.Files("", "only", split="valid"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--mode=report", "--num_examples=0"], "--num_examples=0: expected at least 1"),
        (["--mode=eval", "--num_examples=3"], "--mode=eval takes no --num_examples; it is for --mode=report"),
        (["--mode=report", "--source=x"], "--source is for a single run; give --workdir=DIR of one of "),
        (["--mode=report", "--split=valid"], "--split is for a single run; give --workdir=DIR of one of "),
        (["--mode=report", "--config.seed=1"], "--config.seed is for a single run; give --workdir=DIR of one of "),
        (["--mode=eval"], "is the folder of a sweep, which --mode=eval does not take; give --workdir=DIR of one of "),
        (["--mode=compare", "--baseline=x"], "is the folder of a sweep, which --mode=compare does not take; give"),
    ],
)
def test_options_of_a_report_are_checked(folder, fresh_flags, given, message):
    with pytest.raises(UserError) as error:
        parse(["launch.py", f"--workdir={folder}", *given])
    assert message in str(error.value)
