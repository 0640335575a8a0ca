"""A table of a running sweep on a terminal, redrawn in place: each run's step, training loss and validation metrics.

    sweep         2 of 12 finished, 2 running
    score=dot,seed=0          finished  step 1500  loss 0.012  valid loss 0.034, exact_match 99.2
    score=general,seed=0      running   step 600   loss 0.21   valid loss 0.25, exact_match 91
    ... 8 more

All numbers come from the metrics.jsonl of the runs.
"""

import json
import math
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from attn_jax.errors import printable

EVERY = 1.0  # seconds between drawings
TAIL = 1 << 16  # bytes of metrics.jsonl to read
ORDER = ("running", "failed", "finished", "waiting")  # priority in a small window; waiting runs are never shown


class State(NamedTuple):
    """Progress of a run."""

    name: str
    status: str  # one of ORDER
    step: int | None = None
    loss: float | None = None  # training loss, mean over the seeds
    valid: tuple[tuple[str, float], ...] = ()  # newest metrics of the validation split, means over the seeds


def state_of(folder: pathlib.Path, name: str, running: Collection[str], failed: Collection[str] = ()) -> State:
    """Reads the state of the run folder/name from its files; `running` and `failed` name runs of this process."""
    ended = "finished" if (folder / name / "result.json").exists() else "waiting"
    status = "running" if name in running else "failed" if name in failed else ended
    step, values = newest(folder / name / "metrics.jsonl")
    valid = tuple((key.removeprefix("valid/"), value) for key, value in values.items() if key.startswith("valid/"))
    return State(name, status, step, values.get("train/loss"), valid)


def newest(path: pathlib.Path) -> tuple[int | None, dict[str, float]]:
    """Reads the last step and the newest value of each metric of a metrics.jsonl, mean over seeds; nan for null."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read().splitlines()
    except OSError:
        return None, {}
    step, values = None, {}
    for line in lines:
        try:
            record = json.loads(line)
            at = int(record.pop("step"))
            values |= {name: _mean(value) for name, value in record.items()}
        # The first line may be cut, the last one half written, others damaged.
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
            continue
        step = at
    return step, values


def table_lines(states: Sequence[State], width: int = 80, height: int = 24) -> list[str]:
    """Formats the states as at most `height` lines of at most `width` characters."""
    counts = {status: sum(state.status == status for state in states) for status in ORDER}
    failed = f", {counts['failed']} failed" if counts["failed"] else ""
    head = f"{'sweep':<14}{counts['finished']} of {len(states)} finished, {counts['running']} running{failed}"
    shown = [state for status in ORDER[:-1] for state in states if state.status == status]
    shown = shown[: max(height - 2, 1)]
    more = [f"... {len(states) - len(shown)} more"] if len(shown) < len(states) else []
    rows = [_cells(state) for state in sorted(shown, key=states.index)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if rows:
        widths[0] = max(min(widths[0], width - sum(widths[1:]) - 6), 16)
    lines = ["  ".join(f"{_end(c, w):<{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]
    return [line.rstrip()[:width] for line in (head, *lines, *more)]


class Live:
    """Draws the table of a sweep on a terminal, over the previous drawing.

    Args:
        folder: folder of the work directories.
        names: names of all runs, in order.
        stream: the terminal.
        clock: function that returns the time in seconds.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        names: Sequence[str],
        stream: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.folder, self.names, self.clock = folder, names, clock
        self.stream = sys.stdout if stream is None else stream
        self._drawn, self._at = 0, -math.inf

    def update(self, running: Collection[str], failed: Collection[str] = ()) -> None:
        """Draws the table if the last drawing is old enough."""
        if self.clock() - self._at < EVERY:
            return
        self._at = self.clock()
        columns, rows = shutil.get_terminal_size()
        states = [state_of(self.folder, name, running, failed) for name in self.names]
        lines = [printable(line) for line in table_lines(states, columns - 1, rows - 2)]
        self._erase()
        self.stream.write("".join(f"{line}\n" for line in lines))
        self.stream.flush()
        self._drawn = len(lines)

    def clear(self) -> None:
        """Removes the table, before something else is printed; the next update draws it again."""
        self._erase()
        self._at = -math.inf

    def _erase(self) -> None:
        if self._drawn:
            self.stream.write(f"\x1b[{self._drawn}F\x1b[J")  # go to the start of its first line, and clear all below
            self.stream.flush()
        self._drawn = 0


def _mean(value: float | list | None) -> float:
    values = [_mean(each) for each in value] if isinstance(value, list) else [math.nan if value is None else value]
    return sum(values) / len(values)


def _cells(state: State) -> tuple[str, str, str, str]:
    loss = "" if state.loss is None else f"loss {state.loss:.4g}"
    valid = ", ".join(f"{name} {value:.4g}" for name, value in state.valid)
    step = "" if state.step is None else f"step {state.step}"
    return state.name, state.status, step, f"{loss:<12}{f'valid {valid}' if valid else ''}".rstrip()


def _end(text: str, width: int) -> str:
    """Cuts a text that is too long at its start, since names of runs differ at the end."""
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"
