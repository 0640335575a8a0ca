"""Has a number of docs/performance.md become another one? Measures the quickest row of each table again.

python -m experiments.benchmarks.again [NAME ...]

A line for each table says the number of its file, the number now and their ratio; a ratio beyond 1.5 either way is
marked, and ends the program with an error. On another machine than the file's, which is named, that means little.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from attn_jax.cli.allocator import keep_memory
from attn_jax.errors import UserError, lookup, one_line
from attn_jax.evaluation.provenance import provenance
from experiments.benchmarks import turns

LARGEST = 1.5  # ratio of two measurements that is not marked
SECONDS = 2.0  # of the window of a program


class Part(NamedTuple):
    """A part of a script that takes no turns: its arguments, and the number that it measures."""

    arguments: Sequence[str]
    number: Callable[[dict[str, Any]], float]


PARTS = {
    "output_speed": Part(
        ("--methods", "full", "--sizes", "10000", "--seconds", "1"),
        lambda found: next(
            row["median_ms"] for row in found["rows"] if (row["method"], row["vocab_size"]) == ("full", 10_000)
        ),
    ),
    "step_profile": Part(("--programs", "lstm"), lambda found: found["groups"][0]["ms"]),
    "kernel_speed": Part(("--draws", "20", "--sizes"), lambda found: found["fits"][1]["ms"]),
    "large_corpus": Part(("--pairs", "100000"), lambda found: found["rows"][0]["index_seconds"]),
    "start_speed": Part(("--repeats", "1"), lambda found: found["rows"][0]["later"]["median"]),
}
TURNS = (
    "translation_speed",
    "translation_profile",
    "transformer_speed",
    "decoding_speed",
    "long_decoding",
    "memn2n_speed",
    "normalizers",
    "input_speed",
)
LEFT_OUT = {"blockwise_memory": "its quickest row takes minutes, too"}


class Measured(Exception):
    """The number is known; the rest of the script is not needed."""

    def __init__(self, number: float):
        super().__init__(number)
        self.number = number


def quickest(found: dict[str, Any]) -> tuple[str, float]:
    """Returns (name, milliseconds of a step) of the program of the first group with the shortest step."""
    (first, *_) = found.get("groups", [found])
    row = min(first["rows"], key=lambda row: row["step_ms"]["p50"])
    return row["name"], row["step_ms"]["p50"]


def measure(name: str, found: dict[str, Any]) -> tuple[str, float, float]:
    """Returns (what, its number in the file, its number now)."""
    script = importlib.import_module(f"experiments.benchmarks.{name}")
    part = PARTS.get(name)
    what, before = ("", part.number(found)) if part else quickest(found)

    def one_turn(programs: Iterable[turns.Program], *_: Any) -> None:
        for program in programs:
            if program.name == what:
                turns.take_turns([program], 1, SECONDS)
                raise Measured(turns.summary([program], what)[0]["step_ms"]["p50"])

    def caught(_: str, measured: dict[str, Any], *__: Any) -> None:
        if part is None:
            raise UserError(f"{name}: no program is called {what!r}, as in its file; run the script again")
        raise Measured(part.number(measured))

    sys.argv = [name, *(part.arguments if part else ())]
    script.__dict__.update(take_turns=one_turn, write=caught)
    try:
        script.main()
    except Measured as end:
        return what or " ".join(sys.argv[1:]), before, end.number
    raise AssertionError(f"{name} has written nothing")


def compare(name: str) -> None:
    """Prints the number of a table's file and the number now; raises a UserError if they are far apart."""
    if name in LEFT_OUT:
        print(f"{name:<20} left out: {LEFT_OUT[name]}")
        return
    if not (path := turns.RESULTS / f"{name}.json").exists():
        print(f"{name:<20} has no file yet")
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    what, before, now = measure(name, found)
    here, ratio = provenance()["machine"], now / before
    elsewhere = "" if found["machine"] == here else f"   file of {found['machine']}"
    changed = not 1 / LARGEST <= ratio <= LARGEST
    mark = "   CHANGED" if changed else ""
    print(f"{name:<20} {before:10.2f} -> {now:10.2f}   {ratio:5.2f}{mark}   {what}{elsewhere}", flush=True)
    if changed:
        raise UserError(f"beyond a factor of {LARGEST}: {name}; run python -m experiments.benchmarks {name}")


def main(names: Sequence[str]) -> None:
    known = [*TURNS, *PARTS]
    for name in names:
        lookup(dict.fromkeys([*known, *LEFT_OUT]), name, "table")
    names = [*names] or known
    if len(names) == 1:
        return compare(names[0])
    # Each in a process of its own: a script may bind its process to one core.
    command = [sys.executable, "-m", "experiments.benchmarks.again"]
    failed = [name for name in names if subprocess.run([*command, name]).returncode]
    if failed:
        raise UserError(f"changed or not measured, as said above: {', '.join(failed)}")


if __name__ == "__main__":
    keep_memory()  # as the scripts do
    with one_line("again"):
        main(sys.argv[1:])
