"""A line of progress on standard error.

    training      [##############......]  1200/1500  loss 0.012  41k tokens/s  0:12 left

On a terminal the line is rewritten in place; elsewhere, such as in a log file, a plain line is printed now and then.
"""

import collections
import contextlib
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

from attn_jax.errors import printable


def notice(message: str) -> None:
    """Prints a line for the user on standard error, with escapes for unprintable characters."""
    print(printable(message), file=sys.stderr, flush=True)


class Progress:
    """Context manager that shows a progress line of `total` steps, `start` of them done before, and ends it on exit.

    Speed and time left are estimated from the last `window` seconds. The time before the first update, which is
    compilation, the time before that of a step that `compiles`, and the time within `pause` do not count.
    """

    def __init__(
        self,
        label: str,
        total: int,
        *,
        start: int = 0,
        unit: str = "tokens",
        stream: Any = None,
        clock: Callable[[], float] = time.monotonic,
        width: int = 20,
        window: Real = 20.0,
        every: Real | None = None,
    ):
        self.label, self.total, self.unit, self.width, self.window = label, total, unit, width, window
        self.stream = sys.stderr if stream is None else stream
        self.clock = clock
        self.terminal = self.stream.isatty()
        self.every = every if every is not None else (0.1 if self.terminal else 30.0)
        self.history: collections.deque = collections.deque()  # (time less pauses, step, units done)
        self.paused, self.mark = 0.0, None  # seconds in pauses; (time less pauses, units done) of the last lap
        self.step, self.units, self.values = start, 0.0, {}
        self.compiling = False
        self.written_at: float | None = None
        self.written = ""

    def compiles(self) -> None:
        """Says that the next update comes after a compilation: the estimate begins anew there."""
        self.compiling = True

    def update(self, step: int, units: Real = 0.0, **values: Real) -> None:
        """Sets the number of steps done, adds `units` (tokens), and shows `values` by name."""
        now = self.clock()
        self.step, self.units, self.values = step, self.units + units, {**self.values, **values}
        if self.compiling:
            self.history.clear()
            self.compiling = False
        self.history.append((now - self.paused, step, self.units))
        if self.mark is None:
            self.mark = now - self.paused, self.units
        while len(self.history) > 2 and self.history[-1][0] - self.history[1][0] >= self.window:
            self.history.popleft()
        if self.written_at is None or now - self.written_at >= self.every:
            self._write(now)

    def say(self, what: str) -> None:
        """Shows a text such as "compiling ...", until the first update replaces it."""
        self._put(f"{self.label:<14}{what}")

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Context manager for other work, such as an evaluation, whose time does not count."""
        began = self.clock()
        try:
            yield
        finally:
            self.paused += self.clock() - began

    def lap(self) -> float:
        """Returns the units per second since the last lap, or since the first update; nan if no time has passed."""
        if not self.history:
            return math.nan
        (now, _, units), (before, units_before) = self.history[-1], self.mark
        self.mark = now, units
        return (units - units_before) / (now - before) if now > before else math.nan

    def line(self) -> str:
        """Writes the text of the line."""
        done = min(self.step / self.total, 1.0) if self.total else 1.0
        filled = int(done * self.width)
        parts = [f"[{'#' * filled}{'.' * (self.width - filled)}]", f"{self.step}/{self.total}"]
        parts += [f"{name} {value:.4g}" for name, value in self.values.items()]
        if len(self.history) > 1:
            (time0, step0, units0), (time1, step1, units1) = self.history[0], self.history[-1]
            seconds = max(time1 - time0, 1e-9)
            if units1 > units0:
                parts.append(f"{short((units1 - units0) / seconds)} {self.unit}/s")
            if step1 > step0 and self.step < self.total:
                parts.append(f"{clock_time((self.total - self.step) * seconds / (step1 - step0))} left")
        return f"{self.label:<14}" + "  ".join(parts)

    def clear(self) -> None:
        """Clears the line on a terminal, before something else is printed; the next update writes it again."""
        if self.terminal and self.written:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self.written, self.written_at = "", None

    def close(self) -> None:
        """Writes the last state and ends the line."""
        if self.history and (not self.written or self.line() != self.written):
            self._write(self.clock())
        if self.terminal and self.written:
            self.stream.write("\n")
            self.stream.flush()
        self.written, self.written_at = "", None
        self.history.clear()

    def _write(self, now: Real) -> None:
        self.written_at = now
        self._put(self.line())

    def _put(self, text: str) -> None:
        self.written = text
        if self.terminal:  # cut to fit: a line that wraps could not be rewritten in place
            self.stream.write(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}")
        else:
            self.stream.write(f"{text}\n")
        self.stream.flush()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error) -> None:
        self.close()


def short(number: Real) -> str:
    """Writes a number with about three figures: 950, 4.1k, 41k, 1.2M."""
    for unit in ("", "k", "M"):
        if number < 999.5 or unit == "M":
            return f"{number:.1f}{unit}" if number < 9.95 and unit else f"{number:.0f}{unit}"
        number /= 1000
    raise AssertionError


def clock_time(seconds: Real) -> str:
    """Writes a time as 0:12, 3:05 or 1:02:03."""
    minutes, second = divmod(int(seconds + 0.5), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
