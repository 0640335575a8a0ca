"""Circumstances of a measurement: date, versions, machine, memory allocator and load."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

# Variables that change a speed, shown where they are set.
SETTINGS = ("GLIBC_TUNABLES", "MALLOC_CONF", "OMP_WAIT_POLICY", "XLA_FLAGS")


def allocator() -> str:
    """Returns the name of the malloc of this process."""
    maps = pathlib.Path("/proc/self/maps")
    loaded = maps.read_text() if maps.exists() else ""
    return next((name for name in ("jemalloc", "tcmalloc", "mimalloc") if f"lib{name}" in loaded), "the C library's")


def processor() -> str:
    """Returns the number of cores and, on Linux, the model of the CPU."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} x {models[0] if models else platform.processor()}"


def allocator_settings() -> str:
    """Returns the name of the malloc of this process, with the variables that change a speed."""
    return allocator() + "".join(f", {name}={os.environ[name]}" for name in SETTINGS if name in os.environ)


def memory_gib() -> float:
    """Returns the memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def gflops(size: int = 2048, repeats: int = 7) -> float:
    """Measures the rate of a product of two square matrices in float32: the median of some, in GFLOP/s."""
    a = jnp.ones((size, size), jnp.float32)
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(a, a))
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(product(a, a))
        seconds.append(time.perf_counter() - begin)
    return 2 * size**3 / float(np.median(seconds)) / 1e9


def circumstances(packages: Sequence[str], load: tuple[float, ...] = ()) -> str:
    """Formats the circumstances as a list; `load` is os.getloadavg() before a measurement of time."""
    versions = " ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    lines = [
        f"{datetime.date.today()}, Python {platform.python_version()}, {versions}",
        f"{processor()}, {memory_gib():.0f} GiB memory",
        f"allocator: {allocator_settings()}",
    ]
    if load:
        lines.append(f"load average {load[0]:.1f} before, {os.getloadavg()[0]:.1f} after")
    return "\n".join(f"- {line}" for line in lines)
