"""Buckets: the few batch shapes (source length, target length) that all sentence pairs are padded to."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from attn_jax.errors import UserError

Buckets = tuple[tuple[int, int], ...]


def make_buckets(entries: Sequence) -> Buckets:
    """(source, target) lengths in order of increasing area, eos included; an integer n is the square (n, n).

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
    """Buckets for pairs of these lengths that leave little padding: `num_target` target lengths, `num_source` each.

    The target lengths are those that waste the fewest target positions, which cost most (the output layer); then,
    among the pairs of each, the source lengths likewise. Every pair fits.
    """
    lengths = cut(target, num_target)
    buckets = []
    for shortest, longest in zip([0, *lengths], lengths, strict=False):
        members = (target > shortest) & (target <= longest)
        buckets += [(s, longest) for s in cut(source[members], num_source)]
    return make_buckets(buckets)


def cut(lengths: Int[np.ndarray, " n"], parts: int) -> list[int]:
    """At most `parts` lengths such that rounding every length up to the next of them adds as little as possible.

    Dynamic programming over the different lengths: best[j] is the cheapest way to round the j smallest of them.
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
