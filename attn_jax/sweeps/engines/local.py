"""Processes on this machine."""

import subprocess

from attn_jax.data.files import append, reason
from attn_jax.errors import UserError
from attn_jax.sweeps.engines.base import Process, popen


class Local:
    """Runs commands here; a run uses all cores, so one at a time unless the user says otherwise."""

    at_once = 1
    pause = 0.02

    def start(self, task: Process) -> subprocess.Popen:
        """Starts a command.

        Raises:
            UserError: its log cannot be written.
        """
        try:
            file = append(task.log)
        except OSError as error:
            raise UserError(f"cannot write {task.log}: {reason(error)}") from error
        with file:
            return popen(task.command, file)

    def close(self) -> None:
        """Does nothing."""
