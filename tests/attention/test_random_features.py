"""Random features: expectation and variance by quadrature, orthogonal directions, and the linear form of attention."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled

from attn_jax import attend
from attn_jax.attention.random_features import (
    kernel_estimate,
    kernel_variance,
    log_features,
    orthogonal_directions,
    random_directions,
    random_feature_attention,
)
from attn_jax.attention.scores import RandomFeatures

RNG = np.random.default_rng(0)
QUERY, KEYS, VALUES = (RNG.normal(0, 0.6, size=shape) for shape in ((3, 2), (4, 2), (4, 5)))


def fields(attended):
    return attended.context, attended.weights


def quadrature(nodes=40):
    """Points [n, 2] and weights [n] with sum_n weights f(points) = E[f(w)], w ~ N(0, I)."""
    x, weight = np.polynomial.hermite_e.hermegauss(nodes)
    points = np.array(list(itertools.product(x, x)))
    return points, np.outer(weight, weight).ravel() / (2 * np.pi)


def test_the_estimate_has_the_kernel_as_mean_and_the_stated_variance():
    points, weights = quadrature()
    with jax.enable_x64(True):
        estimate = compiled(lambda w: jax.vmap(lambda one: kernel_estimate(QUERY64, KEYS64, one[None]))(w))
        QUERY64, KEYS64 = jnp.asarray(QUERY), jnp.asarray(KEYS)
        found = estimate(points)
        exact, variance = np.exp(QUERY @ KEYS.T), compiled(lambda: kernel_variance(QUERY64, KEYS64, 1))()
    mean = np.einsum("n,nqk->qk", weights, found)
    np.testing.assert_allclose(mean, exact, rtol=1e-10)
    np.testing.assert_allclose(np.einsum("n,nqk->qk", weights, np.square(found)) - mean**2, variance, rtol=1e-8)
    assert np.all(found > 0)


@pytest.mark.slow
@pytest.mark.parametrize("sample", [random_directions, orthogonal_directions])
def test_neither_kind_of_directions_is_biased_and_orthogonal_ones_vary_less(sample):
    query, keys = (jnp.full((1, 8), 0.19) for _ in range(2))  # |query + key|^2 = 1.2
    several = jax.vmap(lambda rng: kernel_estimate(query, keys, sample(rng, 8, 8))[0, 0])
    values = compiled(several)(jax.random.split(jax.random.key(0), 20_000))
    expected = kernel_variance(query, keys, 8).item()
    assert abs(values.mean() - np.exp(8 * 0.19**2)) < 4 * np.sqrt(expected / len(values))
    ratio = values.var() / expected
    assert 0.93 < ratio < 1.07 if sample is random_directions else ratio < 0.92


def test_orthogonal_directions_are_orthogonal_in_blocks():
    directions = compiled(lambda rng: orthogonal_directions(rng, 7, 3))(jax.random.key(0))
    assert directions.shape == (7, 3)
    for block in (directions[:3], directions[3:6]):
        products = block @ block.T
        np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 40.0])
def test_the_linear_form_is_the_formula_with_the_score_of_random_features(factor):
    query, keys, values = (jnp.asarray(x, jnp.float32) for x in (factor * QUERY, KEYS, VALUES))
    mask = jnp.asarray([True, True, False, True])
    score = RandomFeatures(num_features=6)
    expected, weights = compiled(lambda v: fields(attend(query, keys, v, key_mask=mask, score=score)))(values)
    directions = jnp.asarray(compiled(lambda rng: orthogonal_directions(rng, 6, 2))(jax.random.key(0)))
    scaled = [x / 2**0.25 for x in (query, keys)]
    context = compiled(lambda v: random_feature_attention(*scaled, v, directions, key_mask=mask))(values)
    np.testing.assert_allclose(context, expected, rtol=2e-4, atol=1e-5)
    if factor == 1:
        estimate = np.asarray(kernel_estimate(*scaled, directions)) * np.asarray(mask)
        np.testing.assert_allclose(weights, estimate / estimate.sum(-1, keepdims=True), rtol=1e-4)
        nothing_of = lambda q: random_feature_attention(q, scaled[1], values, directions, key_mask=jnp.zeros(4, bool))  # noqa: E731
        nothing, gradient = compiled(lambda q: (nothing_of(q), jax.grad(lambda q: nothing_of(q).sum())(q)))(scaled[0])
        np.testing.assert_array_equal(nothing, 0)
        np.testing.assert_array_equal(gradient, 0)


@pytest.mark.slow
def test_derivatives_in_float64():
    directions, mask = RNG.normal(size=(5, 2)), jnp.asarray([True, False, True, True])

    def total(query, keys, values):
        context = random_feature_attention(query, keys, values, jnp.asarray(directions), key_mask=mask)
        return jnp.sum(jnp.sin(context)) + jnp.sum(jnp.cos(log_features(query, jnp.asarray(directions))))

    check_derivatives(total, QUERY, KEYS, VALUES)
