"""Shape checks on every annotated function, and a compilation cache, before jax is imported anywhere."""

import ctypes
import gc
import importlib.metadata
import os
import pathlib
import signal
import sys

import compile_cache

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

compile_cache.use()
# Numbers are those of a CPU; JAX_PLATFORMS=cuda asks for the same tests elsewhere.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Eight devices on one CPU, so that pmap and meshes are tested everywhere.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
# The tests spend most of their time compiling programs that run once: without optimization, and with XLA's older
# emitters, that takes a third of the time. 0.11 has no such emitters and ends the process at an unknown flag.
if os.environ["JAX_PLATFORMS"] == "cpu":
    os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if importlib.metadata.version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from beartype import BeartypeConf  # noqa: E402
from beartype.claw import beartype_package  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

PLAIN = ("data", "tasks", "runs", "sweeps", "cli", "errors")  # texts and files, for the most part


def check_annotations():
    """Checks what annotated functions of attn_jax get and return.

    Shapes are checked where there are arrays. Elsewhere, as where texts are made and read, types alone are checked,
    which takes less than a tenth of the time of a small function.
    """
    with_arrays = ["attn_jax.types"]
    for path in sorted((ROOT / "attn_jax").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        text = path.read_text("utf-8")
        if parts[1] not in PLAIN or "jaxtyping" in text or "attn_jax.types" in text:
            with_arrays.append(".".join(parts).removesuffix(".__init__"))
    with_arrays.remove("attn_jax")
    beartype_package("attn_jax", conf=BeartypeConf(claw_is_pep526=False))
    install_import_hook(with_arrays, "beartype.beartype")


check_annotations()


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
    """Frees the compiled programs of a module after it, and gives their memory back: a worker held five gigabytes."""
    yield
    jax.clear_caches()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="module", autouse=True)
def generators(request):
    """Finds the random generators of a module as they are before its tests."""
    found = [value for value in vars(request.module).values() if isinstance(value, np.random.Generator)]
    return [(each, each.bit_generator.state) for each in found]


@pytest.fixture(autouse=True)
def own_numbers(generators):
    """Gives a test the same random numbers whichever tests of its module ran before it."""
    for generator, state in generators:
        generator.bit_generator.state = state


SLOWEST = ("tests/test_configs.py", "tests/attention/hard/test_estimators.py", "tests/cli/")


def pytest_configure(config):
    """Hands the files to the workers in the order below, not by their number of tests; lets Ctrl-C end processes."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    # A shell starts a job in the background with SIGINT ignored, which the processes of the tests would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Puts the slowest files first, so that no worker is left alone with one of them at the end."""
    items.sort(key=lambda item: next((i for i, path in enumerate(SLOWEST) if path in item.nodeid), len(SLOWEST)))
