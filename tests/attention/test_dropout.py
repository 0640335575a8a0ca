"""Dropout draws what it says: exact probabilities, independent entries, the same mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.attention.build import build_attention
from attn_jax.attention.dropout import LEVELS, Dropout, drop, keep_mask, keep_probability


def all_halves(monkeypatch):
    """Replaces the random words by all values of the low half, each beside the reversed value in the high half."""
    values = jnp.arange(LEVELS, dtype=jnp.uint32)
    monkeypatch.setattr(jax.random, "bits", lambda rng, shape, dtype: values | (values[::-1] << 16))


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.5, 0.999, 1.0])
def test_the_probability_is_exact(monkeypatch, rate):
    """Over all words, both halves are kept as often as keep_probability says, which is 1 - rate to 2^-17."""
    all_halves(monkeypatch)
    low, high = np.asarray(keep_mask(jax.random.key(0), rate, (2, LEVELS)))
    assert low.mean() == high.mean() == keep_probability(rate)
    np.testing.assert_array_equal(low, high[::-1])
    assert abs(keep_probability(rate) - (1 - rate)) <= 0.5 / LEVELS


def test_entries_are_independent():
    """Neighbours, entries of the same word and entries of different keys agree as often as independent ones do."""
    mask = np.asarray(keep_mask(jax.random.key(1), 0.3, (2, 40_000)))
    other = np.asarray(keep_mask(jax.random.key(2), 0.3, (2, 40_000)))
    expected, bound = 0.7**2 + 0.3**2, 5 * 0.5 / np.sqrt(40_000)
    for a, b in ((mask[0], mask[1]), (mask[0][1:], mask[0][:-1]), (mask[0], other[0])):
        assert abs(np.mean(a == b) - expected) < bound


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (2, 3, 1)])
def test_any_shape(shape):
    assert keep_mask(jax.random.key(0), 0.5, shape).shape == shape
    assert drop(jax.random.key(0), 0.5, jnp.ones(shape)).shape == shape


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_mean_is_the_input(monkeypatch, rate):
    all_halves(monkeypatch)
    dropped = np.asarray(drop(jax.random.key(0), rate, jnp.full(2 * LEVELS, 3.0)), np.float64)
    assert dropped.mean() == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("axes", [(-2,), (1,), (0, 2)])
def test_entries_along_broadcast_dims_share_a_decision(axes):
    dropped = np.asarray(drop(jax.random.key(3), 0.5, jnp.ones((4, 5, 6)), axes))
    first = np.take(dropped, [0], axes[0]) if len(axes) == 1 else dropped[:1, :, :1]
    np.testing.assert_array_equal(dropped, np.broadcast_to(first, dropped.shape))
    assert 0 < np.count_nonzero(first) < first.size


def test_at_evaluation_and_at_rate_zero_nothing_happens():
    x = jnp.arange(6.0)
    assert Dropout(rate=0.5).apply({}, x, deterministic=True) is x
    assert Dropout(rate=0.0).apply({}, x, deterministic=False) is x
    assert not Dropout(rate=1.0).apply({}, x, deterministic=False, rngs={"dropout": jax.random.key(0)}).any()


@pytest.mark.parametrize("rate", [-0.5, 1.5, float("nan")])
def test_a_rate_that_is_no_probability_is_refused(rate):
    calls = [lambda: drop(jax.random.key(0), rate, jnp.ones(3))]
    calls += [lambda: Dropout(rate=rate).apply({}, jnp.ones(3), deterministic=True)]
    for call in calls:
        with pytest.raises(ValueError, match=f"the rate of dropout is {rate}; expected 0 to 1"):
            call()


@pytest.mark.slow
def test_each_seed_under_vmap_has_its_own_mask():
    """And the same one as alone."""
    keys = jax.random.split(jax.random.key(0), 3)
    together = jax.vmap(lambda key: keep_mask(key, 0.5, (7, 9)))(keys)
    for key, mask in zip(keys, together, strict=True):
        np.testing.assert_array_equal(mask, keep_mask(key, 0.5, (7, 9)))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: Dropout(rate=0.5).apply({}, x, deterministic=False),
        lambda x: build_attention(score="dot", dropout=0.5).apply({}, x, x, train=True),
    ],
)
def test_training_without_a_key_says_which(call):
    with pytest.raises(ValueError, match=r'needs a key: apply\(\.\.\., rngs=\{"dropout": jax\.random\.key\(0\)\}\)'):
        call(jnp.ones((3, 4)))
