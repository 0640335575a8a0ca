"""Processes as jobs of SLURM, by submitit."""

import contextlib
import os
from typing import Any

from attn_jax.errors import UserError
from attn_jax.sweeps.engines.base import KILLED, Process, python_path, wait

ALL = 10_000  # SLURM has its own queue
LOST = ("NODE_FAIL", "PREEMPTED", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL")
DEFAULTS = {"timeout_min": 24 * 60, "cpus_per_task": 2}


class Slurm:
    """Runs commands as jobs of SLURM.

    Args:
        options: those of submitit, such as timeout_min, cpus_per_task, gpus_per_node, mem_gb, slurm_partition.
        cluster: "slurm"; submitit's "local" runs the jobs here.

    Raises:
        UserError: submitit or SLURM is not installed, or an option is unknown.
    """

    at_once = ALL
    pause = 5.0

    def __init__(self, options: dict[str, str], cluster: str = "slurm"):
        try:
            import submitit
        except ImportError:
            raise UserError('--engine=slurm needs submitit: pip install "attn_jax[slurm]"') from None
        self._submitit, self._cluster = submitit, cluster
        self._options = DEFAULTS | {key: int(value) if value.isdecimal() else value for key, value in options.items()}
        os.environ["PYTHONPATH"] = python_path()  # which the jobs inherit
        self._executor("submitit")  # raises where there is no SLURM

    def _executor(self, folder: str) -> Any:
        try:
            executor = self._submitit.AutoExecutor(folder=folder, cluster=self._cluster)
            executor.update_parameters(**self._options)
        except RuntimeError as error:
            raise UserError(f"--engine=slurm: {error}; expected the command sbatch on this machine") from None
        except NameError as error:  # submitit's for an unknown parameter
            raise UserError(f"--engine_options: {error}") from None
        return executor

    def start(self, task: Process) -> "SlurmProcess":
        """Submits a command; the files of submitit are in a folder beside its log."""
        executor = self._executor(str(task.log.parent / "submitit"))
        executor.update_parameters(name=task.name[:50])
        return SlurmProcess(executor.submit(wait, task.command, str(task.log.absolute())))

    def close(self) -> None:
        """Does nothing."""


class SlurmProcess:
    """A command that runs as a job of SLURM."""

    def __init__(self, job: Any):
        self._job, self._cancelled = job, False

    def poll(self) -> int | None:
        """Returns the exit status; None while the job runs or waits."""
        if not self._job.done():
            return None
        if self._cancelled:
            return 128 + 15
        if self._job.state.partition(" ")[0] in LOST:
            return KILLED
        try:
            return self._job.result()
        except Exception:  # what the job raised, or that it left no result
            return 1

    def terminate(self) -> None:
        """Cancels the job; SLURM sends SIGTERM first."""
        self._cancelled = True
        with contextlib.suppress(Exception):  # it may have ended
            self._job.cancel()
