"""Engines start the same commands in other places; what they lack is told in one line."""

import os
import signal
import socket
import subprocess
import sys
import time
import types

import pytest

from attn_jax.errors import UserError
from attn_jax.sweeps.engines import ENGINES, make_engine, with_parent
from attn_jax.sweeps.engines.base import ROOT, Process
from attn_jax.sweeps.engines.ray import check_reachable, resources_of
from attn_jax.sweeps.processes import run_all

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


@pytest.fixture(params=["local", "ray", "slurm"])
def engine(request, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if request.param == "ray":
        pytest.importorskip("ray", reason="ray is not installed")
    if request.param == "slurm":
        pytest.importorskip("submitit", reason="submitit is not installed")
        from attn_jax.sweeps.engines.slurm import Slurm

        made = Slurm({}, cluster="local")
        made.pause = 0.1
    else:
        made = make_engine(request.param)
    yield made
    made.close()


def task(tmp_path, name, code, *arguments):
    (tmp_path / name).mkdir()
    return Process(name, [sys.executable, "-c", code, *map(str, arguments)], tmp_path / name / "log.txt")


@pytest.mark.slow
def test_commands_end_fail_and_begin_again_after_a_kill(engine, tmp_path):
    tasks = [
        task(tmp_path, "good", ENDS, 0),
        task(tmp_path, "bad", ENDS, 3),
        task(tmp_path, "killed", DIES_ONCE, tmp_path / "tried"),
    ]
    codes, repeated = {}, []
    came = run_all(
        tasks,
        engine=engine,
        at_once=2,
        ended=lambda task, code: codes.update({task.name: code}),
        again=lambda task, number: repeated.append((task.name, number)),
    )
    assert came == 0 and codes == {"good": 0, "bad": 3, "killed": 0}
    assert repeated == [("killed", signal.SIGKILL)]
    assert (tmp_path / "good" / "log.txt").read_text() == "ends\n"


@pytest.mark.slow
def test_terminate_lets_a_command_save_its_work(engine, tmp_path):
    process = engine.start(task(tmp_path, "long", SLEEPS, tmp_path / "saved"))
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
STARTS = {
    "the worker of an engine": "from attn_jax.sweeps.engines.base import wait\nwait({command}, {log!r})",
    "a local sweep": (
        "import pathlib, time\nfrom attn_jax.sweeps.engines.base import Process\n"
        "from attn_jax.sweeps.engines.local import Local\n"
        "Local().start(Process('run', {command}, pathlib.Path({log!r})))\ntime.sleep(60)"
    ),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
@pytest.mark.parametrize("starts", STARTS)
def test_a_command_dies_with_what_started_it(tmp_path, starts):
    """Its work directory is then free for the run that takes over."""
    code = STARTS[starts].format(command=SLEEP, log=str(tmp_path / "log"))
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


@pytest.mark.parametrize(
    "name, address, options, message",
    [
        ("local", "host:1", "", r"--address=host:1 is for --engine=ray, not local"),
        ("local", "", "num_cpus=2", r"--engine_options=num_cpus: the engine local has no options"),
        ("ray", "", "num_cpus", r"expected key=value,key=value, got 'num_cpus'"),
        ("slurm", "host:1", "", r"is for --engine=ray, not slurm"),
    ],
)
def test_what_an_engine_lacks_is_told(name, address, options, message):
    with pytest.raises(UserError, match=message):
        make_engine(name, address, options)


def test_resources_are_numbers_that_ray_knows():
    assert resources_of({"num_gpus": "1"}) == {"num_cpus": 1.0, "num_gpus": 1.0}
    with pytest.raises(UserError, match="the engine ray has num_cpus, num_gpus, memory"):
        resources_of({"cores": "1"})
    with pytest.raises(UserError, match="expected a number"):
        resources_of({"num_cpus": "many"})


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "local"])
def test_a_package_that_is_not_installed_is_named(name, monkeypatch):
    for package in ("ray", "submitit"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf'pip install "attn_jax\[{name}\]"'):
        make_engine(name)


def test_a_cluster_that_does_not_answer_is_named():
    with pytest.raises(UserError, match=r"--address=127\.0\.0\.1:9: no Ray cluster answers there"):
        check_reachable("127.0.0.1:9")
    for address in ("here", ":1", "host:", "host:port"):
        with pytest.raises(UserError, match=r": expected host:port"):
            check_reachable(address)


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        ("AuthenticationError", "the Ray cluster asks for a token; set RAY_AUTH_MODE=token"),
        ("RayError", "no Ray cluster"),
    ],
)
def test_a_cluster_that_wants_a_token_is_told_from_one_that_is_not_there(raised, message, monkeypatch):
    kinds = {name: type(name, (RuntimeError,), {}) for name in ("AuthenticationError", "RayError")}

    def init(**options):
        raise kinds[raised]

    fake = types.SimpleNamespace(init=init, exceptions=types.SimpleNamespace(**kinds))
    monkeypatch.setitem(sys.modules, "ray", fake)
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(UserError, match=message):
            make_engine("ray", f"127.0.0.1:{server.getsockname()[1]}")
