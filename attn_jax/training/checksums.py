"""Checksums of arrays: the crc32; for an array divided among devices a sum, to which each device adds its part."""

import math
from collections.abc import Hashable, Set
from typing import Any

import jax
import numpy as np

from attn_jax.data.files import checksum, header_checksum

PIECE = 1 << 18  # elements at a time, so that indices and products stay in the cache
MULTIPLIERS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # odd, with irregular bits


def is_divided(x: Any) -> bool:
    """Tells whether x is an array that no device holds as a whole."""
    return isinstance(x, jax.Array) and not x.is_fully_replicated


def checksums(arrays: dict[Hashable, Any], in_parts: Set[Hashable]) -> dict[Hashable, int]:
    """Computes a checksum of each array: the crc32, or a sum for the names `in_parts`.

    The sum is independent of how an array is divided, and equal for a numpy array: sum_i w_i b_i mod 2^64 with the bits
    b_i of element i as an integer and odd weights w_i, so that a change of one element always changes it; the crc32 of
    dtype and shape is added. If an array is divided among processes, all processes have to call this function, and get
    the same numbers.
    """
    sums = {name: _sum_here(arrays[name]) for name in sorted(in_parts & arrays.keys())}
    divided = [name for name in sums if is_divided(arrays[name])]
    if divided and jax.process_count() > 1:
        from jax.experimental import multihost_utils

        halves = np.array([sums[name] for name in divided], np.uint64).view(np.uint32)  # jax has no 64 bits by default
        every = np.ascontiguousarray(multihost_utils.process_allgather(halves)).view(np.uint64)
        sums |= dict(zip(divided, every.sum(0, dtype=np.uint64).tolist(), strict=True))
    for name in sums:
        sums[name] = (sums[name] + header_checksum(arrays[name].dtype, arrays[name].shape)) % 2**64
    return {name: checksum(x) for name, x in arrays.items() if name not in sums} | sums


def _sum_here(x: np.ndarray | jax.Array) -> int:
    """Computes the contribution of this process to a sum; a part that several devices hold counts once."""
    if not is_divided(x):
        x = np.asarray(x)
        return part_sum(x, (slice(None),) * x.ndim, x.shape)
    parts = [part for part in x.addressable_shards if part.replica_id == 0]
    return sum(part_sum(np.asarray(part.data), part.index, x.shape) for part in parts) % 2**64


def part_sum(data: np.ndarray, index: tuple[slice, ...], shape: tuple[int, ...]) -> int:
    """Computes the contribution of `data` = array[index] to the sum of an array of this shape (at least one axis)."""
    bits = np.ascontiguousarray(data).view(f"u{data.dtype.itemsize}")
    begins = [rows.indices(n)[0] for rows, n in zip(index, shape, strict=True)]
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]

    def places(axis: int, first: int, count: int) -> np.ndarray:
        begin = begins[axis] + first
        return np.arange(begin, begin + count, dtype=np.uint64) * np.uint64(strides[axis])

    columns = np.zeros((), np.uint64)
    for axis in range(1, data.ndim):
        columns = columns[..., None] + places(axis, 0, data.shape[axis])
    total, step = 0, max(1, PIECE // max(columns.size, 1))
    for row in range(0, len(bits), step):
        some = bits[row : row + step]
        weights = places(0, row, len(some)).reshape(-1, *[1] * columns.ndim) + columns
        for multiplier in MULTIPLIERS:  # mixing; without it, weights would be linear in the index
            weights *= multiplier
            weights ^= weights >> np.uint64(29)
        weights |= np.uint64(1)
        total += int((weights * some).sum(dtype=np.uint64))
    return total % 2**64
