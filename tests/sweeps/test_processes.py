"""Commands beside each other: they end, fail, begin again, save their work, and die with what started them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from attn_jax.sweeps import with_parent
from attn_jax.sweeps.processes import ROOT, Process, run_all, start

ENDS = "import sys; print('ends'); sys.exit(int(sys.argv[1]))"
DIES_ONCE = """
import os, pathlib, signal, sys
tried = pathlib.Path(sys.argv[1])
if not tried.exists():
    tried.write_text("")
    os.kill(os.getpid(), signal.SIGKILL)
"""
SLEEPS = """
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit(128 + 15)
signal.signal(signal.SIGTERM, save)
print("sleeping", flush=True)
time.sleep(60)
"""


def task(tmp_path, name, code, *arguments):
    (tmp_path / name).mkdir()
    return Process(name, [sys.executable, "-c", code, *map(str, arguments)], tmp_path / name / "log.txt")


@pytest.mark.slow
def test_commands_end_fail_and_begin_again_after_a_kill(tmp_path):
    tasks = [
        task(tmp_path, "good", ENDS, 0),
        task(tmp_path, "bad", ENDS, 3),
        task(tmp_path, "killed", DIES_ONCE, tmp_path / "tried"),
    ]
    codes, repeated = {}, []
    came = run_all(
        tasks,
        at_once=2,
        ended=lambda task, code: codes.update({task.name: code}),
        again=lambda task, number: repeated.append((task.name, number)),
    )
    assert came == 0 and codes == {"good": 0, "bad": 3, "killed": 0}
    assert repeated == [("killed", signal.SIGKILL)]
    assert (tmp_path / "good" / "log.txt").read_text() == "ends\n"


@pytest.mark.slow
def test_terminate_lets_a_command_save_its_work(tmp_path):
    process = start(task(tmp_path, "long", SLEEPS, tmp_path / "saved"))
    log, deadline = tmp_path / "long" / "log.txt", time.monotonic() + 60
    while not (log.exists() and "sleeping" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.poll() is None
    process.terminate()
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.poll() == 128 + signal.SIGTERM
    while not (tmp_path / "saved").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (tmp_path / "saved").read_text() == "saved"


SLEEP = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
STARTS = (
    "import pathlib, time\nfrom attn_jax.sweeps.processes import Process, start\n"
    "start(Process('run', {command}, pathlib.Path({log!r})))\ntime.sleep(60)"
)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_a_command_dies_with_what_started_it(tmp_path):
    """Its work directory is then free for the run that takes over."""
    code = STARTS.format(command=SLEEP, log=str(tmp_path / "log"))
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    deadline = time.monotonic() + 30
    while not ((tmp_path / "log").exists() and (tmp_path / "log").read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    pid = int((tmp_path / "log").read_text())
    parent.kill()
    parent.wait()
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
@pytest.mark.parametrize(("parent", "printed"), [(os.getpid(), "begun\n"), (0, "")], ids=["there", "gone"])
def test_a_command_begins_unless_its_parent_is_gone_already(parent, printed):
    command = [sys.executable, "-I", "-S", with_parent.__file__, str(parent), sys.executable, "-c", "print('begun')"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == printed
