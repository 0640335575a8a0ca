"""Other programs that are run beside this package, each in a process of its own with a log that is kept."""

import os
import pathlib
import subprocess
from collections.abc import Mapping, Sequence

from attn_jax.errors import UserError


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
