"""Sweeps: runs for all sets of overrides that sweep() of a file yields, each in its own process and work directory.

    def sweep():                                     # experiments/X.py
        for score in ("dot", "general", "additive"):
            yield {"config": "configs/enja_soft.py", "model.attention.score": score}

Each dict names its config file under "config"; the other keys are overrides of that config. A finished run is skipped,
an interrupted run is resumed, and a failed run is reported while the others go on. SIGTERM and Ctrl-C, sent to the
sweep or to the current run, end the sweep.
"""

import hashlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from attn_jax.cli.overrides import load_config_file, load_file, overridden_keys, override
from attn_jax.cli.unread import check_read
from attn_jax.errors import Interrupted, UserError, printable
from attn_jax.evaluation.tables import differences_table, results_table
from attn_jax.tasks.files import append, check_links, is_link, load_json, reason, save_json
from attn_jax.training.progress import notice

LONGEST_NAME = 240
# Overrides that change no number of a result. Options of decoding and metrics are not among them.
UNSEEN = ("data_dir", "description", "parallel", "train.log_every", "train.keep", "eval.num_pictures")
PROGRAM = (sys.executable, "-m", "attn_jax.cli")
ROOT = str(pathlib.Path(__file__).resolve().parents[2])  # folder that the package is imported from


class Job(NamedTuple):
    """One run of a sweep."""

    name: str  # name of its work directory: the config and the overrides
    config: str
    overrides: dict[str, Any]


def jobs(path: pathlib.Path) -> Iterator[Job]:
    """Yields the runs of sweep() in a file."""
    runs = load_file(path, "sweep")
    if not isinstance(runs, Iterable):
        raise UserError(f"{path}: sweep() gave {runs!r}; expected dicts of overrides")
    return named(runs, path)


def named(runs: Iterable[Any], path: pathlib.Path) -> Iterator[Job]:
    """Yields the runs for the overrides that sweep() of a file yielded.

    Raises:
        UserError: a set of overrides has no config, or occurs twice.
    """
    seen = set()
    for overrides in runs:
        if not isinstance(overrides, dict):
            raise UserError(f"{path}: sweep() yielded {overrides!r}; expected a dict of overrides")
        overrides = dict(overrides)
        if not isinstance(overrides.get("config"), str):
            raise UserError(f'{path}: sweep() yielded {overrides} without a "config", the file of the run\'s config')
        config = overrides.pop("config")
        parts = [pathlib.Path(config).stem, *(f"{key.split('.')[-1]}={value}" for key, value in overrides.items())]
        name = ",".join(parts).replace("/", "_").replace(" ", "")
        if len(name.encode()) > LONGEST_NAME:  # file systems allow 255 bytes
            name = f"{name[: LONGEST_NAME // 2]},{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}"
        if name in seen:
            raise UserError(f"{path}: sweep() yielded {name} twice")
        seen.add(name)
        yield Job(name, config, overrides)


def run_sweep(path: pathlib.Path, workdir: str, common: list[str]) -> None:
    """Runs all jobs one after another, then prints a table of results.

    Args:
        path: file with the function sweep().
        workdir: folder of the work directories; "": runs/<name of the file>.
        common: overrides for every job, as written on the command line.

    Raises:
        UserError: an override of a run is wrong, and nothing has been run; or runs have failed.
    """
    folder, todo = pathlib.Path(workdir or pathlib.Path("runs") / path.stem), list(jobs(path))
    check_jobs(todo, common)
    failed = run_jobs(todo, folder, common)
    print("\n".join(map(printable, table(folder, todo).splitlines())))
    if failed:
        raise UserError(f"{len(failed)} of {len(todo)} runs failed: {', '.join(failed)}")


def check_jobs(todo: list[Job], common: list[str]) -> None:
    """Checks the configs and overrides of all jobs.

    Raises:
        UserError: an unknown key, a value of the wrong type, or an option that nothing reads; with the name of the job.
    """
    for job in todo:
        own = overrides_of(job)
        try:
            config = override(load_config_file(job.config), [*common, *own])
            check_read(config, overridden_keys([*common, *own]))
        except UserError as error:
            raise UserError(f"{job.name}: {error}; nothing was run") from error


def overrides_of(job: Job) -> list[str]:
    """Returns the overrides of a job as written on a command line."""
    return [f"--config.{key}={value}" for key, value in job.overrides.items()]


def run_jobs(todo: list[Job], folder: pathlib.Path, common: list[str]) -> list[str]:
    """Runs the jobs without a result, each in folder/name; returns the names of failed jobs.

    Raises:
        Interrupted: a signal reached this process or a run; this does not count as a failure.
    """
    failed = []
    for number, job in enumerate(todo, 1):
        where = folder / job.name
        notice(f"{'sweep':<14}{number}/{len(todo)}  {job.name}")
        if where.is_symlink():
            raise is_link(where)
        check_links(where)
        asked = {"overrides": [text for text in common if not text.startswith(UNSEEN, len("--config."))]}
        if (where / "result.json").exists():
            check_same(where, asked)
            notice(f"{'':<14}finished before: {where / 'result.json'}")
            continue
        command = [*PROGRAM, f"--config={job.config}", f"--workdir={where}", *common, *overrides_of(job)]
        save_json(where / "sweep.json", asked)
        code, came = run(command, where / "log.txt")
        if came:
            notice(f"{'interrupted':<14}the same command goes on from there")
            raise Interrupted(came)
        if code or not (where / "result.json").exists():
            lines = (where / "log.txt").read_text(encoding="utf-8").strip().splitlines()
            notice(f"{'':<14}failed: {lines[-1] if lines else f'exit status {code}'} ({where / 'log.txt'})")
            failed.append(job.name)
    return failed


def check_same(where: pathlib.Path, asked: dict[str, list[str]]) -> None:
    """Raises a UserError if a finished run had other common overrides, which are not part of its name."""
    path = where / "sweep.json"
    before = load_json(path) if path.exists() else asked
    if before != asked:
        was, now = (" ".join(each["overrides"]) or "none" for each in (before, asked))
        raise UserError(f"{where} was finished with other overrides, {was}, not {now}; choose another --workdir")


def run(command: list[str], log: pathlib.Path) -> tuple[int, int]:
    """Runs a command; returns (exit status, signal).

    `signal` is SIGTERM or SIGINT if it reached this process or ended the command, else 0. A signal is passed on to the
    command, so that a training is saved.
    """
    came: list[int] = []
    try:
        file = append(log)
    except OSError as error:
        raise UserError(f"cannot write {log}: {reason(error)}") from error
    with file:
        paths = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), ROOT)))
        environment = os.environ | {"PYTHONPATH": paths}  # in case the package is not installed
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)

        def pass_on(number: int, frame: Any) -> None:
            came.append(number)
            process.terminate()

        before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            code = process.wait()
            # The status is 128 + number if the run was saved, -number if there was nothing to save.
            came += [number for number in before if code in (128 + number, -number)]
            return code, came[0] if came else 0
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def table(folder: pathlib.Path, todo: list[Job]) -> str:
    """Formats the results in Markdown: a row per run, and its paired differences to the first run."""
    results = {job.name: load_json(folder / job.name / "result.json") for job in todo if _done(folder, job)}
    return "\n\n".join(filter(None, (results_table(results), differences_table(results))))


def _done(folder: pathlib.Path, job: Job) -> bool:
    return (folder / job.name / "result.json").exists()
