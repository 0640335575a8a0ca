"""Normalizers that leave part of a row unread: their formulas, what the rest is, and derivatives in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled

from attn_jax import attend
from attn_jax.attention.hard.monotonic import expected_weights
from attn_jax.attention.normalizers import NORMALIZERS
from attn_jax.attention.normalizers.sinks import LearnedSink, softpick, stick_breaking

RNG = np.random.default_rng(0)
SCORES = RNG.normal(0, 2, (5, 6))
MASK = RNG.random((5, 6)) < 0.7
MASK[4] = False
SINK = 0.7


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def broken(z):
    """A stick of length one, broken from its last key to the first."""
    weights, left = np.zeros_like(z), 1.0
    for i in reversed(range(len(z))):
        weights[i], left = left * sigmoid(z[i]), left * (1 - sigmoid(z[i]))
    return weights


# Of the scores of a row's unmasked keys.
FORMULAS = {
    "softmax_one": lambda z: np.exp(z) / (1 + np.exp(z).sum()),
    "learned_sink": lambda z: np.exp(z) / (np.exp(SINK) + np.exp(z).sum()),
    "unnormalized_sigmoid": lambda z: sigmoid(z - np.log(len(z))),
    "softpick": lambda z: np.maximum(np.exp(z) - 1, 0) / (np.abs(np.exp(z) - 1).sum() + 1e-6),
    "stick_breaking": broken,
}


def normalizer(name):
    entry = NORMALIZERS[name]
    if not isinstance(entry, type):
        return entry
    return lambda scores, mask: entry().apply({"params": {"sink": jnp.full((1, 1, 1), SINK)}}, scores, mask)


@pytest.mark.parametrize("name", FORMULAS)
def test_each_is_its_formula_in_float64(name):
    with jax.enable_x64(True):
        weights = compiled(normalizer(name))(SCORES, MASK)
        assert weights.dtype == np.float64
    for row, scores, keep in zip(weights, SCORES, MASK, strict=True):
        expected = FORMULAS[name](scores[keep]) if keep.any() else []
        np.testing.assert_allclose(row[keep], expected, rtol=1e-12)
        assert np.all(row[~keep] == 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMULAS)
def test_derivatives_of_two_orders_in_both_modes(name):
    check_derivatives(lambda scores: jnp.sum(jnp.sin(3 * normalizer(name)(scores, jnp.asarray(MASK)))), SCORES)


def test_softmax_with_a_sink_is_softmax_with_one_more_key():
    query, keys = RNG.normal(size=(3, 4)), RNG.normal(size=(6, 4))
    values = RNG.normal(size=(6, 2))
    query, keys, values = (jnp.asarray(x, jnp.float32) for x in (query, keys, values))
    longer = jnp.concatenate([keys, jnp.zeros((1, 4))]), jnp.concatenate([values, jnp.zeros((1, 2))])
    expected = attend(query, *longer).context  # the product with a key of zeros is 0
    np.testing.assert_allclose(attend(query, keys, values, normalize="softmax_one").context, expected, atol=1e-6)


def test_each_head_has_its_sink():
    scores = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    sinks = np.array([-1, 0, 4], np.float32)[:, None, None]
    module = LearnedSink(num_heads=3)
    weights = compiled(lambda scores: module.apply({"params": {"sink": jnp.asarray(sinks)}}, scores))(scores)
    np.testing.assert_allclose(weights, np.exp(scores) / (np.exp(sinks) + np.exp(scores).sum(-1, keepdims=True)), 1e-5)
    fresh = module.init(jax.random.key(0), jnp.asarray(scores))["params"]["sink"]
    assert fresh.shape == (3, 1, 1) and np.all(fresh == 0)  # softmax_one


def test_softpick_of_scores_far_apart_and_near_zero():
    scores = np.array([[1e-6, -1e-6, 2e-6], [500, 499, -500], [-3, -2, -1], [0, 0, 0]], np.float32)
    weights = compiled(softpick)(scores)
    expected = [[0.2, 0, 0.4], [sigmoid(1), sigmoid(-1), 0], [0, 0, 0], [0, 0, 0]]  # 1e-6 is epsilon
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    gradient = compiled(jax.grad(lambda x: jnp.sum(softpick(x)[..., 0])))(np.array([1.0, -1.0], np.float32))
    assert np.all(gradient > 0.1)  # a key that is not read is trained as well


def test_stick_breaking_is_monotonic_attention_from_the_other_end():
    scores, mask = SCORES.astype(np.float32), MASK
    start = np.eye(6, dtype=np.float32)[0]
    backwards = compiled(lambda z, mask: expected_weights(jax.nn.sigmoid(z), jnp.asarray(start), mask))
    expected = backwards(scores[:, ::-1], mask[:, ::-1])[:, ::-1]
    np.testing.assert_allclose(compiled(stick_breaking)(scores, mask), expected, atol=1e-6)
