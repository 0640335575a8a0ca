"""Circumstances of a result: versions, the commit of the source, the device, the machine and the date."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import subprocess
from typing import Any

import jax

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMIT = "ATTN_JAX_COMMIT"
NOT_RESULTS = ":(exclude)experiments/results"
PACKAGES = {"jax": "jax", "jaxlib": "jaxlib", "flax": "flax", "optax": "optax", "orbax": "orbax-checkpoint"}
PACKAGES |= {"numpy": "numpy", "attn_jax": "attn_jax"}


def provenance() -> dict[str, Any]:
    """Collects {"versions", "commit", "device", "machine", "date"} as JSON values; None for unknown values."""
    devices = jax.devices()
    return {
        "versions": versions(),
        "commit": commit(ROOT),
        "device": {"platform": devices[0].platform, "kind": devices[0].device_kind, "count": len(devices)},
        "machine": machine(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def versions() -> dict[str, str | None]:
    """Collects {name: version} of Python and of the packages that results depend on; None if not installed."""
    return {"python": platform.python_version()} | {name: version(package) for name, package in PACKAGES.items()}


def version(package: str) -> str | None:
    """Returns the version of an installed package, None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit(root: pathlib.Path) -> str | None:
    """Returns the commit of the git checkout at `root`, with "+changes" if tracked files were changed.

    Result files of experiments do not count as changes, so that one experiment can follow another. For a copy of a
    checkout, the environment variable COMMIT names the commit. None outside a checkout, or if git is missing or fails.
    """
    if COMMIT in os.environ:
        return os.environ[COMMIT]
    if not (root / ".git").exists():  # git would report the commit of an enclosing repository
        return None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        revision = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", NOT_RESULTS)
        return revision + ("+changes" if changed else "")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def machine() -> str:
    """Returns the CPU model if the system knows it, else the name of the platform."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.platform()
