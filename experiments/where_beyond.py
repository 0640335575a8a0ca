"""Which reading degrades how, with more clutter or more objects than in training?

    python experiments/where.py              # the runs
    python experiments/where_beyond.py

The runs of experiments/where.py are measured, without further training, on test scenes with more clutter, and on scenes
with more objects than any that they were trained with. Writes experiments/results/where_beyond.json and .md.
"""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.evaluation.statistics import compare, t_interval  # noqa: E402
from attn_jax.paths import expanded, user_path  # noqa: E402
from attn_jax.runs.build import build_setup  # noqa: E402
from attn_jax.runs.options import resolve  # noqa: E402
from attn_jax.runs.snapshot import restore  # noqa: E402
from attn_jax.runs.workdir import load_config  # noqa: E402
from attn_jax.sweeps.jobs import named, placed  # noqa: E402
from attn_jax.tasks.images.scenes import ScenesOptions  # noqa: E402
from experiments import of_sweep, raw, where  # noqa: E402

NAME = "where_beyond"
BEYOND = {  # name -> changes to the scenes of training
    "as in training": {},
    "8 pieces of clutter": {"clutter": 8},
    "16 pieces of clutter": {"clutter": 16},
    "as many objects as most": {"num_objects": "most"},
    "one object more": {"num_objects": "more"},
}
METRICS = ("exact_match", "touch", "cells")


def changed(task: ScenesOptions, changes: dict[str, Any]) -> ScenesOptions:
    """Returns scenes with more clutter, or of exactly as many objects as the most, or one more."""
    count = {"most": task.num_objects[1], "more": task.num_objects[1] + 1}.get(changes.get("num_objects"))
    if count is not None:
        return dataclasses.replace(task, num_objects=(count, count))
    return dataclasses.replace(task, **changes)


def measure(workdir: pathlib.Path) -> dict[str, dict[str, list[float]]]:
    """Returns {name of BEYOND: {metric: value of each seed}} of a run."""
    options = resolve(load_config(workdir))
    snapshot, kept, found = restore(options, workdir), options.kind.load(workdir), {}
    for name, changes in BEYOND.items():
        other = dataclasses.replace(changed(options.task, changes), num_examples=1, valid_size=1)
        task = other.build(data_dir=options.data_dir, kept=kept, seeds=(0,))
        evaluator = build_setup(options, task.kept).evaluator
        values = evaluator.measure(snapshot.params, task.splits["test"], METRICS).values
        found[name] = {metric: [float(x) for x in values[metric]["seeds"]] for metric in METRICS}
    return found


def differences(runs: dict[str, Any], metric: str) -> str:
    """Formats the differences to soft attention of as many steps, paired by seed; "" with a single seed."""
    rows = []
    for variant, values in runs.items():
        baseline = where.STARTED_BASELINE if variant in where.STARTED else where.BASELINE
        if variant != baseline and baseline in runs and len(values[next(iter(BEYOND))][metric]) > 1:
            pairs = [(values[name][metric], runs[baseline][name][metric]) for name in BEYOND]
            digits = where.METRICS[metric][1]
            shown = [raw.interval(compare(own, other).difference, digits) for own, other in pairs]
            rows.append([f"{variant} − {baseline}", *shown])
    return f"Differences, paired by seed:\n\n{raw.table(['', *BEYOND], rows)}\n" if rows else ""


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    runs = record["results"]["runs"]
    parts = []
    for metric in METRICS:
        heading, digits = where.METRICS[metric]
        rows = []
        for variant, values in runs.items():
            cells = [values[name][metric] for name in BEYOND]
            shown = [
                raw.interval(t_interval(each), digits) if len(each) > 1 else f"{each[0]:.{digits}f}" for each in cells
            ]
            rows.append([variant, *shown])
        parts.append(f"## {heading.capitalize()}\n\n{raw.table(['', *BEYOND], rows)}\n")
        if apart := differences(runs, metric):
            parts.append(apart)
    tables = "\n".join(parts)
    return f"""# More clutter and more objects than in training

{raw.circumstances(record)}
- the runs of experiments/where.py, on 500 test scenes each; means of the seeds with 95 % intervals
- a scene has a random number of pieces of clutter, at most as many as the head of a column says

{tables}"""


PAGES = (raw.Page(NAME, page),)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=expanded, default=where.RUNS, help="the runs of experiments/where.py")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory of the results")
    args = parser.parse_args(argv)
    folder, names, path = pathlib.Path(args.runs), (*where.FRESH, *where.STARTED), args.out / f"{NAME}.json"
    begun = raw.begin(path)
    jobs = placed(named(where.sweep(args.runs), pathlib.Path(where.__file__)), folder)
    of_sweep.check(jobs, folder)
    found = {
        variant: measure(folder / job.name)
        for variant, job in zip(names, jobs, strict=True)
        if (folder / job.name / "result.json").exists()
    }
    if not found:
        raise UserError(f"{folder}: no run is finished; train them with python experiments/where.py")
    command = f"python experiments/{NAME}.py"
    print(PAGES[0].save(raw.write(path, {"runs": found}, command=command, begun=begun), args.out))


if __name__ == "__main__":
    with one_line("where_beyond.py"):
        main()
