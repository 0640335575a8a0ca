"""Windows of local attention: which keys they keep, and with what factor."""

import jax
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax.attention.local import LocalM, LocalP

BATCH, QUERIES, KEYS, WIDTH, SIZE = 3, 4, 12, 5, 2
LENGTHS = np.array([12, 7, 0])
KEY_MASK = np.arange(KEYS) < LENGTHS[:, None]
QUERY = np.random.default_rng(0).normal(0, 2, (BATCH, QUERIES, WIDTH)).astype(np.float32)
POSITIONS = np.tile(np.array([0, 1, 6, 40], np.int32), (BATCH, 1))


@pytest.fixture(scope="module")
def predictive():
    """(parameters, compiled LocalP)."""
    window = LocalP(size=SIZE, features=3)
    params = params_of(window, QUERY, POSITIONS, KEY_MASK, scale=1.5)
    return params, compiled(lambda *args: window.apply({"params": params}, *args))


def test_local_m_keeps_the_keys_around_the_position_of_the_query():
    mask, factor = compiled(lambda *args: LocalM(size=SIZE).apply({}, *args))(QUERY, POSITIONS, KEY_MASK)
    for b, q, k in np.ndindex(BATCH, QUERIES, KEYS):
        assert mask[b, q, k] == (POSITIONS[b, q] - SIZE <= k <= POSITIONS[b, q] + SIZE)
    np.testing.assert_array_equal(factor, 1)


def test_local_p_is_its_formula(predictive):
    params, window = predictive
    mask, factor = window(QUERY, POSITIONS, KEY_MASK)
    inside = 0
    for b, q in np.ndindex(BATCH, QUERIES):
        hidden = np.tanh(QUERY[b, q] @ params["position"]["kernel"])
        centre = max(LENGTHS[b] - 1, 0) / (1 + np.exp(-hidden @ params["vector"]["kernel"][:, 0]))
        assert 0 <= centre <= max(LENGTHS[b] - 1, 0)
        for k in range(KEYS):
            assert mask[b, q, k] == (abs(k - centre) <= SIZE)
            expected = np.exp(-((k - centre) ** 2) / (2 * (SIZE / 2) ** 2))
            np.testing.assert_allclose(factor[b, q, k], expected, atol=5e-6)  # a few roundings of a centre up to 11
        inside += np.sum(mask[b, q])
    assert inside < mask.size / 2, "the window is as wide as the memory: nothing is tested"


def test_local_p_needs_no_positions_and_padding_changes_nothing(predictive):
    _, window = predictive
    mask, factor = window(QUERY, POSITIONS, KEY_MASK)
    _, elsewhere = window(QUERY, POSITIONS + 5, KEY_MASK)
    np.testing.assert_array_equal(factor, elsewhere)
    short_mask, short_factor = window(QUERY, POSITIONS, KEY_MASK[:, :8])
    np.testing.assert_array_equal(mask[1, :, :8], short_mask[1])
    np.testing.assert_allclose(factor[1, :, :8], short_factor[1], rtol=1e-6)


def test_the_gradient_of_local_p_reaches_its_parameters_through_the_factor(predictive):
    params, _ = predictive
    window = LocalP(size=SIZE, features=3)

    def total(params):
        mask, factor = window.apply({"params": params}, *map(jax.numpy.asarray, (QUERY, POSITIONS, KEY_MASK)))
        return (mask * factor * np.arange(KEYS)).sum()

    gradient = compiled(jax.grad(total))(params)
    assert all(np.all(np.isfinite(leaf)) and np.any(leaf != 0) for leaf in jax.tree.leaves(gradient))
