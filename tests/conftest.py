"""Shape checks on every annotated function, and a compilation cache, before jax is imported anywhere."""

import importlib.metadata
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Numbers are those of a CPU; JAX_PLATFORMS=cuda asks for the same tests elsewhere.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Eight devices on one CPU, so that pmap and meshes are tested everywhere.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
# XLA's older emitters compile three times as fast, and the tests spend most of their time compiling. 0.11 has no such
# flag and ends the process at an unknown one.
if importlib.metadata.version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"

from jaxtyping import install_import_hook  # noqa: E402

install_import_hook("attn_jax", "beartype.beartype")
