"""Does memory stay flat when a corpus grows from 100,000 pairs to 10 million?

    python -m experiments.benchmarks.large_corpus        # about 20 minutes and 3 GB of disk

Pairs of random words are written, encoded by `python -m attn_jax.cli.index` in a process that is killed once on its way
and started again, compared with their checksums, and read as shuffled batches of 64 by a process of its own. Memory is
what a process has for itself alone (RssAnon of Linux): pages of mapped files do not count, since the system takes them
back whenever it needs them. Every 64th batch is compared with what two processes read, half of the rows each. Writes
experiments/results/speed/large_corpus.json.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from attn_jax.data.files import load_checked
from attn_jax.data.token_index import PROGRESS
from attn_jax.tasks.text.indexed_text import IndexedTextOptions
from experiments.benchmarks.turns import write

SIZES = (100_000, 1_000_000, 10_000_000)
WORDS, LONGEST, PART = 20_000, 24, 100_000
BATCH, BATCHES, COMPARED = 64, 20_000, 64


def write_texts(folder: pathlib.Path, count: int) -> list[pathlib.Path]:
    """Writes two texts of random words: sentences of 4 to LONGEST words, the frequent ones by Zipf's law."""
    paths = [folder / f"{count}.source", folder / f"{count}.target"]
    chances = 1 / np.arange(1, WORDS + 1)
    words, ends = np.array([f"w{i}" for i in range(WORDS)]), np.cumsum(chances / chances.sum())
    for number, path in enumerate(paths):
        rng = np.random.default_rng(number)
        with open(path, "w", encoding="utf-8") as file:
            for start in range(0, count, PART):
                lengths = rng.integers(4, LONGEST + 1, size=min(PART, count - start))
                chosen = words[np.minimum(np.searchsorted(ends, rng.random(lengths.sum())), WORDS - 1)]
                stops = np.cumsum(lengths)
                file.writelines(
                    " ".join(chosen[stop - length : stop]) + "\n" for stop, length in zip(stops, lengths, strict=True)
                )
    return paths


def own_memory(process: int | str = "self") -> float:
    """Returns the megabytes that a process has for itself alone; 0 when it has ended."""
    try:
        status = pathlib.Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    found = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(found[0].split()[1]) / 1024 if found else 0.0


def watched(command: list[str], stop_when: Callable[[], bool] = lambda: False) -> tuple[float, float]:
    """Runs a command, and kills it when `stop_when` is true; returns (seconds, most megabytes)."""
    begun, most = time.perf_counter(), 0.0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while process.poll() is None:
            most = max(most, own_memory(process.pid))
            if stop_when():
                process.kill()
            time.sleep(0.05)
    finally:
        process.kill()
    if process.returncode > 0:
        raise SystemExit(f"{' '.join(command)}: {process.stderr.read().decode()}")
    return time.perf_counter() - begun, most


def half_done(index: pathlib.Path) -> bool:
    """Tells whether half of the pairs are encoded."""
    progress = index / PROGRESS
    if not progress.exists():
        return False
    state, _ = load_checked(progress)
    return state["done"] >= state["pairs"] / 2


def read(folder: str) -> dict[str, Any]:
    """Reads batches of all epochs' beginning, and memory before and after."""
    data = IndexedTextOptions().build(data_dir=folder, kept=None, seeds=(0,))
    whole, first, second = (data.batches(batch_size=BATCH, share=share) for share in ((0, 1), (0, 2), (1, 2)))
    whole.batch_at(0)
    before, begun = own_memory(), time.perf_counter()
    pairs = sum(len(whole.batch_at(step)["source"]) for step in range(BATCHES))
    seconds, after = time.perf_counter() - begun, own_memory()
    for step in range(0, BATCHES, COMPARED):
        parts = first.batch_at(step), second.batch_at(step)
        for name, rows in whole.batch_at(step).items():
            halves = (part[name][half] for part, half in zip(parts, np.split(np.arange(BATCH), 2), strict=True))
            np.testing.assert_array_equal(rows, np.concatenate([*halves]))
    return {"before_mb": before, "after_mb": after, "pairs_per_second": pairs / seconds}


def measure(count: int, folder: pathlib.Path) -> dict[str, Any]:
    """Returns a row of the table."""
    texts, index = write_texts(folder, count), folder / f"{count}.index"
    files = [f"--source={texts[0]}", f"--target={texts[1]}", f"--out={index}"]
    command = [sys.executable, "-m", "attn_jax.cli.index", *files]
    killed_after, most = watched(command, lambda: half_done(index))
    if (index / "index.json").exists():
        raise SystemExit(f"{' '.join(command)}: ended before it was killed")
    seconds, again = watched(command)
    checking, _ = watched([sys.executable, "-m", "attn_jax.cli.index", f"--check={index}"])
    for side, text in zip(("source", "target"), texts, strict=True):
        with open(text, encoding="utf-8") as lines:
            (index / f"valid.{side}").write_text("".join(next(lines) for _ in range(100)), encoding="utf-8")
    bytes_of_text = sum(path.stat().st_size for path in texts)
    for path in texts:
        path.unlink()
    module = [sys.executable, "-m", "experiments.benchmarks.large_corpus"]
    found = subprocess.run([*module, f"--read={index}"], capture_output=True, check=True, text=True).stdout
    row = {"pairs": count, "text_mb": bytes_of_text / 1e6, "killed_after": killed_after}
    row |= {"index_seconds": killed_after + seconds, "index_mb": max(most, again), "check_seconds": checking}
    return row | json.loads(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=SIZES)
    parser.add_argument("--read", default="", help=argparse.SUPPRESS)  # in a process of its own
    args = parser.parse_args()
    if args.read:
        print(json.dumps(read(args.read)))
        return
    load, rows = os.getloadavg()[0], []
    for count in args.pairs:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(count, pathlib.Path(folder)))
        print(rows[-1], file=sys.stderr, flush=True)
    write("large_corpus", {"batch": BATCH, "batches": BATCHES, "rows": rows}, ("numpy",), load)


if __name__ == "__main__":
    main()
