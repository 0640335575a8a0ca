"""Files are written as a whole, never through a link; what is read is what was written."""

import json
import os
import pathlib

import pytest

from attn_jax.data import files
from attn_jax.data.files import check_links, load_checked, load_json, save_json, write
from attn_jax.errors import UserError


def test_json_is_written_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "x.json"
    save_json(path, {"日": [1, 2.5, None]})
    assert load_json(path) == {"日": [1, 2.5, None]} and "日" in path.read_text(encoding="utf-8")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(UserError, match=f"cannot write {path}: no space left on device"):
        save_json(path, {})
    assert load_json(path) == {"日": [1, 2.5, None]} and os.listdir(path.parent) == ["x.json"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", r"not valid JSON \(line 1: "),
        (b"\xff", r"not valid UTF-8 \(byte 1\)"),
        (b"[]", "expected a JSON object"),
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b'{"a": ' + b"[" * 100_000, "too many brackets within brackets"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a number in it has thousands of digits"),
    ],
    ids=["truncated", "bytes", "list", "empty", "blank", "deep", "digits"],
)
def test_what_is_no_json_is_one_clear_line(tmp_path, content, words):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"^cannot read {path}: {words}") as error:
        load_json(path)
    assert "\n" not in str(error.value)


def test_what_cannot_be_read_or_written_is_one_clear_line(tmp_path):
    with pytest.raises(UserError, match=r"is not the work directory of a run"):
        load_json(tmp_path / "y.json")
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(UserError, match=r"cannot write .*: file exists"):
        save_json(tmp_path / "x.json" / "z.json", {})
    with pytest.raises(UserError, match=r"cannot read .*: is a directory"):
        load_json(tmp_path)


def test_a_file_knows_whether_it_was_changed(tmp_path):
    path, data = tmp_path / "x.json", {"a": [1, 0.1], "b": {"日": None}}
    files.save_checked(path, data)
    assert load_checked(path) == (data, True)
    path.write_text(path.read_text().replace("0.1", "0.2"))
    with pytest.raises(UserError, match=r"x.json was changed since the run wrote it .* --config.key=value$"):
        load_checked(path)
    save_json(path, data)
    assert load_checked(path) == (data, False)  # of an earlier version


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_text("mine\n")
    yield path
    assert path.read_text() == "mine\n" and not path.is_symlink()


@pytest.mark.parametrize("plant", [pathlib.Path.symlink_to, pathlib.Path.hardlink_to])
def test_no_file_is_written_through_a_link(tmp_path, victim, plant):
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("eval.json", "eval.partial", "x.png"):
        plant(folder / name, victim)
    save_json(folder / "eval.json", {"a": 1})
    write(folder / "x.png", b"picture")
    assert json.loads((folder / "eval.json").read_text()) == {"a": 1} and (folder / "x.png").read_bytes() == b"picture"
    assert not any((folder / name).is_symlink() for name in ("eval.json", "x.png"))


def test_no_line_is_appended_to_a_file_of_another_name(tmp_path, victim):
    (tmp_path / "link").symlink_to(victim)
    with pytest.raises(UserError, match=f"^{tmp_path}/link is a link; .*: remove it$"):
        files.append(tmp_path / "link")
    (tmp_path / "hard").hardlink_to(victim)
    with files.append(tmp_path / "hard") as file:
        file.write("more\n")
    assert (tmp_path / "hard").read_text() == "mine\nmore\n"


@pytest.mark.parametrize("name", ["lock", "eval.partial", "attention", "checkpoints/500", "tensorboard/events", "a b"])
def test_links_in_a_work_directory_are_named(tmp_path, victim, name):
    workdir = tmp_path / "work"
    (workdir / name).parent.mkdir(parents=True)
    check_links(workdir)
    check_links(tmp_path / "nowhere")
    (tmp_path / "other name").symlink_to(workdir)
    check_links(tmp_path / "other name")  # the user's own
    for target in (victim, tmp_path, tmp_path / "missing"):
        (workdir / name).symlink_to(target)
        with pytest.raises(UserError, match=f"^{workdir / name} is a link; .*: remove it$"):
            check_links(workdir)
        (workdir / name).unlink()
    os.mkfifo(workdir / name)
    with pytest.raises(UserError, match=f"^{workdir / name} is neither a file nor a folder; remove it$"):
        check_links(workdir)


def test_what_a_killed_process_was_writing_is_cleared(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(SystemExit))
    monkeypatch.setattr(pathlib.Path, "unlink", lambda *_, **__: None)
    with pytest.raises(SystemExit):
        write(tmp_path / "x.json", b"{}")
    monkeypatch.undo()
    assert len(os.listdir(tmp_path)) == 1
    write(tmp_path / "y", b"")
    (tmp_path / "x.json").write_text("{}")
    files.clear_partial(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["x.json", "y"]
    assert (tmp_path / "x.json").stat().st_mode == (tmp_path / "y").stat().st_mode  # the rights of any new file
