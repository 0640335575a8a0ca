"""Processes on the machines of a Ray cluster.

A command is a Ray task that waits for a process of its own: so each run has its own memory and XLA flags, and a run is
killed with the machine it is on. Ray itself starts the command again on another machine when one is lost.
"""

import contextlib
import socket
from typing import Any

from attn_jax.errors import UserError
from attn_jax.sweeps.engines.base import KILLED, Process, python_path, wait

NUM_RETRIES = 3  # of a task whose machine was lost
CANCELLED = 128 + 15  # the exit status of a run that SIGTERM has ended
SECONDS = 5.0  # to wait for a cluster to answer
RESOURCES = ("num_cpus", "num_gpus", "memory")
UNREACHABLE = "--address={}: no Ray cluster answers there; start one with `ray start --head`, or leave --address out"
NEEDS_TOKEN = (
    "--address={}: the Ray cluster asks for a token; set RAY_AUTH_MODE=token here and on all its machines, each with "
    "a copy of ~/.ray/auth_token of the first one"
)


class Ray:
    """Runs commands as tasks of Ray.

    Args:
        address: "host:port" of a cluster; "": a new one on this machine, which ends with the sweep.
        options: resources of each run, num_cpus (1 by default), num_gpus, memory (bytes).

    Raises:
        UserError: Ray is not installed, the cluster does not answer, or an option is unknown.
    """

    pause = 0.2

    def __init__(self, address: str, options: dict[str, str]):
        try:
            import ray
        except ImportError:
            raise UserError('--engine=ray needs Ray: pip install "attn_jax[ray]"') from None
        self._ray, resources = ray, resources_of(options)
        more: dict[str, Any] = {"runtime_env": {"env_vars": {"PYTHONPATH": python_path()}}}
        if not address:
            more["include_dashboard"] = False
        if address:
            check_reachable(address)
        try:
            ray.init(address=address or "local", log_to_driver=False, logging_level="error", **more)
        except Exception as error:  # of many kinds, for what cannot be reached or is no address
            if isinstance(error, getattr(ray.exceptions, "AuthenticationError", ())):  # not in every version
                raise UserError(NEEDS_TOKEN.format(address)) from error
            raise UserError(UNREACHABLE.format(address or "this machine")) from error
        self.at_once = max(1, int(ray.cluster_resources().get("CPU", 1) / max(resources["num_cpus"], 1e-9)))
        self._run = ray.remote(max_retries=NUM_RETRIES, **resources)(wait)

    def start(self, task: Process) -> "RayProcess":
        """Starts a command on some machine of the cluster."""
        return RayProcess(self._ray, self._run.remote(task.command, str(task.log.absolute())))

    def close(self) -> None:
        """Leaves the cluster."""
        self._ray.shutdown()


def check_reachable(address: str) -> None:
    """Checks that something listens at "host:port"; Ray itself would try for minutes.

    Raises:
        UserError: it is no address, or nothing answers.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"--address={address}: expected host:port")
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(UNREACHABLE.format(address)) from error


class RayProcess:
    """A command that runs as a task of Ray."""

    def __init__(self, ray: Any, ref: Any):
        self._ray, self._ref = ray, ref

    def poll(self) -> int | None:
        """Returns the exit status; None while the task runs or waits for a machine."""
        ready, _ = self._ray.wait([self._ref], timeout=0)
        if not ready:
            return None
        try:
            return self._ray.get(self._ref)
        except self._ray.exceptions.TaskCancelledError:
            return CANCELLED
        except self._ray.exceptions.RayTaskError:  # the worker was interrupted
            return CANCELLED
        except self._ray.exceptions.RayError:  # lost more often than Ray tries again
            return KILLED

    def terminate(self) -> None:
        """Interrupts the task, which passes it on to the command."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.cancel(self._ref)


def resources_of(options: dict[str, str]) -> dict[str, float]:
    """Returns the resources of each run as numbers.

    Raises:
        UserError: another key, or no number.
    """
    found = {"num_cpus": 1.0}
    for key, value in options.items():
        if key not in RESOURCES:
            raise UserError(f"--engine_options={key}={value}: the engine ray has {', '.join(RESOURCES)}")
        try:
            found[key] = float(value)
        except ValueError:
            raise UserError(f"--engine_options={key}={value}: expected a number") from None
    return found
