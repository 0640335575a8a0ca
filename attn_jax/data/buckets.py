"""Buckets: the batch shapes (source length, target length) that sentence pairs are padded to."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from attn_jax.errors import UserError
from attn_jax.parts import Options, option

Buckets = tuple[tuple[int, int], ...]


def make_buckets(entries: Sequence) -> Buckets:
    """Sorts buckets, pairs of (source, target) lengths including eos, by area; an integer n stands for (n, n).

    Raises:
        UserError: there is no entry, or an entry is neither a positive integer nor a pair of positive integers.
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
    """Chooses buckets with little padding for pairs of these lengths. Every pair fits into a bucket.

    First, `num_target` target lengths are chosen with the least padding of targets, which cost most (the output layer).
    Then, for the pairs of each target length, `num_source` source lengths with the least padding of sources.
    """
    lengths = cut(target, num_target)
    buckets = []
    for shortest, longest in zip([0, *lengths], lengths, strict=False):
        members = (target > shortest) & (target <= longest)
        buckets += [(s, longest) for s in cut(source[members], num_source)]
    return make_buckets(buckets)


def cut(lengths: Int[np.ndarray, " n"], parts: int) -> list[int]:
    """Chooses at most `parts` lengths that minimize the padding when every length is rounded up to a chosen one.

    Dynamic programming over the distinct lengths: cost[j] is the sum of the padded lengths under the best choice for
    the j smallest lengths. Among choices of equal cost, the lexicographically first one is taken.
    """
    values, counts = np.unique(lengths, return_counts=True)
    total = np.concatenate([[0], np.cumsum(counts)])
    cost = np.full(len(total), np.inf)
    cost[0] = 0
    before = []  # for each number of parts and each j: the number of lengths below the last part
    for _ in range(min(parts, len(values))):
        added, below = np.zeros(len(total)), np.zeros(len(total), int)
        for j, longest in enumerate(values.tolist(), 1):
            costs = cost[:j] + (total[j] - total[:j]) * longest
            # The first minimum is also lexicographically first: the best parts of fewer lengths are no longer.
            below[j] = np.argmin(costs)
            added[j] = costs[below[j]]
        cost = added
        before.append(below)
    chosen, j = [], len(values)
    while j:
        chosen.append(int(values[j - 1]))
        j = before.pop()[j]
    return chosen[::-1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutomaticBuckets(Options):
    """Options of buckets that are chosen from the lengths of the training pairs, see `choose_buckets`."""

    shapes: ClassVar[tuple] = ()  # no given buckets

    num_source: int = option(2, "number of source lengths for each target length", at_least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedBuckets(Options):
    """Options of buckets that are given, see `make_buckets`.

    Raises:
        UserError: there is no bucket, or a bucket is neither a positive integer nor a pair of positive integers.
    """

    num_source: ClassVar[int] = 1  # not read

    shapes: tuple = option((), "such as (16, (20, 24)): source 16 and target 16, source 20 and target 24")

    def __post_init__(self):
        if not self.shapes:
            raise UserError(
                "task.buckets.shapes is (); expected lengths such as (16, (20, 24)), or task.buckets=automatic"
            )
        make_buckets(self.shapes)


BUCKETS = {"automatic": AutomaticBuckets, "fixed": FixedBuckets}
