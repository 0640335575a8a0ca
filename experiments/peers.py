"""Other programs that are run beside this package, each in a process of its own with a log that is kept.

Beside LOG.log, LOG.settings.json has the settings of the program, the checksum of its data, and the command, commit and
date of the experiment. A log is read again only where it is of the same settings and data.
"""

import os
import pathlib
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attn_jax.data.files import load_json, save_json
from attn_jax.errors import UserError
from attn_jax.evaluation.provenance import provenance
from attn_jax.notices import notice
from experiments import raw

ORIGIN = ("command", "commit", "date")


def keep(log: pathlib.Path, settings: Mapping[str, Any], command: str, data: int | None = None) -> None:
    """Writes the settings of a program that is about to run, and how, at which commit and when that was asked for.

    `data` is the checksum of what it reads.
    """
    found = provenance()
    origin = {"command": command, "commit": found["commit"], "date": found["date"]}
    save_json(_beside(log), {"settings": raw.plain(dict(settings)), "data": data, **origin})


def check(log: pathlib.Path, settings: Mapping[str, Any], data: Callable[[], int | None] = lambda: None) -> None:
    """Checks that a log that is kept is of these settings and data. Of one that is older than this check, it says so.

    `data` computes the checksum of the data that are there now, None if there are none.

    Raises:
        UserError: it is of others.
    """
    if not _beside(log).exists():
        notice(f"{log}: its settings were not kept; it is read as it is")
        return
    kept = load_json(_beside(log))
    if differs := raw.difference(kept["settings"], settings):
        raise UserError(f"{log} is of other settings ({differs}); remove it, or choose another --runs")
    if kept.get("data") is not None and data() not in (None, kept["data"]):
        raise UserError(f"{log} is of other data (wrong checksum); remove it, or choose another --runs")


def origin(log: pathlib.Path) -> dict[str, Any]:
    """Returns command, commit and date of the experiment that made a log; {} if they were not kept."""
    path = _beside(log)
    return {key: value for key, value in load_json(path).items() if key in ORIGIN} if path.exists() else {}


def _beside(log: pathlib.Path) -> pathlib.Path:
    return log.with_suffix(".settings.json")


def run(
    command: Sequence[str],
    log: pathlib.Path,
    *,
    folder: pathlib.Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs a program with one thread; returns what it wrote.

    Args:
        command: the program and its arguments.
        log: file of its output; its folder is made.
        folder: where it runs; None: here.
        environment: variables besides those of this process.

    Raises:
        UserError: the program is not there, or ended with an error.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    try:
        with log.open("wb") as file:
            code = subprocess.run(command, cwd=folder, env=variables, stdout=file, stderr=file).returncode
    except OSError as error:
        raise UserError(f"{command[0]}: {(error.strerror or str(error)).lower()}") from error
    if code:
        raise UserError(f"{' '.join(command[:4])} ended with {code}; see {log}")
    return log.read_text(encoding="utf-8")
