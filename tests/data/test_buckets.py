"""Buckets that are chosen: all pairs fit, and no other choice of as many target lengths pads less."""

import itertools
import time

import numpy as np
import pytest

from attn_jax.data.buckets import choose_buckets, cut


@pytest.mark.parametrize("parts", [1, 2, 3, 9])
def test_cut_equals_an_exhaustive_search(parts):
    lengths = np.random.default_rng(0).integers(1, 9, 40)

    def padded(ends):
        return sum(min(end for end in ends if end >= length) for length in lengths)

    longest = int(lengths.max())
    others = [x for x in range(1, longest) if x in lengths]
    choices = [(*c, longest) for r in range(parts) for c in itertools.combinations(others, r)]
    chosen = cut(lengths, parts)
    assert len(chosen) <= parts and chosen == sorted(chosen)
    assert padded(chosen) == min(map(padded, choices))


def recursion(lengths, parts):
    """The same choice by lists alone: of equal padding, the first in the order of lists."""
    values, counts = np.unique(lengths, return_counts=True)
    total = np.concatenate([[0], np.cumsum(counts)]).tolist()
    best = [(0, [])] + [(np.inf, [])] * len(values)
    for _ in range(min(parts, len(values))):
        added = [best[0]]
        for j, longest in enumerate(values.tolist(), 1):
            added.append(min((best[i][0] + (total[j] - total[i]) * longest, [*best[i][1], longest]) for i in range(j)))
        best = added
    return best[-1][1]


@pytest.mark.parametrize("parts", [1, 2, 3, 6, 40])
def test_choices_of_equal_padding_are_made_in_the_order_of_lists(parts):
    """Work directories depend on it: a run goes on with the buckets that it began with."""
    rng = np.random.default_rng(parts)
    for _ in range(60):
        lengths = rng.integers(1, rng.integers(2, 40), rng.integers(1, 60))
        assert cut(lengths, parts) == recursion(lengths, parts)
    assert cut(np.arange(1, 25), parts) == recursion(np.arange(1, 25), parts)  # many choices of equal padding
    assert cut(np.array([], int), parts) == []


def test_thousands_of_lengths_are_no_matter_of_minutes():
    begin = time.monotonic()
    assert len(cut(np.arange(1, 3001), 6)) == 6
    assert time.monotonic() - begin < 10  # it took 40 s when each choice was a list


def test_every_pair_fits_a_chosen_bucket():
    rng = np.random.default_rng(1)
    source, target = rng.integers(2, 40, 200), rng.integers(2, 30, 200)
    buckets = choose_buckets(source, target, num_target=4, num_source=2)
    assert len(buckets) <= 8
    assert all(any(s <= a and t <= b for a, b in buckets) for s, t in zip(source, target, strict=True))
    assert choose_buckets(np.full(5, 7), np.full(5, 3)) == ((7, 3),)
