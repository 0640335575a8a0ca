"""Commands that run beside each other in processes of their own, on this machine or on others."""

import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

from attn_jax.sweeps.engines.base import Engine, Process, Running

ENDINGS = (signal.SIGTERM, signal.SIGINT)
NUM_TRIES = 2  # of a command that a signal has killed, for instance because memory was short


def run_all(
    tasks: Iterable[Process],
    *,
    engine: Engine,
    at_once: int,
    ended: Callable[[Process, int], None],
    again: Callable[[Process, int], None],
    looked: Callable[[Collection[str]], None] = lambda names: None,
) -> int:
    """Runs commands, at most `at_once` at the same time, in their order.

    SIGTERM and Ctrl-C, which reach this process or end one of the commands, are passed on to all that are running, so
    that a training is saved; then no further command begins.

    Args:
        tasks: commands; the next one is asked for when it can begin.
        engine: where they run.
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
    running: dict[str, tuple[Process, Running]] = {}
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
                running[task.name] = task, engine.start(task)
                if came:  # between the question and the start
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
            time.sleep(engine.pause)
        return 0
    finally:
        for _, process in running.values():
            process.terminate()
        for number, handler in before.items():
            signal.signal(number, handler)
