"""The functions that gpu_checks.py checks and gpu_attention.py times: attention, and memories that are written."""

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.attention import Attention, build_attention
from attn_jax.attention.recurrent import FEATURE_MAPS, Delta, Linear, chunked, make_writes, recurrent
from attn_jax.attention.scores.base import unit
from attn_jax.types import Array

RULES = ("linear attention", "delta rule", "gated delta rule")


def random_arrays(batch: int, heads: int, length: int, width: int) -> list[np.ndarray]:
    """Samples cotangent, query, keys, values [b, h, n, d], rates [b, h, n] in (0, 1), log decay [b, h, n, 1] < 0.

    All of them are numbers of bfloat16, so that rounding the input is no part of an error.
    """
    rng, lead = np.random.default_rng(0), (batch, heads, length)
    arrays = [rng.standard_normal((*lead, width)) for _ in range(4)]
    arrays += [rng.uniform(0.1, 0.9, lead), -rng.exponential(0.1, (*lead, 1))]
    return [np.asarray(x, jnp.bfloat16).astype(np.float32) for x in arrays]


def attend(block_size: int = 0, **masks: Any) -> Callable:
    """Returns (query, keys, values) -> context of our attention, by the fused kernel if block_size is 0."""
    attention = build_attention(score="scaled_dot", block_size=block_size)
    return lambda *arrays: attention.apply({}, *arrays, **masks).context


def as_written(function: Callable) -> Callable:
    """Returns a function in which attention is computed as the formula is written, without the fused kernel."""

    @functools.wraps(function)
    def written(*arguments: Any) -> Any:
        # No option turns the kernel off: `Attention` uses it wherever it computes the same. Only tracing is inside.
        with mock.patch.object(Attention, "fusible", False):
            return function(*arguments)

    return written


def recurrent_memory(rule: str, chunk_size: int = 0) -> Callable:
    """Returns (query, keys, values, rates, log decay) -> context of a memory that is written, as in RecurrentHeads.

    Chunk by chunk, or position by position if chunk_size is 0. Linear attention ignores the rates, and only the gated
    rule reads the log decay.
    """
    linear, gated = rule == "linear attention", rule == "gated delta rule"
    features = FEATURE_MAPS["elu_plus_one"].apply if linear else unit

    def context(query: Array, keys: Array, values: Array, rates: Array, log_decay: Array) -> Array:
        query, keys = (features(x.astype(jnp.promote_types(x.dtype, jnp.float32))) for x in (query, keys))
        given = {} if linear else {"rates": rates}
        given |= {"log_decay": log_decay} if gated else {}
        writes, kind = make_writes(keys, values, **given), Linear(normalized=True) if linear else Delta()
        found = chunked(kind, query, writes, chunk_size) if chunk_size else recurrent(kind, query, writes)
        return found[1].astype(values.dtype)

    return context


def with_gradients(function: Callable) -> Callable:
    """Returns (cotangent, arrays) -> (result, gradient with respect to each array)."""

    def both(cotangent: Array, *arrays: Array) -> tuple[Array, ...]:
        result, backward = jax.vjp(function, *arrays)
        return result, *backward(cotangent.astype(result.dtype))

    return both
