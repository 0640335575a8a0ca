"""A work directory is complete in itself, and belongs to one run."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from attn_jax.errors import UserError
from attn_jax.tasks.vocabulary import VOCABULARIES
from attn_jax.workdir import (
    MAY_CHANGE,
    flatten,
    holds,
    load_config,
    load_json,
    load_vocabularies,
    lock,
    plain,
    save_json,
    save_vocabularies,
)
from configs import base, iwslt2017_soft, quickstart

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_json_is_written_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "x.json"
    save_json(path, {"日": [1, 2.5, None]})
    assert load_json(path) == {"日": [1, 2.5, None]} and "日" in path.read_text(encoding="utf-8")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(UserError, match=f"cannot write {path}: no space left on device"):
        save_json(path, {})
    assert load_json(path) == {"日": [1, 2.5, None]}


def test_what_is_no_json_is_a_user_error(tmp_path):
    for content, words in (
        (b"{", "cannot read .*x.json: "),
        (b"\xff", "cannot read"),
        (b"[]", "expected a JSON object"),
    ):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(UserError, match=words):
            load_json(tmp_path / "x.json")
    with pytest.raises(UserError, match=r"is not the work directory of a run"):
        load_json(tmp_path / "y.json")
    with pytest.raises(UserError, match=r"cannot write .*: file exists"):
        save_json(tmp_path / "x.json" / "z.json", {})


def test_flatten():
    assert flatten({"a": {"b": 1, "c": {"d": [2]}}, "e": {}}) == {"a.b": 1, "a.c.d": [2]}


@pytest.mark.parametrize("get_config", [quickstart.get_config, iwslt2017_soft.get_config])
def test_a_config_comes_back_as_it_was(tmp_path, get_config):
    config = get_config()
    config.seeds, config.eval.metrics, config.description = (1, 2), (), "日本"
    save_json(tmp_path / "config.json", plain(config))
    loaded = load_config(tmp_path, base.get_config())
    assert loaded.to_dict() == config.to_dict()
    assert {key: type(value) for key, value in flatten(loaded.to_dict()).items()} == {
        key: type(value) for key, value in flatten(config.to_dict()).items()
    }
    assert json.loads((tmp_path / "config.json").read_text())["seeds"] == [1, 2]


def test_a_config_of_another_version_or_a_damaged_one(tmp_path):
    stored = plain(quickstart.get_config())
    del stored["model"]["cell"]
    stored["model"]["new_key"] = 3
    save_json(tmp_path / "config.json", stored)
    loaded = load_config(tmp_path, base.get_config())
    assert loaded.model.cell == base.get_config().model.cell and "new_key" not in loaded.model
    stored["model"]["hidden_size"] = "wide"
    save_json(tmp_path / "config.json", stored)
    with pytest.raises(UserError, match=r"cannot read .*config.json: .*wide") as error:
        load_config(tmp_path, base.get_config())
    assert "\n" not in str(error.value)


def test_a_directory_holds_one_run(tmp_path):
    config = quickstart.get_config()
    assert not holds(tmp_path, config)
    save_json(tmp_path / "config.json", plain(config))
    other = quickstart.get_config()
    other.model.hidden_size = 3
    assert not holds(tmp_path, config) and not holds(tmp_path, other)  # there is no checkpoint yet
    (tmp_path / "checkpoints" / "500").mkdir(parents=True)
    assert holds(tmp_path, config)
    with pytest.raises(UserError, match=r"another config: model.hidden_size is 128 there and 3 here; choose another"):
        holds(tmp_path, other)


def test_what_does_not_change_the_training_may_change(tmp_path):
    config = quickstart.get_config()
    save_json(tmp_path / "config.json", plain(config))
    (tmp_path / "checkpoints" / "500").mkdir(parents=True)
    config.name, config.description, config.parallel, config.data_dir = "other", "x", "mesh", "elsewhere"
    config.decode.beam_size, config.eval.metrics, config.train.log_every, config.train.keep = 9, (), 7, 8
    assert holds(tmp_path, config)
    assert all(any(key.startswith(prefix) for key in flatten(plain(config))) for prefix in MAY_CHANGE)


def test_one_process_at_a_time(tmp_path):
    code = (
        "import sys, pathlib; from attn_jax.workdir import lock\nf = lock(pathlib.Path(sys.argv[1])); print(1); input()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "new")]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert other.stdout.readline() == "1\n"
    with pytest.raises(UserError, match=r"new is in use: another process is training there"):
        lock(tmp_path / "new")
    other.kill()  # whatever happens to it, the directory is free again
    other.communicate()
    lock(tmp_path / "new").close()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file: file exists"):
        lock(tmp_path / "file")


def test_vocabularies_come_back(tmp_path):
    lines = ["a bird in a tree", "令和 in june"]
    options = {"vocab_size": 22, "min_count": 1, "model_type": "bpe"}
    for kind in VOCABULARIES.values():
        both = kind.train(lines, **options), kind.train(lines[::-1], **options)
        save_vocabularies(tmp_path, both)
        for before, after in zip(both, load_vocabularies(tmp_path), strict=True):
            assert type(after) is kind and after.to_json() == before.to_json()
            assert after.encode(lines[0]) == before.encode(lines[0])
    path = tmp_path / "vocabularies.json"
    for stored in ({}, {"source": {}, "target": {}}, {"source": {"kind": "word"}, "target": 3}):
        save_json(path, stored)
        with pytest.raises(UserError, match=f"cannot read {path}"):
            load_vocabularies(tmp_path)
