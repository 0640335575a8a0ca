"""Permutations of many numbers, computed one number at a time, so that no order has to be stored.

A Feistel network (Luby and Rackoff 1988) with keyed rounds permutes the numbers below a power of four. A result outside
the wanted range is permuted again until it is inside ("cycle walking", Black and Rogaway 2002), which gives a
permutation of the range. It is for shuffling, not for cryptography.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

ROUNDS = 8
MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # of splitmix64 (Steele et al. 2014)


def permuted(indices: Int[np.ndarray, "..."], size: int, key: Sequence[int]) -> Int[np.ndarray, "..."]:
    """Returns the images of `indices` under a permutation of 0 to size - 1, which is determined by `key`."""
    half = max(1, (size - 1).bit_length() + 1 >> 1)
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    keys = np.random.default_rng(key).integers(2**63, size=ROUNDS, dtype=np.uint64)

    def once(x: np.ndarray) -> np.ndarray:
        left, right = x >> shift, x & mask
        for round_key in keys:
            left, right = right, left ^ (_mix(right ^ round_key) & mask)
        return left << shift | right

    found = once(np.asarray(indices).astype(np.uint64).reshape(-1))
    while (beyond := found >= size).any():
        found = np.where(beyond, once(found), found)
    return found.astype(np.int64).reshape(np.shape(indices))


def _mix(x: np.ndarray) -> np.ndarray:
    """Mixes the bits of each number; overflow is intended."""
    x = (x ^ (x >> np.uint64(30))) * MIX[0]
    x = (x ^ (x >> np.uint64(27))) * MIX[1]
    return x ^ (x >> np.uint64(31))
