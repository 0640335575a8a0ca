"""Buckets that are chosen: all pairs fit, and no other choice of as many target lengths pads less."""

import itertools

import numpy as np
import pytest

from attn_jax.tasks.buckets import choose_buckets, cut


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


def test_every_pair_fits_a_chosen_bucket():
    rng = np.random.default_rng(1)
    source, target = rng.integers(2, 40, 200), rng.integers(2, 30, 200)
    buckets = choose_buckets(source, target, num_target=4, num_source=2)
    assert len(buckets) <= 8
    assert all(any(s <= a and t <= b for a, b in buckets) for s, t in zip(source, target, strict=True))


def test_equal_lengths_need_one_bucket():
    assert choose_buckets(np.full(5, 7), np.full(5, 3)) == ((7, 3),)
