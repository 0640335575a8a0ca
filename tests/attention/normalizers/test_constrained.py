"""Constrained normalizers: their bounds, and what they are without them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled

from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.normalizers.constrained import constrained_softmax, constrained_sparsemax
from attn_jax.attention.normalizers.entmax import sparsemax

RNG = np.random.default_rng(0)
ROWS, KEYS = 200, 6
SCORES = RNG.normal(0, 1, (ROWS, KEYS)).astype(np.float32)
UPPER = RNG.uniform(0, 0.8, (ROWS, KEYS)).astype(np.float32)
UPPER[::7, 2] = 0
MASK = RNG.random((ROWS, KEYS)) < 0.9
SCORES_ALONG, UPPER_ALONG, SENSES = RNG.normal(size=(3, ROWS, KEYS)).astype(np.float32)
PLAIN = {constrained_sparsemax: sparsemax, constrained_softmax: softmax}


@functools.cache
def call_of(normalize):
    """(scores, upper, mask) -> weights, their tangent, the gradients of SENSES in scores and upper."""

    def all_of(scores, upper, mask):
        call = lambda scores, upper: normalize(scores, mask, upper)  # noqa: E731
        tangents = jnp.asarray(SCORES_ALONG), jnp.asarray(UPPER_ALONG)
        weights, pull = jax.vjp(call, scores, upper)
        return weights, jax.jvp(call, (scores, upper), tangents)[1], *pull(jnp.asarray(SENSES))

    return compiled(all_of)


@pytest.fixture(scope="module", params=PLAIN, ids=lambda normalize: normalize.__name__)
def normalize(request):
    return request.param


def reference(normalize, scores, upper, mask):
    """By bisection in float64 of what all weights have in common: tau, or the logarithm of the factor."""
    upper = np.where(mask, upper, 0).astype(np.float64)
    scores = np.where(mask, scores, 0).astype(np.float64)
    low, high = np.full((len(scores), 1), -50.0), np.full((len(scores), 1), 50.0)
    raised = lambda level: scores + level if normalize is constrained_sparsemax else np.exp(scores + level)  # noqa: E731
    for _ in range(100):
        middle = (low + high) / 2
        enough = np.clip(raised(middle), 0, upper).sum(-1, keepdims=True) >= 1
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.clip(raised(high), 0, upper)


@pytest.mark.slow
def test_its_weights(normalize):
    weights, *_ = call_of(normalize)(SCORES, UPPER, MASK)
    np.testing.assert_allclose(weights, reference(normalize, SCORES, UPPER, MASK), atol=1e-6)
    assert np.all(weights <= UPPER) and np.all(weights >= 0) and np.all(weights[~MASK] == 0)
    feasible = np.where(MASK, UPPER, 0).sum(-1) > 1
    assert 0.1 < feasible.mean() < 0.99
    np.testing.assert_allclose(weights[feasible].sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(weights[~feasible], np.where(MASK, UPPER, 0)[~feasible], atol=1e-6)


def test_bounds_of_one_do_not_bind(normalize):
    weights, _, gradient, _ = call_of(normalize)(SCORES, np.ones_like(UPPER), MASK)

    @compiled
    def plain(scores, mask):
        weights, pull = jax.vjp(lambda scores: PLAIN[normalize](scores, mask), scores)
        return weights, pull(jnp.asarray(SENSES))[0]

    expected, expected_gradient = plain(SCORES, MASK)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-5)


def test_its_derivatives(normalize):
    weights, along, by_scores, by_upper = call_of(normalize)(SCORES, UPPER, MASK)
    step = 1e-6
    ahead, behind = (
        reference(normalize, SCORES + change * SCORES_ALONG, UPPER + change * UPPER_ALONG, MASK)
        for change in np.array([step, -step])[:, None, None]
    )
    smooth = np.all((UPPER > 1e-3) & (np.abs(weights - UPPER) > 1e-5) | (weights == UPPER), axis=-1)
    smooth &= np.all((ahead > 0) == (behind > 0), axis=-1) & np.all(UPPER > 0, axis=-1)
    assert smooth.mean() > 0.5
    np.testing.assert_allclose(along[smooth], ((ahead - behind) / (2 * step))[smooth], atol=1e-3)
    pulled = by_scores * SCORES_ALONG + by_upper * UPPER_ALONG
    np.testing.assert_allclose(pulled.sum(-1), (along * SENSES).sum(-1), atol=1e-4)


def test_masked_keys_and_empty_rows_change_nothing(normalize):
    mask = MASK.copy()
    mask[:5] = False
    expected = call_of(normalize)(SCORES, UPPER, mask)
    assert np.all(expected[0][:5] == 0) and np.all(expected[2][:5] == 0)
    for rubbish in (np.nan, np.inf, -np.inf):
        got = call_of(normalize)(np.where(mask, SCORES, rubbish), np.where(mask, UPPER, rubbish), mask)
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


def test_scores_far_apart(normalize):
    scores = SCORES * np.float32(1e3)
    scores[:, 0] = -1e30
    weights, *gradients = call_of(normalize)(scores, UPPER, MASK)
    feasible = np.where(MASK, UPPER, 0).sum(-1) > 1 + 1e-5
    np.testing.assert_allclose(weights[feasible].sum(-1), 1, rtol=1e-5)
    assert all(np.all(np.isfinite(array)) for array in gradients)
