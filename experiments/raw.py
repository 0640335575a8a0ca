"""Raw numbers of an experiment: one JSON file with the values of every seed, what was run, where and when.

experiments/results/NAME.json holds

    {"layout": 1, "command", "seconds", "processor_seconds", "cores", "load", "results": {...},
     "versions", "commit", "device", "machine", "date"}

An experiment calls `begin`, measures, and writes the file with `write`; its page and its figures are made from what
`read` returns, by

    python -m experiments.render
"""

import argparse
import math
import os
import pathlib
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attn_jax.data.files import load_json, reason, save_json, short
from attn_jax.errors import UserError
from attn_jax.evaluation.provenance import provenance
from attn_jax.evaluation.statistics import Interval
from attn_jax.figures import plots
from attn_jax.paths import user_path

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "experiments" / "results"
LAYOUT = 1
KEYS = ("command", "seconds", "results", "versions", "commit", "machine", "date")
PROVENANCE = ("versions", "commit", "device", "machine", "date")
NOT_KEPT = "Reported 2026-11; raw numbers not kept."  # the line of a page without a JSON file


class Page(NamedTuple):
    """A page of results: NAME.md and its figures, made from NAME.json and nothing else."""

    name: str
    text: Callable[[dict[str, Any]], str]  # (record)
    figures: Mapping[str, Callable[[dict[str, Any]], Any]] = {}  # file name -> (record) -> matplotlib Figure
    measured: bool = True  # False: the page has no JSON file, since its figures are of functions alone
    load: Callable[[pathlib.Path], dict[str, Any]] | None = (
        None  # in place of `read`, for a JSON file of another layout
    )

    def save(self, record: dict[str, Any], folder: pathlib.Path) -> str:
        """Writes the page and its figures to a folder; returns the text.

        Raises:
            UserError: it cannot be written.
        """
        text = self.text(record)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, draw in self.figures.items():
                plots.save(draw(record), folder / name)
            (folder / f"{self.name}.md").write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {error.filename or folder}: {reason(error)}") from error
        return text


class Begun(NamedTuple):
    """The clocks and the load of the machine when a measurement began."""

    wall: float
    processor: float
    load: float

    @classmethod
    def now(cls) -> "Begun":
        """Reads the clocks."""
        return cls(time.monotonic(), processor_seconds(), os.getloadavg()[0])


def begin(path: pathlib.Path) -> Begun:
    """Reads the clocks before a measurement, whose results `write` will write to `path`; its folder is made.

    Raises:
        UserError: they could not be written there. That is known before the measurement and not after it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):  # the bits of a folder do not say all
            pass
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}") from error
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a folder")
    return Begun.now()


def processor_seconds() -> float:
    """Returns the seconds of the processor that this process and its ended children have taken."""
    return sum(os.times()[:4])


def command(script: str, *arguments: str) -> str:
    """Returns what is to be typed to run experiments/SCRIPT.py, with the quotes that a shell needs."""
    return shlex.join(["python", f"experiments/{script}.py", *arguments])


def main(page: Page, measure: Callable[[], dict[str, Any]], argv: Sequence[str] | None = None) -> None:
    """Runs experiments/NAME.py: measures, writes NAME.json, NAME.md and the figures, and prints the page."""
    parser = argparse.ArgumentParser(description=f"Measures what experiments/results/{page.name}.md shows.")
    parser.add_argument("--out", type=user_path, default=RESULTS, help="directory of the results")
    out = parser.parse_args(argv).out
    path = out / f"{page.name}.json"
    begun = begin(path)
    print(page.save(write(path, measure(), command=command(page.name), begun=begun), out))


def write(path: pathlib.Path, results: dict[str, Any], *, command: str, begun: Begun) -> dict[str, Any]:
    """Writes the results of a measurement to a JSON file, and returns what was written.

    Args:
        path: of the file; its folder is made if there is none.
        results: numbers, texts, NumPy arrays, lists and dicts of them with keys that are texts; None where there is no
            number.
        command: what is to be typed to measure them again.
        begun: what `begin` returned before the measurement.

    Raises:
        ValueError: a number is not finite, a key is no text, or a value is of another kind.
        UserError: the file cannot be written.
    """
    record = {
        "layout": LAYOUT,
        "command": command,
        "seconds": round(time.monotonic() - begun.wall, 1),
        "processor_seconds": round(processor_seconds() - begun.processor, 1),
        "cores": os.cpu_count(),
        "load": [round(begun.load, 2), round(os.getloadavg()[0], 2)],
        "results": plain(results),
        **provenance(),
    }
    save_json(path, record)
    return record


def read(path: pathlib.Path) -> dict[str, Any]:
    """Reads a file that `write` wrote.

    Raises:
        UserError: it is missing, cut short, of another layout, or something else.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist; run the experiment that writes it")
    record = load_json(path)
    if record.get("layout") != LAYOUT:
        raise UserError(f"{path}: expected layout {LAYOUT} of raw results, got {record.get('layout', 'none')}")
    if missing := [key for key in KEYS if key not in record]:
        raise UserError(f"{path}: raw results without {', '.join(missing)}; run the experiment again")
    return record


def earlier(path: pathlib.Path) -> dict[str, Any]:
    """Reads the record to whose rows --add adds others.

    Raises:
        UserError: there is none, or the file is none of `write`.
    """
    if not path.exists():
        raise UserError(f"--add: {path} does not exist, so there are no rows to keep; leave --add out")
    return read(path)


def read_any(path: pathlib.Path) -> dict[str, Any]:
    """Reads a file that `write` wrote, or one from before there were layouts.

    The results of the latter stand beside versions, commit, machine and date; command, seconds and load were not kept.

    Raises:
        UserError: it is missing, cut short, of another layout, or something else.
    """
    if not path.exists() or "layout" in (record := load_json(path)):
        return read(path)
    known = {key: record.pop(key) for key in PROVENANCE if key in record}
    return {"results": record, **known}


def difference(kept: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Names the first setting in which a kept result differs from what is asked for now, with both values; or ""."""
    before, after = plain(dict(kept)), plain(dict(now))
    for key in {**before, **after}:
        there, here = before.get(key), after.get(key)
        if isinstance(there, dict) and isinstance(here, dict) and there != here:
            return f"{key}.{difference(there, here)}"
        if there != here:
            return f"{key}: {short(there)} there, {short(here)} now"
    return ""


def rewrite(page: pathlib.Path, changed: Callable[[str], str]) -> None:
    """Changes the text of a page of the documentation.

    Raises:
        UserError: it cannot be read or written.
    """
    try:
        page.write_text(changed(page.read_text(encoding="utf-8")), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{page}: {reason(error)}") from error


def circumstances(record: dict[str, Any]) -> str:
    """Formats how, where and when a record was measured, as a list in Markdown."""
    versions = record["versions"]
    shown = " ".join(f"{name} {versions[name]}" for name in ("jax", "flax", "optax", "numpy") if versions.get(name))
    before, after = record["load"]
    lines = [
        f"`{record['command']}`: {record['seconds']:.0f} s, {record['processor_seconds']:.0f} s of the processor",
        f"{record['date'][:10]}, commit {str(record['commit'])[:7]}{_changes(record)}, "
        f"Python {versions['python']}, {shown}",
        f"{record['cores']} x {record['machine']}{accelerators([record])}, "
        f"load average {before:.1f} before, {after:.1f} after",
    ]
    return "\n".join(f"- {line}" for line in lines)


def measured_at(origin: Mapping[str, Any] | None) -> str:
    """Formats the commit and the date of a row that has its own, such as "abcdef1, 2026-11-26"; "" of one without."""
    if not origin:
        return ""
    commit = f"{origin['commit'][:7]}{_changes(origin)}, " if origin["commit"] else ""
    return f"{commit}{origin['date'][:10]}"


def accelerators(records: Sequence[dict[str, Any]]) -> str:
    """Formats the devices of runs or measurements other than a CPU, such as ", 1 x NVIDIA H100"."""
    devices = [record.get("device", {"platform": "cpu"}) for record in records]
    kinds = {f"{device['count']} x {device['kind']}": None for device in devices if device["platform"] != "cpu"}
    return "".join(f", {kind}" for kind in kinds)


def training(runs: Sequence[dict[str, Any]], missing: Sequence[str] = ()) -> str:
    """Formats at which commits the runs of a page were trained, and which of its experiment were not, as a list."""
    commits = dict.fromkeys(run["commit"][:7] for run in runs)
    trained = f"- trained at commit {', '.join(commits)}{accelerators(runs)}"
    return f"{trained}\n- not trained: {', '.join(missing)}" if missing else trained


def table(head: list[str], rows: list[list[str]], left: int = 1) -> str:
    """Formats a table in Markdown: `left` columns are flush left, the others, which have numbers, flush right."""
    rule = "|" + "---|" * left + "---:|" * (len(head) - left)
    return "\n".join(["| " + " | ".join(head) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)])


def interval(found: Interval, digits: int = 1) -> str:
    """Formats a mean with half its interval, such as "7.4 ± 0.2"."""
    return f"{found.mean:.{digits}f} ± {found.half_width:.{digits}f}"


def number(value: float) -> str:
    """Formats a positive number with two significant digits, and with all before the point."""
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def rounded(values: Any, digits: int = 6) -> Any:
    """Returns numbers with so many significant digits, for long lists of them."""
    array = np.asarray(values, np.float64)
    return np.array([float(f"{value:.{digits}g}") for value in array.ravel()]).reshape(array.shape)


def plain(value: Any) -> Any:
    """Returns `value` with arrays and tuples as lists and NumPy numbers as Python's, as JSON has them.

    Raises:
        ValueError: a number is not finite, a key is no text, or a value is of another kind.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"raw results have the key {wrong[0]!r}; expected a text")
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"raw results have the number {value}; expected a finite one, or None")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"raw results have a {type(value).__name__}; expected numbers, texts, lists or dicts")


def _changes(record: Mapping[str, Any]) -> str:
    return " with changes" if str(record["commit"]).endswith("+changes") else ""
