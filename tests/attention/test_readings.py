"""Readings against sums written out."""

import numpy as np
from arrays import compiled

from attn_jax.attention.readings import expectation


def test_expectation_is_the_mean_value_and_leading_axes_broadcast():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(5), (3, 1, 2)).astype(np.float32)  # head, batch, query, key
    values = rng.normal(size=(4, 5, 6)).astype(np.float32)  # batch, key, width
    context = compiled(expectation)(weights, values)
    assert context.shape == (3, 4, 2, 6)
    for head, batch, query in np.ndindex(3, 4, 2):
        expected = sum(weights[head, 0, query, k] * values[batch, k] for k in range(5))
        np.testing.assert_allclose(context[head, batch, query], expected, rtol=1e-5, atol=1e-6)


def test_a_one_hot_weight_picks_its_value_and_no_weight_gives_zero():
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    weights = np.array([[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]], np.float32)
    np.testing.assert_array_equal(compiled(expectation)(weights, values), [values[2], [0, 0, 0], values[0]])
