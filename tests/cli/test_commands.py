"""Commands on a work directory that was made without a training: what it must be like before anything is built."""

import io
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from damage import points, without_checksum
from tiny_run import tiny_config

from attn_jax.cli import commands
from attn_jax.cli.commands import Files
from attn_jax.cli.modes import MODES
from attn_jax.data.data_files import data_checksums, has_checksums, load_vocabularies, save_kept
from attn_jax.data.facts import Kept
from attn_jax.data.files import save_json
from attn_jax.data.vocabulary import Characters
from attn_jax.errors import UserError
from attn_jax.evaluation.base import Predictor
from attn_jax.evaluation.kinds import Setup
from attn_jax.runs import training
from attn_jax.runs.options import resolve
from attn_jax.runs.snapshot import Snapshot
from attn_jax.runs.workdir import plain, save_config
from configs import kernel_regression

CONFIG = tiny_config()
RESULT = {"name": "x", "split": "test", "seeds": [0], "metrics": {"loss": {"mean": 0.5, "std": 0.0, "seeds": [0.5]}}}


def make(workdir, config, save_data, finished=True, sums=True):
    """A run of one checkpoint, step 3."""
    save_config(workdir, config)
    save_data()
    save_json(workdir / "result.json", RESULT)
    remembered = {"data": data_checksums(workdir)} if sums else {}
    with training.open_checkpoints(resolve(config), workdir) as checkpoints:
        state = {"params": {"w": np.zeros(3, np.float32)}, "step": np.int32(3)}
        extra = {"finished": finished} | remembered
        checkpoints.save(3, state, config=plain(config), extra=extra, metrics={"loss": 1.0})


@pytest.fixture(scope="module")
def run_folders(tmp_path_factory):
    """Runs of text, of points, one that goes on, and one of an earlier version; not to be changed."""
    folder = tmp_path_factory.mktemp("runs")

    def vocabularies(name):
        both = tuple(Characters.train(lines, vocab_size=30) for lines in (["abcd"], ["wxyz"]))
        return lambda: save_kept(folder / name, Kept(*both))

    make(folder / "text", CONFIG, vocabularies("text"))
    make(folder / "open", CONFIG, vocabularies("open"), finished=False)
    make(folder / "old", CONFIG, vocabularies("old"), finished=False, sums=False)
    save_json(folder / "old" / "config.json", plain(CONFIG))
    without_checksum(folder / "old" / "vocabularies.json")
    make(folder / "points", kernel_regression.get_config(), lambda: points().save(folder / "points"))
    return folder


@pytest.fixture
def copy(run_folders, tmp_path):
    def copied(name):
        return shutil.copytree(run_folders / name, tmp_path / name)

    return copied


@pytest.fixture
def nothing_is_built(monkeypatch):
    def build(*_, **__):
        raise AssertionError("built too early")

    monkeypatch.setattr(training, "build_task", build)
    monkeypatch.setattr(commands.build, "build_task", build)


def change(path, old, new, count=1):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, count), encoding="utf-8")


def restored(workdir, config=CONFIG):
    """What a command that uses the run reads of it, without the model."""
    with training.open_checkpoints(resolve(config), workdir, read_only=True) as checkpoints:
        return checkpoints.restore_params({"w": np.zeros(3, np.float32)})


def test_a_result_that_lost_the_chosen_seed_does_not_mean_the_first(tmp_path):
    config = tiny_config(seeds=(0, 1), train__choose_seed="valid")
    both = tuple(Characters.train(lines, vocab_size=30) for lines in (["abcd"], ["wxyz"]))
    make(tmp_path, config, lambda: save_kept(tmp_path, Kept(*both)))
    for result in ({}, {"chosen_seed": 7}, {"chosen_seed": []}, {"chosen_seed": True}):
        save_json(tmp_path / "result.json", result)
        with pytest.raises(UserError, match=r"result.json: chosen_seed is .*; expected one of \(0, 1\); remove the fi"):
            commands.restore(resolve(config), tmp_path)


def test_a_finished_run_says_so_before_anything_is_built(copy, capsys, nothing_is_built):
    workdir = copy("text")
    commands.train(resolve(CONFIG), workdir, Files())
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("quickstart ") and lines[0].endswith(f"seed 0    {workdir}") and err == ""
    assert lines[1:] == [
        f"finished      3 steps are done already; the result is in {workdir}/result.json",
        f"test          loss 0.5   ({workdir}/result.json)",
    ]
    assert not (workdir / "lock").exists()
    text = {"split": "test", "metrics": {"loss": {"mean": "a text", "std": 0.0, "seeds": [0.5]}}}
    for result in ({}, {"metrics": []}, {"metrics": {"loss": 3}}, text):
        save_json(workdir / "result.json", result)
        with pytest.raises(UserError, match=f"^cannot read {workdir}/result.json: expected the result of a run, "):
            commands.train(resolve(CONFIG), workdir, Files())
    for name in ("open", "text"):
        again = workdir if name == "text" else copy(name)
        (workdir / "result.json").unlink(missing_ok=True)  # not measured yet
        with pytest.raises(AssertionError, match="built too early"):
            commands.train(resolve(CONFIG), again, Files())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["train", "eval", "predict", "visualize"])
@pytest.mark.parametrize(
    "name",
    "eval.partial eval.json result.json lock config.json metrics.jsonl vocabularies.json curves.png visualize "
    "attention checkpoints tensorboard checkpoints/4".split(),
)
def test_a_planted_link_is_named_and_leads_nowhere(copy, tmp_path, monkeypatch, nothing_is_built, mode, name):
    workdir, victim, elsewhere = copy("open"), tmp_path / "bashrc", tmp_path / "elsewhere"
    victim.write_text("mine\n")
    elsewhere.mkdir()
    path = workdir / name
    target = victim if "." in name or name == "lock" else elsewhere
    if path.is_dir():
        shutil.move(path, elsewhere / "it")
        target = elsewhere / "it"
    elif path.exists():
        victim.write_bytes(path.read_bytes())
    before = victim.read_bytes()
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    with pytest.raises(UserError, match=f"^{path} is a link; .*: remove it$"):
        getattr(commands, MODES[mode].command)(resolve(CONFIG), workdir, Files())
    assert victim.read_bytes() == before and len(list(elsewhere.iterdir())) == (target.name == "it")


def test_a_work_directory_that_cannot_be_written_is_told_before_the_data_is_built(tmp_path, nothing_is_built):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=f"^{tmp_path}/file is a file; expected"):
        training.open_run(resolve(CONFIG), tmp_path / "file")
    with pytest.raises(UserError, match=f"^cannot write {tmp_path}/file/x: not a directory$"):
        training.open_run(resolve(CONFIG), tmp_path / "file" / "x")


def test_files_and_checkpoint_belong_together(run_folders):
    for name in ("text", "open", "old"):
        assert restored(run_folders / name)[1] == (3,)
    assert restored(run_folders / "points", kernel_regression.get_config())[1] == (3,)


def test_another_config_than_that_of_the_checkpoint_is_named(copy):
    """A config.json of an earlier version has no checksum, but the checkpoint knows it."""
    workdir = copy("old")
    change(workdir / "config.json", '"name": "softmax"', '"name": "sigmoid"')
    words = f'{workdir}/config.json is not that of the run: model.attention.normalize.name is "sigmoid", but "softmax" '
    words += "in checkpoint 3; put it back as it was, and set options on the command line: --config.key=value"
    changed = tiny_config(model__attention__normalize="sigmoid")
    for use in (restored, lambda workdir: training.open_run(resolve(changed), workdir)):
        with pytest.raises(UserError) as error:
            use(workdir)
        assert str(error.value) == words
    assert not has_checksums(workdir)  # left as it was


def test_what_may_change_may_change_in_an_old_config(copy):
    workdir = copy("old")
    before = restored(workdir)
    change(workdir / "config.json", '"name": "quickstart"', '"name": "other"')
    change(workdir / "config.json", '"max_length": 20', '"max_length": 21')
    np.testing.assert_equal(restored(workdir), before)


def test_other_data_than_that_of_the_checkpoint_is_named(copy):
    workdir = copy("text")
    source, target = load_vocabularies(workdir)
    save_kept(workdir, Kept(Characters(source.to_json()["tokens"][::-1]), target))
    for _ in range(2):  # the second time without its own checksum
        with pytest.raises(UserError, match=f"^{workdir}/vocabularies.json is not that of the run: checkpoint 3 was"):
            restored(workdir)
        without_checksum(workdir / "vocabularies.json")
    (workdir / "vocabularies.json").unlink()
    with pytest.raises(UserError, match=f"^{workdir}/vocabularies.json does not exist"):
        restored(workdir)
    workdir = copy("points")
    points(noise=2.0).save(workdir)
    with pytest.raises(UserError, match=f"^{workdir}/points.npz is not that of the run: checkpoint 3 was"):
        restored(workdir, kernel_regression.get_config())


def test_a_run_of_an_earlier_version_goes_on_and_gets_checksums(copy, capsys):
    """Its config lacks an option that came later, and has one that is gone; so has the checkpoint nothing of them."""
    workdir = copy("old")
    stored = json.loads((workdir / "config.json").read_text())
    del stored["train"]["goal"]
    stored["train"]["gone"] = 3
    save_json(workdir / "config.json", stored)
    before = load_vocabularies(workdir)
    run = training.open_run(resolve(CONFIG), workdir)
    run.checkpoints.close()
    assert "train.gone of " in capsys.readouterr().err
    assert [x.to_json() for x in load_vocabularies(workdir)] == [x.to_json() for x in before]
    assert has_checksums(workdir) and run.extra["data"] == data_checksums(workdir)
    stored = json.loads((workdir / "config.json").read_text())
    assert stored.pop("crc32") and stored == plain(CONFIG)
    restored(workdir)


def test_predictions_act_on_no_terminal(tmp_path, monkeypatch, capsys):
    """They are data: in a pipe they stay as they are."""

    class Stub(Predictor):
        def predict(self, params, lines, chunk):
            yield ["x"], ["a\x1b[2J\x07\u202eb\tc"]

        def report(self, sources):
            pass

    setup = Setup(None, None, None, Stub(), {}, {})
    monkeypatch.setattr(commands, "restore", lambda options, _: Snapshot(options, setup, [{}], ""))
    for terminal, shown in ((False, "a\x1b[2J\x07\u202eb\tc\n"), (True, "a\\x1b[2J\\x07\\u202eb\tc\n")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\n")))
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal, raising=False)
        commands.predict(resolve(CONFIG), tmp_path, Files())
        assert capsys.readouterr().out == shown


def test_names_from_a_config_act_on_no_terminal(copy, capsys, nothing_is_built):
    config = tiny_config(name="x\x1b]0;pwned\x07", description="\x9b31m\x01")
    commands.train(resolve(config), copy("text"), Files())
    out = capsys.readouterr().out
    assert "x\\x1b]0;pwned\\x07" in out and "\\x9b31m\\x01" in out
    assert all(c.isprintable() or c == "\n" for c in out)


def test_the_printed_command_prints_the_example():
    for text in ("two words", "it's", "Haus\tN;PL", "-100%ig\tADJ;PL", "-n x", "a\\nb", "50 % $HOME"):
        for shell in ("sh", "bash"):
            done = subprocess.run([shell, "-c", commands.printing(text)], capture_output=True, text=True)
            assert (done.returncode, done.stdout) == (0, f"{text}\n")
