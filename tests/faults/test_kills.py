"""A run that is killed wherever it hurts, and started again, is the run that was never stopped."""

import os
import signal

import pytest
from runs_killed import beside_another, command, differs, wait_for, with_wrong_clock

# In the order in which a run passes them; each kills one process of the same run.
POINTS = (
    "half vocabularies.json",
    "half config.json",
    "before config.json",
    "half a checkpoint",
    "before a checkpoint",
    "retention",
    "half result.json",
)


@pytest.mark.slow
def test_a_run_killed_at_each_of_these_moments_is_the_run_never_stopped(server, whole, tmp_path):
    workdir = tmp_path / "run"
    for point in POINTS:
        result = server.start(*command(workdir), arm=point).wait()
        assert result.code == -signal.SIGKILL, (point, result.err)
        assert not (workdir / "result.json").exists()
    job = server.start(*command(workdir))  # finished, but for its result: nothing is left to stop
    assert job.wait().code == 0
    assert differs(whole, workdir) == ""


@pytest.mark.slow
def test_signals_and_a_clock_that_goes_backwards(server, whole, tmp_path):
    outcome = with_wrong_clock(server, tmp_path, whole)
    assert not outcome.notes, outcome.notes
    workdir = tmp_path / "run"
    for number, step in ((signal.SIGINT, 2), (signal.SIGTERM, 12)):
        job = server.start(*command(workdir))
        wait_for(workdir, step)
        os.kill(job.pid, number)
        assert job.wait().code in (128 + number, 0)
    assert server.run(*command(workdir)).code == 0
    assert differs(whole, workdir) == ""


@pytest.mark.slow
def test_the_second_process_refuses_and_a_crash_of_the_first_blocks_nobody(server, whole, tmp_path):
    outcome = beside_another(server, tmp_path, whole)
    assert not outcome.notes, outcome.notes
