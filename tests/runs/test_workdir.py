"""A work directory is complete in itself, and belongs to one run."""

import fcntl
import functools
import json
import operator
import os
import pathlib
import subprocess
import sys

import pytest
from damage import flips

from attn_jax.data.files import save_json
from attn_jax.errors import UserError
from attn_jax.runs.locks import claim, lock
from attn_jax.runs.options import change, switch
from attn_jax.runs.tree import flatten
from attn_jax.runs.workdir import check_cut, holds, load_config, plain, save_config
from attn_jax.tasks import TASKS
from configs import base, iwslt2017_soft, quickstart

BASE = base.get_config()
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("get_config", [quickstart.get_config, iwslt2017_soft.get_config])
def test_a_config_comes_back_as_it_was(tmp_path, get_config):
    config = change(get_config(), {})
    config.seeds, config.eval.metrics, config.description = (1, 2), (), "日本"
    save_config(tmp_path, config)
    loaded = load_config(tmp_path)
    assert loaded.to_dict() == config.to_dict()
    types = [{key: type(value) for key, value in flatten(one.to_dict()).items()} for one in (loaded, config)]
    assert types[0] == types[1]
    assert json.loads((tmp_path / "config.json").read_text())["seeds"] == [1, 2]


@pytest.mark.parametrize(
    "task, trained, changes, told",
    [
        ("language_id", {}, {"task.labels": ("valu", "tekin")}, r"task.labels is \[\] in the training and \['valu', "),
        ("plain_text", {"task.block": 16}, {"task.block": 64}, "task.block is 16 in the training and 64 here"),
        ("parallel_text", {}, {"task.valid_size": 9}, "task.valid_size is 500 in the training and 9 here"),
        ("babi", {}, {"task.num_examples": 90}, "task.num_examples is 0 in the training and 90 here"),
        ("dates", {}, {"task.valid_size": 9}, None),  # the held-out days are the same
        ("parallel_text", {}, {"task.valid": ("a", "b"), "task.valid_size": 9}, None),  # a file of its own
    ],
)
def test_another_cut_of_the_training_data_is_refused(tmp_path, task, trained, changes, told):
    config = change(switch(base.get_config(), task=task), trained)
    save_config(tmp_path, config)
    now = change(config, changes)
    names = TASKS[task](**{key: now.task[key] for key in now.task if key in ("valid", "train")}).cut_by.get("valid", ())
    if told:
        with pytest.raises(UserError, match=told):
            check_cut(tmp_path, now, names)
    else:
        check_cut(tmp_path, now, names)


def test_a_config_of_another_version(tmp_path):
    stored = plain(quickstart.get_config())
    del stored["model"]["decoder"]["cell"]
    stored["model"]["encoder"]["new_key"] = 3
    stored["model"]["attention"]["wrappers"]["parts"]["new_part"] = {"a": 3}
    stored["model"]["new_key"] = 3
    save_json(tmp_path / "config.json", stored)
    loaded = load_config(tmp_path)
    assert loaded.model.decoder.cell == BASE.model.decoder.cell and "new_key" not in loaded.model
    assert "new_key" not in loaded.model.encoder and not loaded.model.attention.wrappers.parts
    stored["model"]["encoder"] = {"name": "new_encoder"}
    save_json(tmp_path / "config.json", stored)
    with pytest.raises(UserError, match=r"config.json: unknown model.encoder 'new_encoder'; known: conv, "):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": 3}, "model is 3; expected one of seq2seq, transformer, .*"),
        ({"model": None}, "model is None; expected one of seq2seq, transformer, .*"),
        ({"train": 3}, "train is a section of the config; set one of its keys: num_steps, .*"),
        ({"train": None}, "train is a section of the config; set one of its keys: num_steps, .*"),
        ({"model.encoder": [3]}, r"model.encoder is \[3\]; expected one of rnn, .*"),
        ({"model.attention.wrappers": 3}, "model.attention.wrappers.pattern is 3; expected a tuple, such as .*"),
        (
            {"model.attention.wrappers.parts": 3},
            "model.attention.wrappers.parts is a section of the config; its keys are .*",
        ),
        ({"model.hidden_size": "wide"}, "model.hidden_size is 'wide'; expected an integer, such as 256"),
        ({"model.hidden_size": None}, "model.hidden_size is None; expected an integer, such as 256"),
        ({"model.hidden_size": {"a": 1}}, "model.hidden_size is {'a': 1}; expected an integer, such as 256"),
        ({"model.hidden_size": True}, "model.hidden_size is True; expected an integer, such as 256"),
        ({"model.hidden_size": 8.5}, "model.hidden_size is 8.5; expected an integer, such as 256"),
        ({"model.hidden_size": "x" * 9999}, "model.hidden_size is 'x{59} ...; expected an integer, such as 256"),
        ({"model.encoder.bidirectional": 1}, "model.encoder.bidirectional is 1; expected true or false, such as True"),
        ({"train.num_epochs": 10**400}, "train.num_epochs is 10{59} ...; expected integers of at most 2,147,483,647"),
        ({"seeds": 3}, r"seeds is 3; expected a tuple, such as \(0, 1\)"),
        ({"seeds": [{"a": 1}]}, "seeds has {'a': 1}; expected an integer for each of its parts"),
        ({"name": "\ud800"}, r"name is '\\ud800'; expected a text of valid UTF-8"),
        ({"name": 3}, "name is 3; expected a text, such as 'base'"),
    ],
    ids=str,
)
def test_a_malformed_config_is_one_clear_line(tmp_path, changes, words):
    stored = plain(quickstart.get_config())
    for key, value in changes.items():
        *above, name = key.split(".")
        functools.reduce(operator.getitem, above, stored)[name] = value
    path = tmp_path / "config.json"
    path.write_text(json.dumps(stored))  # as of an earlier version: no checksum
    with pytest.raises(UserError, match=f"^cannot read {path}: {words}$") as error:
        load_config(tmp_path)
    assert "\n" not in str(error.value)
    del stored["model"]
    path.write_text(json.dumps(stored))
    with pytest.raises(UserError, match=f"^cannot read {path}: it has no section 'model'; expected the config of"):
        load_config(tmp_path)


def test_every_single_bit_of_a_config_counts(tmp_path):
    config = quickstart.get_config()
    save_config(tmp_path, config)
    path, refused = tmp_path / "config.json", 0
    for content in flips(path.read_bytes()):
        path.write_bytes(content)
        try:
            found = load_config(tmp_path)
        except UserError as error:
            refused += 1
            assert str(path) in str(error) and "\n" not in str(error)
        else:
            assert found.to_dict() == config.to_dict()
    assert refused > 100  # nearly all: white space may change


def test_a_config_changed_by_hand_is_told_and_how_to_set_options(tmp_path):
    save_config(tmp_path, quickstart.get_config())
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"batch_size": 100', '"batch_size": 99'))
    with pytest.raises(UserError, match=rf"^{path} was changed since the run wrote it .* --config.key=value$"):
        load_config(tmp_path)


def test_a_directory_holds_one_run(tmp_path):
    config = quickstart.get_config()
    assert not holds(tmp_path, config)
    save_config(tmp_path, config)
    other = quickstart.get_config()
    other.model.hidden_size = 3
    assert not holds(tmp_path, config) and not holds(tmp_path, other)  # there is no checkpoint yet
    (tmp_path / "checkpoints" / "500").mkdir(parents=True)
    assert holds(tmp_path, config)
    with pytest.raises(UserError, match=r"another config: model.hidden_size is 128 there and 3 here; choose another"):
        holds(tmp_path, other)


def test_what_does_not_change_the_training_may_change(tmp_path):
    config = quickstart.get_config()
    save_config(tmp_path, config)
    (tmp_path / "checkpoints" / "500").mkdir(parents=True)
    config = change(config, {"parallel": "mesh", "decode.method": "beam", "decode.method.beam_size": 9})
    config.name, config.description, config.data_dir = "other", "x", "elsewhere"
    config.eval.metrics, config.train.log_every, config.train.keep = (), 7, 8
    assert holds(tmp_path, config)


def test_an_option_that_came_later_means_what_was_before(tmp_path, capsys):
    config = quickstart.get_config()
    stored = plain(config)
    del stored["train"]["goal"]
    stored["train"]["gone"] = 3
    save_json(tmp_path / "config.json", stored)
    (tmp_path / "checkpoints" / "500").mkdir(parents=True)
    assert holds(tmp_path, config)
    assert capsys.readouterr().err == (
        f"config        train.gone of {tmp_path}/config.json: there is no such option any more; left out\n"
    )
    config.train.goal = 99.0
    with pytest.raises(UserError, match=r"another config: train.goal is 0.0 there and 99.0 here"):
        holds(tmp_path, config)


def test_checkpoints_without_a_config_are_no_free_place(tmp_path):
    (tmp_path / "checkpoints" / "500").mkdir(parents=True)
    with pytest.raises(UserError, match=f"^{tmp_path} has checkpoints but no config.json, .*; put it back, or choose"):
        holds(tmp_path, BASE)


def test_one_process_at_a_time(tmp_path):
    code = "import sys, pathlib; from attn_jax.runs.locks import lock\n"
    code += "f = lock(pathlib.Path(sys.argv[1])); print(1); input()"
    command = [sys.executable, "-c", code, str(tmp_path / "new")]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert other.stdout.readline() == "1\n"
    with pytest.raises(UserError, match=r"new is in use: another process is writing there"):
        lock(tmp_path / "new")
    other.kill()  # whatever happens to it, the directory is free again
    other.communicate()
    lock(tmp_path / "new").close()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file is a file; expected a folder"):
        lock(tmp_path / "file")


def test_a_lock_that_a_refused_process_removes_is_made_again(tmp_path, monkeypatch):
    """The other process ends between the opening of the file and the look at its name."""

    def removed(file, how):
        taken(file, how)
        if not times:
            (tmp_path / "lock").unlink()
        times.append(how)

    taken, times = fcntl.lockf, []
    monkeypatch.setattr(fcntl, "lockf", removed)
    with lock(tmp_path) as file:
        assert os.path.samestat(os.fstat(file.fileno()), os.stat(tmp_path / "lock")) and len(times) == 2


def test_the_lock_empties_no_file_and_follows_no_link(tmp_path):
    workdir, victim = tmp_path / "work", tmp_path / "thesis.tex"
    workdir.mkdir()
    victim.write_text("mine\n")
    (workdir / "lock").symlink_to(victim)
    for claimed in (lock, lambda path: claim(path).__enter__()):
        with pytest.raises(UserError, match=f"^{workdir}/lock is a link; .*: remove it$"):
            claimed(workdir)
    (workdir / "lock").unlink()
    (workdir / "lock").hardlink_to(victim)
    lock(workdir).close()
    assert victim.read_text() == "mine\n"


def test_what_fails_leaves_a_work_directory_as_it_was(tmp_path):
    for workdir in (tmp_path / "new" / "run", tmp_path):
        with pytest.raises(KeyError):
            with claim(workdir) as file:
                assert file.name == str(workdir / "lock")
                raise KeyError
        assert file.closed and not any(tmp_path.iterdir())
    with claim(tmp_path) as file:
        pass
    assert not file.closed and (tmp_path / "lock").exists()
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(KeyError):
        with claim(tmp_path):
            raise KeyError
    assert {path.name for path in tmp_path.iterdir()} == {"lock", "config.json"}


def test_a_run_of_an_earlier_version_is_refused_in_one_line(tmp_path):
    stored = plain(quickstart.get_config())
    for version in (None, "0.1.0", "0.1", "new", 3):
        save_json(tmp_path / "config.json", {k: v for k, v in (stored | {"version": version}).items() if v is not None})
        with pytest.raises(UserError, match=f"^{tmp_path} was made by attn_jax .*, whose runs .* does not op") as error:
            load_config(tmp_path)
        assert "\n" not in str(error.value)
    save_json(tmp_path / "config.json", stored | {"version": "1.0.3"})
    load_config(tmp_path)
