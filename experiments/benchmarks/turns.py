"""Programs that take turns in one process: how fast is each, while the machine is the same for all?

The programs run in the order A B C C B A, each for some seconds at a time, so that a slow drift of the machine cancels.
The ratio of a program to another one is taken within each half of a round and is reported as a median with its range.
"""

import dataclasses
import json
import pathlib
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from attn_jax.evaluation.provenance import provenance, version
from experiments.benchmarks.machine import allocator_settings, memory_gib

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "results" / "speed"


class Window(NamedTuple):
    """Measurements of a program in one turn."""

    units: float  # of work: tokens, calls, epochs
    seconds: float
    cpu_seconds: float  # of all threads
    steps: list[float]  # seconds of each step


@dataclasses.dataclass
class Program:
    """A program: each item of `steps` does some work and is the number of units done."""

    name: str
    steps: Iterator[float]
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)  # shown beside its speed
    windows: list[Window] = dataclasses.field(default_factory=list)

    def run(self, seconds: float) -> None:
        """Adds a window of at least this many seconds and one step."""
        units, steps = 0.0, []
        cpu, start = time.process_time(), time.perf_counter()
        while not steps or time.perf_counter() - start < seconds:
            before = time.perf_counter()
            units += next(self.steps)
            steps.append(time.perf_counter() - before)
        self.windows.append(Window(units, time.perf_counter() - start, time.process_time() - cpu, steps))


def take_turns(programs: Sequence[Program], rounds: int, seconds: float) -> None:
    """Measures two windows of each program in each round, after a short one that compiles and warms up."""
    for program in programs:
        program.run(min(seconds, 0.5))
        program.windows.clear()
    for number in range(rounds):
        for program in (*programs, *programs[::-1]):
            program.run(seconds)
            window = program.windows[-1]
            print(
                f"round {number + 1}  {program.name:<60} {window.units / window.seconds:10.1f}/s",
                file=sys.stderr,
                flush=True,
            )


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns {"median", "low", "high"}."""
    return {"median": float(np.median(values)), "low": float(np.min(values)), "high": float(np.max(values))}


def summary(programs: Sequence[Program], baseline: str) -> list[dict[str, Any]]:
    """Returns a row for each program: units per second and per CPU second, milliseconds of a step, ratio to a baseline.

    The 99th percentile of the steps is given from a hundred steps on.
    """
    speeds = {p.name: np.array([w.units / w.seconds for w in p.windows]) for p in programs}
    rows = []
    for program in programs:
        steps = 1e3 * np.concatenate([w.steps for w in program.windows])
        rows.append(
            {
                "name": program.name,
                "per_second": spread(speeds[program.name]),
                "per_cpu_second": spread([w.units / w.cpu_seconds for w in program.windows]),
                "ratio": spread(speeds[program.name] / speeds[baseline]),
                "step_ms": {"p50": float(np.percentile(steps, 50)), "count": len(steps)}
                | ({"p99": float(np.percentile(steps, 99))} if len(steps) >= 100 else {}),
                **program.facts,
            }
        )
    return rows


def write(name: str, measured: dict[str, Any], packages: Sequence[str], load: float, script: str = "") -> None:
    """Writes experiments/results/speed/NAME.json: what was measured, the command, versions, machine and load.

    Args:
        packages: whose versions are stored besides those of a run.
        load: the load average before the measurement.
        script: that measured, if its name is another one.
    """
    # A folder of this machine alone is left out; data/babi is a path that a reader can type.
    arguments = [re.sub(r"=(?:/|\.\./)[^=]*/(\w+)", r"=\1", argument) for argument in sys.argv[1:]]
    stored = {
        "command": shlex.join(["python", "-m", f"experiments.benchmarks.{script or name}", *arguments]),
        **provenance(),
        "packages": {package: version(package) for package in packages},
        "memory_gib": memory_gib(),
        "allocator": allocator_settings(),
        "load_average_before": load,
        **measured,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
