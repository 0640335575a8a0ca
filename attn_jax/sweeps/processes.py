"""Commands that run in parallel, each in its own process."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from attn_jax.data.files import append, reason
from attn_jax.errors import UserError
from attn_jax.sweeps import with_parent

ROOT = str(pathlib.Path(__file__).resolve().parents[2])  # folder that the package is imported from
ENDINGS = (signal.SIGTERM, signal.SIGINT)
NUM_TRIES = 2  # of a command that a signal kills, for instance for lack of memory
LOOK = 0.02  # seconds between looks at the commands


class Process(NamedTuple):
    """A command, and the file that its output is appended to."""

    name: str
    command: list[str]
    log: pathlib.Path


def start(process: Process) -> subprocess.Popen:
    """Starts a command that can import this package.

    On Linux the command is killed when this process ends, even by SIGKILL: a run that went on alone would keep its work
    directory locked when the sweep is started again.

    Raises:
        UserError: the log cannot be written.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), ROOT)))}
    command = process.command
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", with_parent.__file__, str(os.getpid()), *command]
    try:
        file = append(process.log)
    except OSError as error:
        raise UserError(f"cannot write {process.log}: {reason(error)}") from error
    with file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)


def run_all(
    tasks: Iterable[Process],
    *,
    at_once: int,
    ended: Callable[[Process, int], None],
    again: Callable[[Process, int], None],
    looked: Callable[[Collection[str]], None] = lambda names: None,
) -> int:
    """Runs commands, at most `at_once` at the same time, in their order.

    A SIGTERM or Ctrl-C that reaches this process or ends a command is passed on to all running commands, so that
    trainings are saved. No further command begins.

    Args:
        tasks: commands; the iterator is advanced when the next command can begin.
        at_once: number of processes.
        ended: called with the exit status of a command.
        again: called with the signal that killed a command, which then begins again.
        looked: called after each look at the commands, with the names of those that are running.

    Returns:
        The number of the signal; 0 if there was none, and all commands have ended.

    Raises:
        UserError: a log cannot be written.
    """
    came: list[int] = []
    running: dict[str, tuple[Process, subprocess.Popen]] = {}
    tries: dict[str, int] = {}
    waiting, repeated = iter(tasks), deque[Process]()

    def pass_on(number: int, frame: Any) -> None:
        came.append(number)
        for _, process in running.values():
            process.terminate()

    before = {number: signal.signal(number, pass_on) for number in ENDINGS}
    try:
        exhausted = False
        while running or repeated or not exhausted:
            while len(running) < at_once and not came and (repeated or not exhausted):
                task = repeated.popleft() if repeated else next(waiting, None)
                if task is None:
                    exhausted = True
                    break
                tries[task.name] = tries.get(task.name, 0) + 1
                running[task.name] = task, start(task)
                if came:  # a signal arrived between the check and the start
                    running[task.name][1].terminate()
            for task, process in list(running.values()):
                code = process.poll()
                if code is None:
                    continue
                del running[task.name]
                # The status is 128 + number if the command saved its work, -number if there was nothing to save.
                stopped = [number for number in ENDINGS if code in (128 + number, -number)]
                if stopped and not came:
                    pass_on(stopped[0], None)
                elif code < 0 and not came and tries[task.name] < NUM_TRIES:
                    again(task, -code)
                    repeated.append(task)
                elif not came:
                    ended(task, code)
            if came and not running:
                return came[0]
            looked(running.keys())
            time.sleep(LOOK)
        return 0
    finally:
        for _, process in running.values():
            process.terminate()
        for number, handler in before.items():
            signal.signal(number, handler)
