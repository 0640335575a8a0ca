"""Checks in gpu_speed.py: attention and recurrent memories on the device, beside the formula in float64 on the CPU."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.attention.entmax_kernel import entmax15_attention
from attn_jax.attention.fused import implementation_of
from attn_jax.attention.masks import causal
from attn_jax.attention.normalizers import entmax15
from attn_jax.types import Array, Dtype
from experiments.benchmarks.gpu_functions import (
    RULES,
    as_written,
    attend,
    random_arrays,
    recurrent_memory,
    with_gradients,
)
from experiments.benchmarks.gpu_run import Run, Sizes

LIMITS = {"float32": 1e-5, "default": 2e-2, "bfloat16": 2e-2}  # of a relative error, by precision
TYPES = {"float32": np.float32, "default": np.float32, "bfloat16": jnp.bfloat16}  # of the arrays
FUSED = "fused attention"


class Check(NamedTuple):
    """A program on the device, and which function has the right values."""

    name: str
    precision: str  # a key of LIMITS: of the products in float32, or the type of the arrays
    reference: str  # a key of `references`
    function: Callable


def all_checks(sizes: Sizes) -> dict[str, Check]:
    """Returns all checks, each by its name among all programs."""
    by_blocks, written = attend(max(1, sizes.check[2] // 4), mask=causal), as_written(attend(mask=causal))
    found = [
        Check("attention as written, causal", "float32", "causal", written),
        Check("attention as written, causal", "bfloat16", "causal", written),
        Check(f"{FUSED}, causal", "bfloat16", "causal", attend(mask=causal)),
        Check(f"{FUSED}, padded keys", "bfloat16", "padded", attend(key_mask=jnp.asarray(padding_mask(sizes)))),
        Check("attention by blocks, causal", "float32", "causal", by_blocks),
        Check("attention by blocks, causal", "bfloat16", "causal", by_blocks),
    ]
    entmax = partial(entmax15_attention, scale=sizes.check[3] ** -0.5, causal=True)
    found += [
        Check("entmax-1.5 in one kernel, causal", precision, "entmax", entmax) for precision in ("default", "bfloat16")
    ]
    for precision in ("float32", "default"):
        found += [Check(f"{rule}, chunks", precision, rule, recurrent_memory(rule, sizes.chunk)) for rule in RULES]
    return {f"check of {check.name}, {check.precision}": check for check in found}


def references(sizes: Sizes) -> dict[str, Callable]:
    """Returns the functions whose values in float64 are right."""
    found = {rule: recurrent_memory(rule) for rule in RULES}
    order = np.tri(sizes.check[2], dtype=bool)[None, None]
    found["causal"] = softmax_attention(order)
    found["entmax"] = lambda query, keys, values: (
        entmax15(query @ keys.mT / query.shape[-1] ** 0.5, jnp.asarray(order)) @ values
    )
    return found | {"padded": softmax_attention(padding_mask(sizes)[..., None, :])}


def softmax_attention(mask: np.ndarray) -> Callable:
    """Returns (query, keys, values) -> softmax(query . key / sqrt(d)) values over the unmasked keys."""

    def context(query: Array, keys: Array, values: Array) -> Array:
        scores = jnp.where(mask, query @ keys.mT / query.shape[-1] ** 0.5, -jnp.inf)
        return jax.nn.softmax(scores, axis=-1) @ values

    return context


def padding_mask(sizes: Sizes) -> np.ndarray:
    """Returns a mask of keys [b, 1, k]: row i has i + 1 parts of b + 1 without keys at its end."""
    batch, _, length, _ = sizes.check
    real = length - length * (1 + np.arange(batch)) // (batch + 1)
    return (np.arange(length) < real[:, None])[:, None]


def arrays_of(reference: str, dtype: Dtype, sizes: Sizes) -> list[np.ndarray]:
    """Samples the cotangent, and the arrays that functions with this reference take."""
    arrays = [x.astype(dtype) for x in random_arrays(*sizes.check)]
    return arrays if reference in RULES else arrays[:4]


def start(sizes: Sizes, run: Run) -> None:
    """Begins to compile all programs that are checked."""
    for name, check in all_checks(sizes).items():
        arrays = arrays_of(check.reference, TYPES[check.precision], sizes)
        with jax.default_matmul_precision("float32" if check.precision == "float32" else None):
            run.compile(name, jax.jit(with_gradients(check.function)), *arrays)


def finish(sizes: Sizes, run: Run) -> list[dict[str, Any]]:
    """Returns a row for each program: its errors beside float64, and whether they are small."""
    right = {name: run.attempt(name, in_float64, name, f, sizes) for name, f in references(sizes).items()}
    run.say("computed the references in float64")
    checks, rows = all_checks(sizes), []
    for name, program in run.compiled(checks).items():
        expected = right[checks[name].reference]
        row = None if expected is None else run.attempt(name, row_of, checks[name], program, expected, sizes)
        if row is not None:
            rows.append(row)
            run.say(f"{name}: {row['error']}, gradients {row['gradient_error']}")
    return rows


def in_float64(reference: str, function: Callable, sizes: Sizes) -> tuple[np.ndarray, ...]:
    """Computes (result, gradients) of a reference in float64 on the CPU."""
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        return jax.device_get(jax.jit(with_gradients(function))(*arrays_of(reference, np.float64, sizes)))


def row_of(check: Check, program: Callable, right: tuple[np.ndarray, ...], sizes: Sizes) -> dict[str, Any]:
    """Runs a program, and returns its row."""
    row = {"name": check.name, "precision": check.precision}
    row |= compare(program(*arrays_of(check.reference, TYPES[check.precision], sizes)), right, LIMITS[check.precision])
    kernel = implementation_of(jnp.bfloat16, sizes.check[3], sizes.check[2])
    return row | ({"kernel": kernel} if FUSED in check.name else {})


def compare(found: tuple[Array, ...], right: tuple[np.ndarray, ...], limit: float) -> dict[str, Any]:
    """Computes |found - right| / |right| of a result and the largest of its gradients, and whether both are within the
    limit; what is not finite is not, and is None.

    A gradient that is zero everywhere, of an array that a rule ignores, is not counted.
    """
    counted = [(np.asarray(x, np.float64), y) for x, y in zip(found, right, strict=True) if np.any(y)]
    error, *others = (float(np.linalg.norm(x - y) / np.linalg.norm(y)) for x, y in counted)
    worst = float(np.max(others))  # NaN if one of them is
    return {
        "error": error if np.isfinite(error) else None,
        "gradient_error": worst if np.isfinite(worst) else None,
        "limit": limit,
        "passed": bool(error <= limit and worst <= limit),
    }
