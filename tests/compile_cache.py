"""Where compiled programs of the tests are kept: outside the checkout, so that another clone finds them too."""

import os
import pathlib

FOLDER = pathlib.Path.home() / ".cache" / "attn_jax_tests"


def use() -> None:
    """Keeps every program that is compiled from now on, in this process and those that it starts."""
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(FOLDER))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
