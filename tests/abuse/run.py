"""Abuses the program as a new user or an attacker would, and counts what it does with each attempt.

    python tests/abuse/run.py [--only=PATTERN] [--out=results.json] [--workers=1] [--runs=DIR] [--list]

Four small runs are trained first, once (see sandbox.py). Each case is then a command line on copies of their files:
wrong options, wrong data, damaged or planted work directories. A right refusal is one line on standard error that says
what is wrong, a non-zero status, and all files as they were; a right acceptance is the right answer. Further values,
lines and flipped bits are in the tests of the part that reads them. `--only` takes a regular expression of ids, such as
"links/" or "options_huge"; `--runs` keeps the four runs for the next time. About twenty minutes on one core.

The exit status is 1 if anything was neither a clean refusal nor rightly accepted.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import queue
import re
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(pathlib.Path(__file__).parent)]

import compile_cache  # noqa: E402

compile_cache.use()

import checkpoints  # noqa: E402
import command_line  # noqa: E402
import data_files  # noqa: E402
import faults  # noqa: E402
import input_lines  # noqa: E402
import links  # noqa: E402
import option_values  # noqa: E402
import reports  # noqa: E402
import workdirs  # noqa: E402
from case import GOOD, VERDICTS  # noqa: E402
from sandbox import Sandbox  # noqa: E402

from attn_jax.evaluation.provenance import provenance  # noqa: E402

SUBJECTS = (command_line, option_values, data_files, input_lines, workdirs, checkpoints, links, faults, reports)


def all_cases() -> list:
    """Every case, in order; the ids are different."""
    cases = [case for subject in SUBJECTS for case in subject.cases()]
    twice = [name for name, count in collections.Counter(case.id for case in cases).items() if count > 1]
    assert not twice, twice
    return cases


def run_all(chosen: list, folder: pathlib.Path, workers: int) -> list[dict]:
    """The results of these cases."""
    boxes: queue.Queue = queue.Queue()
    first = Sandbox(folder)
    first.train()
    for box in [first, *(Sandbox(folder) for _ in range(1, workers))]:
        boxes.put(box)

    def attempt(number: int) -> dict:
        box = boxes.get()
        try:
            return box.attempt(chosen[number], f"{number:04d}")
        finally:
            boxes.put(box)

    results = []
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for number, result in enumerate(pool.map(attempt, range(len(chosen))), 1):
            results.append(result)
            tell(number, len(chosen), result)
    while not boxes.empty():
        boxes.get().close()
    return results


def tell(number: int, total: int, result: dict) -> None:
    """A line for whatever is not good, and now and then where it is."""
    if result["verdict"] not in GOOD:
        print(f"{result['verdict']:<16}{result['id']}   {result['message']}", file=sys.stderr, flush=True)
    elif number % 50 == 0:
        print(f"{number}/{total}", file=sys.stderr, flush=True)


def table(results: list[dict]) -> str:
    """Counts of the verdicts by section."""
    counts = collections.defaultdict(collections.Counter)
    for result in results:
        for section in (result["id"].split("/")[0], "all"):
            counts[section][result["verdict"]] += 1
    counts["all"] = counts.pop("all")
    shown = [verdict for verdict in VERDICTS if counts["all"][verdict]]
    rows = [["", *shown, "cases"]]
    rows += [[name, *(str(row[v] or "") for v in shown), str(sum(row.values()))] for name, row in counts.items()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join([f"{row[0]:<{widths[0]}}", *map(str.rjust, row[1:], widths[1:])]) for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression of ids")
    parser.add_argument("--out", help="a JSON file for the results")
    parser.add_argument("--workers", type=int, default=1, help="cases at a time")
    parser.add_argument("--runs", help="a folder that keeps the four runs for the next time")
    parser.add_argument("--list", action="store_true", help="print the ids alone")
    arguments = parser.parse_args()
    pattern = re.compile(arguments.only)
    chosen = [case for case in all_cases() if pattern.search(case.id)]
    if not chosen:
        parser.error(f"--only={arguments.only}: no id of a case matches; --list prints them all")
    if arguments.list:
        print("\n".join(case.id for case in chosen))
        return 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="abuse") as temporary:
        folder = pathlib.Path(arguments.runs or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        results = run_all(chosen, folder, arguments.workers)
    bad = [result for result in results if result["verdict"] not in GOOD]
    seconds = round(time.monotonic() - begin)
    print(f"\n{table(results)}\n\n{seconds} seconds")
    for result in bad:
        print(f"{result['verdict']:<16}{result['id']}\n    {result['message']}")
    if arguments.out:
        counts = collections.Counter(result["verdict"] for result in results)
        content = {**provenance(), "seconds": seconds, "only": arguments.only, "counts": dict(counts), "cases": results}
        pathlib.Path(arguments.out).write_text(
            json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
        )
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
