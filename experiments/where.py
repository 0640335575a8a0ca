"""Where did it look? Soft, sparse, hard and marginal attention over images whose true boxes are known.

    python experiments/where.py
    python experiments/where.py --table

Captions of generated scenes (configs/scenes_soft.py), every variant with three seeds in one vmapped program. Hard
attention of Xu 2015 (arXiv 1502.03044) learns slowly from random parameters, so the variants in STARTED begin with the
parameters of the soft run (train.start_from); soft attention that is trained on for as many steps stands beside them.
The first command trains what is not trained yet and writes experiments/results/where.json and .md; the second trains
nothing. Overrides are for all runs: --config.train.num_steps=100.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.cli.sweep import Job, named, run_jobs  # noqa: E402
from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.evaluation.statistics import Interval, compare, t_interval  # noqa: E402
from attn_jax.tasks.files import load_json  # noqa: E402
from experiments import raw  # noqa: E402
from experiments.soft_vs_hard import EXACT, hard  # noqa: E402

RUNS = "runs/where"
SEEDS = (0, 1, 2)
LUONG = {"decoder": "luong", "input_feeding": False}
LEARNED = hard("reinforce", 4, "learned")
BASELINE, STARTED_BASELINE = "soft", "soft, trained on"
FRESH = {  # name -> changes to config.model of configs/scenes_soft.py; from random parameters
    BASELINE: {},
    "sparsemax": {"attention.normalize": "sparsemax"},
    "largest norm, 2 cells": {"attention.score": "norm", "attention.read": "top", "attention.num_samples": 2},
    "marginal": EXACT,
    "soft, step then attend": LUONG,
    "soft, step then attend, self-attention": LUONG | {"self_attention": True},
    "hard, learned baseline, no start": LEARNED,
}
STARTED = {  # from the parameters of the soft run
    STARTED_BASELINE: {},
    "hard, running mean": hard("reinforce", 4, "running_mean"),
    "hard, learned baseline": LEARNED,
    "hard, leave-one-out": hard("reinforce", 4, "leave_one_out"),
    "hard, unordered set of 4": hard("unordered_set", 4, "leave_one_out"),
}
METRICS = {  # of a result -> (heading, digits)
    "exact_match": ("exact captions", 1),
    "touch": ("weight in the box", 1),
    "point": ("pointing game", 1),
    "cells": ("cells per word", 2),
}
KEPT = ("seeds", "metrics", "num_parameters", "steps", "train_seconds", "checkpoint")  # of result.json


def sweep(folder: str = RUNS) -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run; those in STARTED need the soft run in `folder`."""
    common = {"config": "configs/scenes_soft.py", "seeds": SEEDS, "eval.num_pictures": 0}
    for variant in FRESH.values():
        yield common | _of_model(variant)
    (soft,) = named([common], pathlib.Path(__file__))
    for variant in STARTED.values():
        yield common | _of_model(variant) | {"train.start_from": f"{folder}/{soft.name}"}


def _of_model(changes: dict[str, Any]) -> dict[str, Any]:
    return {f"model.{key}": value for key, value in changes.items()}


def train(todo: Sequence[Job], folder: pathlib.Path, common: list[str]) -> list[str]:
    """Trains what is not trained yet, first the runs that others start from; returns the names of failed runs."""
    first, then = list(todo[: len(FRESH)]), list(todo[len(FRESH) :])
    return [*run_jobs(first, folder, common), *run_jobs(then, folder, common)]


def collect(todo: Sequence[Job], folder: pathlib.Path) -> dict[str, Any]:
    """Returns {variant: what is kept of its result}, of the finished runs."""
    found = {}
    for variant, job in zip((*FRESH, *STARTED), todo, strict=True):
        path = folder / job.name / "result.json"
        if path.exists():
            result = load_json(path)
            found[variant] = {key: result[key] for key in KEPT}
    return found


def report(found: dict[str, Any]) -> str:
    """Formats two tables: means over the seeds, and paired differences to soft attention of as many steps."""
    head = ["", *(heading for heading, _ in METRICS.values())]
    rows, apart = [], []
    for variant, result in found.items():
        baseline = STARTED_BASELINE if variant in STARTED else BASELINE
        cells, differences = [f"{variant} *" if variant in STARTED else variant], [f"{variant} − {baseline}"]
        for name, (_, digits) in METRICS.items():
            values = result["metrics"][name]["seeds"]
            cells.append(_shown(t_interval(values), digits) if len(values) > 1 else f"{values[0]:.{digits}f}")
            if baseline in found and len(values) > 1:
                other = found[baseline]["metrics"][name]["seeds"]
                differences.append(_shown(compare(values, other).difference, digits))
        rows.append(cells)
        if variant != baseline and len(differences) == len(head):
            apart.append(differences)
    lines = [
        raw.table(head, rows),
        "",
        "\\* begins with the parameters of soft, and is trained for as many steps again",
    ]
    if apart:
        lines += ["", "Differences, paired by seed:", "", raw.table(head, apart)]
    return "\n".join(lines)


def _shown(interval: Interval, digits: int) -> str:
    return f"{interval.mean:.{digits}f} ± {interval.half_width:.{digits}f}"


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    found = record["results"]
    seeds = max(len(result["seeds"]) for result in found["runs"].values())
    uniform = next(iter(found["runs"].values()))["metrics"]["uniform"]["mean"]
    missing = f"\nNot trained to the end: {', '.join(found['missing'])}.\n" if found["missing"] else ""
    return f"""# Where did it look?

{raw.circumstances(record)}
- test scenes of `configs/scenes_soft.py`, mean of {seeds} seeds with its 95 % interval
- exact captions, in percent; weight on the cells that touch the box of the word's object, in percent (equal weights:
  {uniform:.1f}); percent of the words whose cell of largest weight touches the box; number of equal weights with the
  entropy of the weights

{report(found["runs"])}
{missing}"""


PAGES = (raw.Page("where", page),)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default=RUNS, help="where the runs are or go")
    parser.add_argument("--out", type=pathlib.Path, default=raw.RESULTS, help="directory of the results")
    parser.add_argument("--table", action="store_true", help="train nothing")
    args, common = parser.parse_known_args(argv)
    begun, folder = raw.Begun.now(), pathlib.Path(args.runs)
    if wrong := [argument for argument in common if not argument.startswith("--config.")]:
        raise UserError(f"unknown argument {wrong[0]!r}; expected --config.KEY=VALUE, --runs, --out or --table")
    todo = list(named(sweep(args.runs), pathlib.Path(__file__)))
    failed = [] if args.table else train(todo, folder, common)
    found = collect(todo, folder)
    if not found:
        raise UserError(f"{folder}: no run is finished")
    missing = [variant for variant in (*FRESH, *STARTED) if variant not in found]
    command = " ".join(["python experiments/where.py", *common])
    record = raw.write(args.out / "where.json", {"runs": found, "missing": missing}, command=command, begun=begun)
    print(PAGES[0].save(record, args.out))
    if failed:
        raise UserError(f"{len(failed)} of {len(todo)} runs failed: {', '.join(failed)}")


if __name__ == "__main__":
    with one_line("where.py"):
        main()
