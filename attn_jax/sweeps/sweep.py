"""Sweeps: runs for all sets of overrides that sweep() of a file yields, each in its own process and work directory.

    def sweep():                                     # experiments/X.py
        for score in ("dot", "general", "additive"):
            yield {"config": "configs/enja_soft.py", "model.attention.score": score}

Each dict names its config file under "config"; the other keys are overrides of that config. A finished run is skipped,
an interrupted run is resumed, and a failed run is reported while the others go on. SIGTERM and Ctrl-C, sent to the
sweep or to the current run, end the sweep.
"""

import pathlib
import shlex
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from ml_collections import ConfigDict

from attn_jax.data.files import check_links, is_link, save_json
from attn_jax.errors import Interrupted, UserError, printable
from attn_jax.evaluation.paired import changed_data
from attn_jax.evaluation.provenance import provenance
from attn_jax.evaluation.tables import DEVIATION, answers, differences_table, results_table, sentence_differences_table
from attn_jax.notices import notice
from attn_jax.runs.locks import lock
from attn_jax.runs.results import read_finished, read_result
from attn_jax.runs.workdir import check_result, holds
from attn_jax.sweeps.jobs import Job, config_of, jobs, named, overrides_of, planned
from attn_jax.sweeps.live import Live
from attn_jax.sweeps.processes import Process, run_all
from attn_jax.sweeps.sweep_folder import rows_of, save_order

RESULTS = "results.json"  # of all runs of a sweep, in its folder
PROGRAM = (sys.executable, "-m", "attn_jax.cli")


def run_sweep(
    path: pathlib.Path,
    workdir: str,
    common: list[str],
    at_once: int = 1,
    commands: bool = False,
    rows: Iterable[dict[str, Any]] | None = None,
) -> None:
    """Runs all jobs, then writes their results to results.json of the folder and prints a table.

    Args:
        path: file with the function sweep().
        workdir: folder of the work directories; "": runs/<name of the file>.
        common: overrides for every job, as written on the command line.
        at_once: number of jobs that run at the same time.
        commands: print the command of each job without a result, for other machines, and run none.
        rows: overrides of each job, instead of those that sweep() yields.

    Raises:
        UserError: an override of a run is wrong, or another sweep is in the folder (before anything is run); or runs
            have failed.
    """
    folder = pathlib.Path(workdir or pathlib.Path("runs") / path.stem)
    todo = jobs(path, common) if rows is None else named(rows, path, common)
    if not todo:
        raise UserError(f"{path}: sweep() yielded no runs")
    if (folder / "config.json").exists():
        raise UserError(f"{folder} is the work directory of a run; expected a folder for the runs of a sweep")
    todo = planned(todo, folder)
    check_begun(todo, folder, common)  # before the order is written: a refused sweep must not replace it
    if commands:
        for job in todo:
            if not _done(folder, job):
                print(shlex.join(command_of(job, folder, common)))
        return
    with lock(folder):  # a second sweep would fail at the locked runs and overwrite the order
        save_order(folder, [job.name for job in todo])
        failed = run_jobs(todo, folder, common, at_once)
        save_json(folder / RESULTS, joined(folder, todo, common))
    if found := table(folder, todo):
        print("\n".join(map(printable, found.splitlines())))
    if failed:
        raise UserError(f"{len(failed)} of {len(todo)} runs failed: {', '.join(failed)}")


def check_begun(todo: list[Job], folder: pathlib.Path, common: list[str]) -> None:
    """Checks that each run in a folder has the config of the job with its name.

    Raises:
        UserError: a run has another config, or a damaged result.
    """
    for job in todo:
        where = folder / job.name
        if _done(folder, job):
            read_finished(where / "result.json")  # now, rather than after all runs
        if not (where / "config.json").exists():
            continue
        config = config_of(job, common)
        if _done(folder, job):
            check_result(where, config)
        else:
            holds(where, config)


def command_of(job: Job, folder: pathlib.Path, common: list[str]) -> list[str]:
    """Returns the command of a job."""
    return [*PROGRAM, f"--config={job.config}", f"--workdir={folder / job.name}", *common, *overrides_of(job)]


def run_jobs(todo: list[Job], folder: pathlib.Path, common: list[str], at_once: int = 1) -> list[str]:
    """Runs the jobs without a result, each in folder/name, `at_once` in parallel; returns the names of failed jobs.

    A job that was killed, for instance for lack of memory, is tried once more. On a terminal a table shows the
    progress.

    Raises:
        UserError: a run in the folder has another config, or its result is damaged; nothing has been run.
        Interrupted: a signal reached this process or a run; this does not count as a failure.
    """
    check_begun(todo, folder, common)
    configs = {job.name: config_of(job, common) for job in todo}
    failed: list[str] = []
    live = Live(folder, [job.name for job in todo]) if sys.stdout.isatty() else None

    def tell(line: str) -> None:
        if live:
            live.clear()
        notice(line)

    def tasks() -> Iterator[Process]:
        for number, job in enumerate(todo, 1):
            where = folder / job.name
            if not live:
                notice(f"{'sweep':<14}{number}/{len(todo)}  {job.name}")
            if where.is_symlink():
                raise is_link(where)
            check_links(where)
            if (where / "result.json").exists():
                if not live:
                    notice(f"{'':<14}finished before: {where / 'result.json'}")
                continue
            where.mkdir(parents=True, exist_ok=True)
            if not live:
                notice(f"{'':<14}log: {where / 'log.txt'}")
            yield Process(job.name, command_of(job, folder, common), where / "log.txt")

    def ended(task: Process, code: int) -> None:
        where = task.log.parent
        why = _why(task, code) if code or not (where / "result.json").exists() else _changed(where, configs[task.name])
        if why:
            tell(f"{'':<14}failed: {why} ({task.log})")
            failed.append(task.name)

    came = run_all(
        tasks(),
        at_once=at_once,
        ended=ended,
        again=lambda task, number: tell(f"{'':<14}killed by signal {number}, once more: {task.name}"),
        looked=lambda names: live.update(names, failed) if live else None,
    )
    if live:
        live.clear()
    if came:
        notice(f"{'interrupted':<14}the same command goes on from there")
        raise Interrupted(came)
    return failed


def _why(task: Process, code: int) -> str:
    """Returns the last line of output of a failed run; for a killed run that line only tells its progress."""
    if code < 0:
        return f"killed by signal {-code}"
    lines = _log_of(task).strip().splitlines()
    return lines[-1] if lines else f"exit status {code}"


def _changed(where: pathlib.Path, config: ConfigDict) -> str:
    """Describes how the config of an ended run differs from the requested one, if its file was edited meanwhile."""
    try:
        if (where / "config.json").exists():
            check_result(where, config)
    except UserError as error:
        return f"its file was changed while the sweep ran: {error}"
    return ""


def _log_of(task: Process) -> str:
    """Returns the output of a run, with undecodable bytes replaced; "" if it cannot be read."""
    try:
        return task.log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def joined(folder: pathlib.Path, todo: list[Job], common: list[str]) -> dict[str, Any]:
    """Returns the results of all runs, each with its config and overrides, and the names of those without a result.

    Commit, versions, machine and date of each run come from its result.json; those at the top are of the end of the
    sweep.
    """
    runs = {
        job.name: {
            "config": job.config,
            "overrides": [*common, *overrides_of(job)],
            "result": read_result(folder / job.name / "result.json"),
        }
        for job in todo
        if _done(folder, job)
    }
    missing = [job.name for job in todo if not _done(folder, job)]
    return {"runs": runs, "without_result": missing, **provenance()}


def table(folder: pathlib.Path, todo: list[Job]) -> str:
    """Formats the results in Markdown: a row per config, and its paired differences to the first; "" without any.

    Lines below the tables name runs whose data differs under the same name, and say the answer in words.
    """
    rows = rows_of([folder / job.name for job in todo])
    if not rows:
        return ""
    results = {name: row.result for name, row in rows.items()}
    sentences = {name: row.sentences for name, row in rows.items() if row.sentences}
    tables = differences_table(results), sentence_differences_table(results, sentences)
    lines = "\n".join(changed_data(results)), answers(results)
    return "\n\n".join(filter(None, (results_table(results), DEVIATION, *tables, *lines)))


def _done(folder: pathlib.Path, job: Job) -> bool:
    return (folder / job.name / "result.json").exists()
