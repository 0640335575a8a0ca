"""What the parts of gpu_speed.py share: sizes, the run with its time, notes and compiled programs, timing of a call."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.turns import spread

WINDOWS = 3  # at most; page.py tells one, two and three apart


class Sizes(NamedTuple):
    """Shapes of all parts."""

    check: tuple[int, int, int, int] = (2, 4, 256, 64)  # batch, heads, length, width of a head
    layers: int = 6  # of the encoder, and as many of the decoder
    size: int = 512
    heads: int = 8
    inner: int = 2048
    vocab_size: int = 8000  # of each side
    pairs: int = 128  # of a batch
    tokens: int = 64  # of a source, and of a target
    steps: int = 10  # of training, dispatched before waiting
    matrix: int = 8192  # rows and columns of the product whose rate is the peak
    attention: tuple[int, int, int] = (4, 16, 64)  # batch, heads, width of a head
    lengths: tuple[int, ...] = (1024, 4096, 16_384)
    block: int = 512  # keys of a block
    chunk: int = 64  # positions of a chunk of a recurrent memory


SMALL = Sizes((2, 2, 16, 8), 1, 16, 2, 16, 50, 2, 4, 2, 128, (1, 2, 8), (16, 32), 8, 8)  # in the same order


class Run:
    """Time since the start and what is left of it, notes on what did not go as planned, and compiling in threads."""

    def __init__(self, limit: float):
        self.start, self.limit, self.notes = time.perf_counter(), limit, []
        self.pool, self.futures = ThreadPoolExecutor(max_workers=8), {}

    @property
    def left(self) -> float:
        """Seconds until the limit, at least 0."""
        return max(0.0, self.start + self.limit - time.perf_counter())

    def say(self, text: str) -> None:
        """Prints a line with the seconds since the start."""
        print(f"{time.perf_counter() - self.start:6.1f} s  {text}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Keeps a line for the results, and prints it."""
        self.notes.append(text)
        self.say(text)

    @contextlib.contextmanager
    def row(self, name: str) -> Iterator[None]:
        """A context in which an error is noted, as one line, and does not end the run."""
        try:
            yield
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            self.note(f"{name}: {type(error).__name__}: {lines[0][:200]}")

    def attempt(self, name: str, function: Callable, *arguments: Any) -> Any:
        """Returns what a function returns; None, with a note, if it fails or no time is left to begin it."""
        if not self.left:
            self.note(f"{name}: left out, no time was left")
            return None
        with self.row(name):
            return function(*arguments)

    def compile(self, name: str, jitted: Any, *arguments: Any) -> None:
        """Traces a function of jax.jit for arguments or their shapes, and begins to compile it in a thread."""
        with self.row(name):
            self.futures[name] = self.pool.submit(jitted.lower(*arguments).compile)

    def compiled(self, names: Iterable[str]) -> dict[str, Callable]:
        """Waits for programs, at most until the limit; returns them without those that failed or are not ready."""
        futures = {name: self.futures.pop(name) for name in names if name in self.futures}
        wait(futures.values(), timeout=self.left)
        found = {}
        for name, future in futures.items():
            if future.done():
                with self.row(name):
                    found[name] = future.result()
            else:
                future.cancel()
                self.note(f"{name}: left out, it was not compiled in time")
        self.say(f"compiled {len(found)} of {len(futures)} programs")
        return found


def call_times(call: Callable[[], Any], finish: Callable[[Any], Any], seconds: float) -> dict[str, float]:
    """Measures milliseconds of a call: median and range of WINDOWS windows, or of one if a call takes that long.

    Calls are dispatched together for about a fifth of a window, and then waited for, by `finish` of the last result.
    """
    finish(call())  # the first call loads the program
    begin = time.perf_counter()
    finish(call())
    once = time.perf_counter() - begin
    together = int(min(100, max(1, seconds / 5 / max(once, 1e-6))))
    found = []
    for _ in range(WINDOWS if once < 2 * seconds else 1):
        calls, begin = 0, time.perf_counter()
        while not calls or time.perf_counter() - begin < seconds:
            for _ in range(together):
                last = call()
            finish(last)
            calls += together
        found.append(1e3 * (time.perf_counter() - begin) / calls)
    return spread(found)


def peak_flops(size: int) -> float:
    """Measures the rate of a product of two square matrices of random numbers in bfloat16, in FLOP/s."""
    square = jax.device_put(np.random.default_rng(0).standard_normal((size, size), np.float32).astype(jnp.bfloat16))
    product = jax.jit(jnp.matmul).lower(square, square).compile()
    times = call_times(partial(product, square, square), jax.block_until_ready, 0.2)
    return 2 * size**3 / (times["median"] / 1e3)
