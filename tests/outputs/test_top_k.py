"""The k largest of many numbers in two stages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.outputs.top_k import GROUP, top_k


@pytest.mark.parametrize("size, k", [(5, 5), (GROUP, 1), (3 * GROUP, 1), (7 * GROUP + 5, 3), (1000, 7)])
def test_they_are_those_of_a_search_among_all(size, k):
    x = jnp.asarray(np.random.default_rng(size).normal(size=(2, 3, size)), jnp.float32)
    x = x.at[0].set(-jnp.inf).at[0, :, -1].set(0.0).at[1, 0].set(-(x[1, 0] ** 2))
    for got, expected in zip(top_k(x, k), jax.lax.top_k(x, k), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_of_equal_numbers_the_first_are_taken():
    values, places = top_k(jnp.ones((2, 1000)), 4)
    np.testing.assert_array_equal(values, 1.0)
    np.testing.assert_array_equal(places, [[0, 1, 2, 3]] * 2)
