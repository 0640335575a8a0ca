"""What an engine is, and how a command of a sweep is started on any machine."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import BinaryIO, NamedTuple, Protocol, TextIO, runtime_checkable

from attn_jax.sweeps.engines import with_parent

ROOT = str(pathlib.Path(__file__).resolve().parents[3])  # folder that the package is imported from
KILLED = -int(signal.SIGKILL)
LOOK = 0.2  # seconds between looks at a command


class Process(NamedTuple):
    """A command, and the file that its output is appended to."""

    name: str
    command: list[str]
    log: pathlib.Path


@runtime_checkable
class Running(Protocol):
    """A running process, here or on another machine."""

    def poll(self) -> int | None:
        """Returns the exit status, minus the number of a signal if one killed it; None while it runs."""
        ...

    def terminate(self) -> None:
        """Asks it to save its work and end."""
        ...


@runtime_checkable
class Engine(Protocol):
    """A place for processes."""

    at_once: int  # number of processes at the same time, unless the user says another one
    pause: float  # seconds between looks at the running processes

    def start(self, task: Process) -> Running:
        """Starts a command.

        Raises:
            UserError: its log cannot be written.
        """
        ...

    def close(self) -> None:
        """Leaves the place; called when nothing runs."""
        ...


def python_path() -> str:
    """Returns the value of PYTHONPATH with which a process finds this package, installed or not."""
    return os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), ROOT)))


def popen(command: list[str], log: BinaryIO | TextIO) -> subprocess.Popen:
    """Starts a command that finds this package, with its output in an open file.

    On Linux it is killed when this process ends, even by SIGKILL: a run that goes on alone would lock its work
    directory against the run that takes over.
    """
    environment = os.environ | {"PYTHONPATH": python_path()}
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", with_parent.__file__, str(os.getpid()), *command]
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def wait(command: list[str], log: str) -> int:
    """Runs a command to its end and returns its exit status; for a worker of an engine on some machine.

    An interruption of the worker is passed on as SIGTERM, so that a training saves its work.
    """
    with open(log, "ab") as file:
        process = popen(command, file)
    try:
        while (code := process.poll()) is None:
            time.sleep(LOOK)  # an interruption by Ray does not end a wait in the kernel
        return code
    except BaseException:
        process.terminate()
        process.wait()
        raise
