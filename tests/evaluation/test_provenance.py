"""What a result says of its circumstances, and that it never fails to be made."""

import datetime
import json
import subprocess

import jax
import numpy as np
import pytest

from attn_jax.evaluation import provenance


def git(folder, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", *identity, "-C", folder, *arguments], check=True, capture_output=True)


def test_of_this_process():
    found = provenance.provenance()
    assert json.loads(json.dumps(found)) == found
    assert list(found) == ["versions", "commit", "device", "machine", "date"]
    assert {"python", "jax", "jaxlib", "flax", "optax", "orbax", "numpy", "attn_jax"} == found["versions"].keys()
    assert (found["versions"]["jax"], found["versions"]["numpy"]) == (jax.__version__, np.__version__)
    assert found["device"] == {"platform": "cpu", "kind": "cpu", "count": 8} and found["machine"]
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(found["date"])
    assert -1 < age.total_seconds() < 60


def test_the_commit_and_whether_files_of_it_were_changed(tmp_path, monkeypatch):
    assert provenance.commit(tmp_path) is None
    git(tmp_path, "init")
    assert provenance.commit(tmp_path) is None  # nothing committed yet
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-m", "first")
    revision = provenance.commit(tmp_path)
    assert len(revision) == 40 and set(revision) <= set("0123456789abcdef")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "b").write_text("not part of it")
    assert provenance.commit(tmp_path) == revision
    (tmp_path / "experiments" / "results").mkdir(parents=True)
    (tmp_path / "experiments" / "results" / "c").write_text("1")
    git(tmp_path, "add", "experiments")
    git(tmp_path, "commit", "-m", "second")
    revision = provenance.commit(tmp_path)
    (tmp_path / "experiments" / "results" / "c").write_text("2")
    assert provenance.commit(tmp_path) == revision  # the next experiment may follow
    assert provenance.commit(tmp_path / "runs") is None  # the checkout around it is another project
    (tmp_path / "a").write_text("2")
    assert provenance.commit(tmp_path) == revision + "+changes"
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert provenance.commit(tmp_path) == revision + "+changes"


def test_without_git(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    assert provenance.commit(tmp_path) is None  # git refuses
    monkeypatch.setenv("PATH", "")
    assert provenance.commit(tmp_path) is None


@pytest.mark.parametrize("error", [FileNotFoundError, UnicodeDecodeError])
def test_a_system_that_does_not_tell_the_cpu(monkeypatch, error):
    def fail(*_, **__):
        raise error(*(() if error is FileNotFoundError else ("utf-8", b"", 0, 1, "")))

    monkeypatch.setattr(provenance.pathlib.Path, "read_text", fail)
    assert provenance.machine() == provenance.platform.platform()
    assert provenance.version("no-such-package") is None
