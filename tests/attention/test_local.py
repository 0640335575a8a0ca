"""Windows of local attention: which keys they keep, and with what factor."""

import jax
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax.attention.build import build_attention
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
    params = params_of(window, QUERY, POSITIONS, key_mask=jax.numpy.asarray(KEY_MASK), scale=1.5)
    return params, compiled(lambda *args: window.apply({"params": params}, *args[:2], key_mask=args[2]))


def test_local_m_keeps_the_keys_around_the_position_of_the_query():
    mask, factor = compiled(lambda *args: LocalM(size=SIZE).apply({}, *args[:2], key_mask=args[2]))(
        QUERY, POSITIONS, KEY_MASK
    )
    for b, q, k in np.ndindex(BATCH, QUERIES, KEYS):
        assert not KEY_MASK[b, k] or mask[b, q, k] == (POSITIONS[b, q] - SIZE <= k <= POSITIONS[b, q] + SIZE)
    np.testing.assert_array_equal(factor, 1)


def test_local_p_is_its_formula(predictive):
    params, window = predictive
    mask, factor = window(QUERY, POSITIONS, KEY_MASK)
    inside = 0
    for b, q in np.ndindex(BATCH, QUERIES):
        hidden = np.tanh(QUERY[b, q] @ params["position"]["kernel"])
        centre = max(LENGTHS[b] - 1, 0) / (1 + np.exp(-hidden @ params["vector"]["kernel"][:, 0]))
        assert 0 <= centre <= max(LENGTHS[b] - 1, 0)
        for k in range(LENGTHS[b]):
            assert mask[b, q, k] == (abs(k - centre) <= SIZE)
            expected = np.exp(-((k - centre) ** 2) / (2 * (SIZE / 2) ** 2))
            np.testing.assert_allclose(factor[b, q, k], expected, atol=5e-6)  # a few roundings of a centre up to 11
        inside += np.sum(mask[b, q, : LENGTHS[b]])
    assert inside < KEY_MASK.sum() * QUERIES / 2, "the window is as wide as the memory: nothing is tested"


def test_local_p_needs_no_positions_and_padding_changes_nothing(predictive):
    _, window = predictive
    mask, factor = window(QUERY, POSITIONS, KEY_MASK)
    _, elsewhere = window(QUERY, POSITIONS + 5, KEY_MASK)
    np.testing.assert_array_equal(factor, elsewhere)
    short_mask, short_factor = window(QUERY, POSITIONS, KEY_MASK[:, :8])
    np.testing.assert_array_equal(mask[1, :, :8], short_mask[1])
    np.testing.assert_allclose(factor[1, :, :8], short_factor[1], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("window", [LocalM(size=SIZE), LocalP(size=SIZE, features=3)], ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("masked", [[0, 1, 2], [3, 5, 6], [0, 4, 10, 11]], ids=["left padding", "holes", "all"])
def test_masking_a_key_is_deleting_it(window, masked):
    """Positions are those among the keys that are not masked."""
    rng = np.random.default_rng(1)
    keys = jax.numpy.asarray(rng.normal(size=(KEYS, WIDTH)), jax.numpy.float32)
    query, positions = jax.numpy.asarray(QUERY[0]), jax.numpy.asarray([0, 1, 4, 6])
    attention = build_attention(score="dot", window=window)
    params = {"params": params_of(attention, query, keys, positions=positions, scale=1.5)}
    real = ~np.isin(np.arange(KEYS), masked)

    @compiled
    def both(keys):
        memories = attention.prepare(keys, key_mask=jax.numpy.asarray(real)), attention.prepare(keys[real])
        found = [attention.apply(params, query, memory, positions=positions) for memory in memories]
        return [(attended.context, attended.weights) for attended in found]

    (context, weights), (expected, expected_weights) = both(keys)
    assert np.any(expected_weights == 0) and np.any(expected_weights > 0)
    np.testing.assert_allclose(weights[:, real], expected_weights, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(context, expected, rtol=1e-5, atol=1e-6)


def test_a_window_without_neighbours_is_refused():
    """Of local-p the factor would be 0 / 0 at the centre, and 0 elsewhere."""
    for make in (lambda: LocalM(size=0), lambda: LocalP(size=0, features=3)):
        with pytest.raises(ValueError, match="size of the window is 0; expected at least 1"):
            make()


def test_the_gradient_of_local_p_reaches_its_parameters_through_the_factor(predictive):
    params, _ = predictive
    window = LocalP(size=SIZE, features=3)

    def total(params):
        query, positions, real = map(jax.numpy.asarray, (QUERY, POSITIONS, KEY_MASK))
        mask, factor = window.apply({"params": params}, query, positions, key_mask=real)
        return (mask * factor * np.arange(KEYS)).sum()

    gradient = compiled(jax.grad(total))(params)
    assert all(np.all(np.isfinite(leaf)) and np.any(leaf != 0) for leaf in jax.tree.leaves(gradient))
