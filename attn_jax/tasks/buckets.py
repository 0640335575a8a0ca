"""Buckets: the batch shapes (source length, target length) that sentence pairs are padded to."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from attn_jax.errors import UserError

Buckets = tuple[tuple[int, int], ...]


def make_buckets(entries: Sequence) -> Buckets:
    """Sorts buckets, pairs of (source, target) lengths including eos, by area; an integer n stands for (n, n).

    Raises:
        UserError: no entry, or one that is neither a positive integer nor a pair of them.
    """
    buckets = set()
    for entry in entries:
        sides = tuple(entry) if isinstance(entry, Sequence) and not isinstance(entry, str) else (entry, entry)
        if len(sides) != 2 or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in sides):
            raise UserError(
                f"bucket {entry!r}: expected a length such as 16, or a pair (source, target) such as (16, 24)"
            )
        buckets.add(sides)
    if not buckets:
        raise UserError("no buckets; expected lengths such as (8, 16, 24), or pairs (source, target)")
    return tuple(sorted(buckets, key=lambda sides: (sides[0] * sides[1], sides)))


def choose_buckets(
    source: Int[np.ndarray, " n"], target: Int[np.ndarray, " n"], num_target: int = 6, num_source: int = 2
) -> Buckets:
    """Chooses buckets with little padding for pairs of these lengths. Every pair fits into one.

    First come `num_target` target lengths with the least padding of targets, which cost most (the output layer); then,
    for the pairs of each target length, `num_source` source lengths with the least padding of sources.
    """
    lengths = cut(target, num_target)
    buckets = []
    for shortest, longest in zip([0, *lengths], lengths, strict=False):
        members = (target > shortest) & (target <= longest)
        buckets += [(s, longest) for s in cut(source[members], num_source)]
    return make_buckets(buckets)


def cut(lengths: Int[np.ndarray, " n"], parts: int) -> list[int]:
    """Chooses at most `parts` lengths that minimize the padding when every length is rounded up to the next of them.

    Dynamic programming over the distinct lengths: best[j] is the cheapest choice for the j smallest ones.
    """
    values, counts = np.unique(lengths, return_counts=True)
    total = np.concatenate([[0], np.cumsum(counts)])
    best: list[tuple[float, list[int]]] = [(0.0, [])] + [(np.inf, [])] * len(values)
    for _ in range(min(parts, len(values))):
        added = [best[0]]
        for j in range(1, len(values) + 1):
            longest = int(values[j - 1])
            added.append(min((best[i][0] + (total[j] - total[i]) * longest, [*best[i][1], longest]) for i in range(j)))
        best = added
    return best[-1][1]
