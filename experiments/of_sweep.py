"""The finished runs of a sweep, by the name of each variant, and pages of their results.

`main` is for experiments that collect a run for each variant, `finished` for all that collect runs.
"""

import argparse
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from attn_jax.data.files import load_json
from attn_jax.errors import UserError
from attn_jax.evaluation.tables import differences_table, results_table
from attn_jax.paths import user_path
from attn_jax.runs.workdir import check_result
from attn_jax.sweeps.jobs import Job, config_of, jobs, placed
from experiments import raw

KEPT = ("seeds", "steps", "metrics", "train_seconds", "commit")  # of result.json


def finished(script: pathlib.Path, variants: Iterable[Any], runs: pathlib.Path) -> dict[Any, pathlib.Path]:
    """Returns {variant: work directory} of the runs of the sweep of a script that have a result.

    Args:
        script: file of the experiment, with a function sweep().
        variants: names of its runs, in the order of sweep().
        runs: folder of the sweep.

    Raises:
        UserError: none has, or one is of another config.
    """
    todo = placed(jobs(script), runs)
    check(todo, runs)
    folders = {variant: runs / job.name for variant, job in zip(variants, todo, strict=True)}
    found = {variant: folder for variant, folder in folders.items() if (folder / "result.json").exists()}
    if not found:
        raise UserError(f"no finished run in {runs}; train with launch.py --sweep=experiments/{script.name}")
    return found


def check(todo: Iterable[Job], runs: pathlib.Path, common: Sequence[str] = ()) -> None:
    """Checks that finished runs are of the configs of their jobs, of which their names are a part.

    `common` are the overrides of all jobs.

    Raises:
        UserError: one is of another config, whose file was changed since.
    """
    for job in todo:
        where = runs / job.name
        if (where / "result.json").exists() and (where / "config.json").exists():
            check_result(where, config_of(job, common))


def tables(runs: dict[str, dict[str, Any]]) -> str:
    """Formats how long the runs took, their metrics, and the paired differences to the first."""
    return f"{described(runs)}\n\n{differences_table(runs)}"


def described(runs: dict[str, dict[str, Any]]) -> str:
    """Formats how long the runs took, and their metrics."""
    minutes = sum(run["train_seconds"] for run in runs.values()) / 60
    commits = ", ".join(sorted({run["commit"][:7] for run in runs.values()}))
    steps = ", ".join(f"{n:,}" for n in sorted({run["steps"] for run in runs.values()}))
    return f"""{steps} steps; mean and standard deviation (SD) over the seeds. Trained at commit
{commits}, {minutes:.1f} minutes in all.

{results_table(runs)}"""


def main(page: raw.Page, variants: Sequence[str], usage: str, argv: Sequence[str] | None = None) -> None:
    """Collects the runs of the sweep experiments/NAME.py, one for each variant, and writes NAME.json and its page."""
    script = pathlib.Path(__file__).parent / f"{page.name}.py"
    parser = argparse.ArgumentParser(
        prog=script.name, description=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=user_path, default=raw.ROOT / "runs" / page.name, help="of the sweep")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    args = parser.parse_args(argv)
    path = args.out / f"{page.name}.json"
    begun = raw.begin(path)
    runs = {}
    for name, folder in finished(script, variants, args.runs).items():
        result = load_json(folder / "result.json")
        runs[name] = {key: result[key] for key in KEPT}
    if lost := [name for name in variants if name not in runs]:
        message = f"{args.runs} has no finished run of {', '.join(lost)}; train with launch.py --sweep=experiments/"
        parser.exit(1, f"{script.name}: {message}{script.name}\n")
    record = raw.write(path, runs, command=f"python experiments/{script.name}", begun=begun)
    print(page.save(record, args.out))
