"""Permutations that are computed one number at a time."""

import numpy as np
import pytest

from attn_jax.data.shuffle import permuted


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 1000, 4097])
def test_every_number_comes_once(size):
    found = permuted(np.arange(size), size, (1, 2))
    np.testing.assert_array_equal(np.sort(found), np.arange(size))


def test_some_numbers_are_permuted_as_all_are():
    size = 10_000
    whole = permuted(np.arange(size), size, (7,))
    some = np.array([[0, 9_999], [17, 4_000]])
    np.testing.assert_array_equal(permuted(some, size, (7,)), whole[some])


def test_keys_give_unrelated_orders_that_look_random():
    size = 20_000
    a, b = (permuted(np.arange(size), size, key) for key in ((0, 1), (0, 2)))
    assert np.sum(a == b) < 20  # one is expected of two random permutations
    for order in (a, b, a[b]):
        assert abs(np.corrcoef(np.arange(size), order)[0, 1]) < 0.03
        assert abs(np.mean(np.abs(np.diff(order))) / (size / 3) - 1) < 0.03
        assert np.sum(np.diff(order) == 1) < 12  # neighbours that stay neighbours: one is expected


def test_numbers_beyond_four_bytes():
    size = 2**40 + 3
    some = np.arange(0, size, size // 999)
    found = permuted(some, size, (3,))
    assert len(np.unique(found)) == len(some) and found.min() >= 0 and found.max() < size
    assert abs(np.mean(found / size) - 0.5) < 0.05
