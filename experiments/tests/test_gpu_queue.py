"""The queue runs what was not measured for this code, in order, within its time, and an error ends one job alone."""

import json
import subprocess
import sys

import pytest

from experiments import gpu_queue


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """The commands that the queue runs; files of results lie in a folder of the test."""
    commands, real = [], subprocess.run

    def run(command, **options):
        if command[0] == "git":
            return real(command, **options)
        commands.append(command)
        if command[2] == "experiments.matrix":
            (tmp_path / "matrix").mkdir()
            return (tmp_path / "matrix" / "delta,recall.json").write_text("{}")
        part = next(word.partition("=")[2] for word in command if word.startswith("--part="))
        if part == "checks":
            raise subprocess.TimeoutExpired(command, 1)
        (tmp_path / f"gpu_{part}.json").write_text("{}")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(gpu_queue.Job, "file", property(lambda job: tmp_path / f"gpu_{job.part}.json"))
    monkeypatch.setattr(gpu_queue, "MATRIX", tmp_path / "matrix")
    return commands


def queue(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["gpu_queue", *options])
    gpu_queue.main()


def test_an_error_ends_one_job_and_what_was_written_is_copied(ran, monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match=r"^failed: checks$"):
        queue(monkeypatch, f"--copy_to={tmp_path / 'back'}")
    assert [command[3] for command in ran][:-1] == [f"--part={job.part}" for job in gpu_queue.JOBS]
    assert ran[-1][2] == "experiments.matrix" and 0 < float(ran[-1][3].partition("=")[2]) < 9
    copied = sorted(str(path.relative_to(tmp_path / "back")) for path in (tmp_path / "back").rglob("*.json"))
    assert copied == ["gpu_attention.json", "gpu_training.json", "matrix/delta,recall.json"]


def test_a_dry_run_runs_nothing_and_counts_the_time(ran, monkeypatch, capsys):
    queue(monkeypatch, "--dry-run", "--minutes=4")
    lines = capsys.readouterr().out.splitlines()
    assert not ran and [line.split(": ")[1] for line in lines] == ["at most 100 s", "at most 94 s", "no time is left"]


def test_what_is_measured_for_this_code_is_not_measured_again(ran, monkeypatch, tmp_path, capsys):
    commit = subprocess.run(
        ["git", "-C", str(gpu_queue.ROOT), "stash", "create"], capture_output=True, text=True
    ).stdout.strip()
    for name, value in (("checks", commit or "HEAD"), ("training", "no commit")):
        (tmp_path / f"gpu_{name}.json").write_text(json.dumps({"commit": value}))
    queue(monkeypatch, "--dry-run")
    verdicts = [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()]
    assert verdicts == ["is measured for this code", "at most 270 s", "at most 150 s"]
