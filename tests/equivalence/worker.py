"""What a process of the check does; by itself, since a process that is started imports this file."""

import os
import pathlib
import tempfile
from typing import Any


def prepare() -> None:
    """Sets up a process: the same compiler as in the tests, and their cache."""
    import compile_cache

    compile_cache.use()
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def recorded(name: str, old: dict | None, texts: pathlib.Path | None) -> tuple[str, dict[str, Any] | str]:
    """Records one config in a process of its own: (its name, the record or what went wrong)."""
    from record import record

    with tempfile.TemporaryDirectory() as folder:
        try:
            return name, record(name, pathlib.Path(folder), old, texts)
        except Exception as error:
            return name, f"{type(error).__name__}: {error}"
