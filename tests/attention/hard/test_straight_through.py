"""Straight-through estimators against enumeration of the sampled key, quadrature of the noise, and many samples."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled

from attn_jax.attention.hard.estimators import combine
from attn_jax.attention.hard.readings import READINGS

RNG = np.random.default_rng(0)
LOGITS = np.array([0.3, -0.6, 1.1, 0.2])
P = np.exp(LOGITS) / np.exp(LOGITS).sum()
N = len(P)
CURVES = RNG.normal(size=(N, N))
SLOPES = RNG.normal(size=N)
NAMES = ("reinmax", "reinmax_rao", "reinmax_cv", "gapped", "implicit_mle")


def quadratic(row):
    return row @ (CURVES + CURVES.T) @ row / 2 + row @ SLOPES + 1


def cubic(row):
    return quadratic(row) + jnp.sum(jnp.asarray(SLOPES[::-1]) * row**3)


def truth(f):
    """The gradient of E[f] with respect to the logits."""
    losses = np.array([f(row) for row in np.eye(N)])
    return P * (losses - P @ losses)


def gradient_of(reading, f):
    """outcome or rng -> gradient of the logits."""

    def gradient(logits, outcome):
        def surrogate(logits):
            sample = reading(outcome, jax.nn.log_softmax(logits))
            return combine(sample, jax.vmap(f)(sample.rows))

        return jax.grad(surrogate)(logits)

    return functools.partial(gradient, jnp.asarray(LOGITS))


def over_keys(name, f, **options):
    """(mean, gradient at each sampled key [key, logit])."""
    with jax.enable_x64(True):
        reading = READINGS[name].configure(**options)
        each = np.asarray(jax.jit(jax.vmap(gradient_of(reading, f)))(jnp.arange(N)))
    return P @ each, each


def over_noise(name, f, count=40_000, **options):
    """(mean, its standard error, variance) over samples."""
    each = compiled(jax.vmap(gradient_of(READINGS[name].configure(**options), f)))(
        jax.random.split(jax.random.key(1), count)
    ).astype(float)
    return each.mean(0), each.std(0) / count**0.5, each.var(0)


@pytest.mark.slow
def test_reinmax_is_exact_for_a_quadratic_loss_and_for_no_other():
    mean, each = over_keys("reinmax", quadratic)
    np.testing.assert_allclose(mean, truth(quadratic), atol=1e-12)
    assert np.max(np.abs(each - mean)) > 0.1  # it is not without noise
    for options, f in (({}, cubic), ({"temperature": 2.0}, quadratic)):
        mean, _ = over_keys("reinmax", f, **options)
        assert np.max(np.abs(mean - truth(f))) > 1e-3
    mean, _ = over_keys("gapped", quadratic)
    assert np.max(np.abs(mean - truth(quadratic))) > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_reinmax_is_its_formula(temperature):
    softened = np.exp(LOGITS / temperature) / np.exp(LOGITS / temperature).sum()
    _, each = over_keys("reinmax", cubic, temperature=temperature)
    for key, row in enumerate(np.eye(N)):
        g, between = jax.grad(cubic)(jnp.asarray(row)), (softened + row) / 2
        expected = 2 * between * (g - between @ g) - P * (g - P @ g) / 2
        np.testing.assert_allclose(each[key], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "gap"), [(1.0, 1.0), (0.6, 0.0), (0.6, 2.5)])
def test_gapped_moves_the_sampled_key_to_the_top_and_the_others_below_the_gap(temperature, gap):
    _, each = over_keys("gapped", cubic, temperature=temperature, gap=gap)
    log_p = np.log(P)
    for key, row in enumerate(np.eye(N)):
        moved = [log_p.max() if k == key else min(log_p[k], log_p.max() - gap) for k in range(N)]
        relaxed = np.exp(np.array(moved) / temperature) / np.exp(np.array(moved) / temperature).sum()
        g = jax.grad(cubic)(jnp.asarray(row))
        np.testing.assert_allclose(each[key], relaxed * (g - relaxed @ g) / temperature, rtol=1e-4, atol=1e-5)


def better_key(gradients, step, count=4_000):
    """P(D = i, argmax(t + G_D - step g_i) = j) [i, j], by quadrature over the difference of two Gumbel variables.

    With d = -step g_i, z = t + G and i the largest of z, j the largest of z + d if z_j >= z_k - (d_j - d_k) for all k:
    given z_i - z_j = u in [0, d_j - d_i], P = int a_i a_j e^u / S(u)^2 du, S(u) = sum_k a_k e^{max(0, u - d_j + d_k)},
    with e^u for k = j.
    """
    found = np.zeros((N, N))
    for i, j in np.ndindex(N, N):
        d = -step * gradients[i]
        if j == i or d[j] <= d[i]:
            continue
        edges = np.unique(np.clip([0, *(d[j] - d), d[j] - d[i]], 0, d[j] - d[i]))
        nodes, weights = np.polynomial.legendre.leggauss(40)
        for low, high in itertools.pairwise(edges):
            u = low + (high - low) * (nodes + 1) / 2
            total = sum(P[k] * np.exp(u if k == j else np.maximum(0, u - d[j] + d[k])) for k in range(N) if k != i)
            found[i, j] += weights @ (P[i] * P[j] * np.exp(u) / (total + P[i]) ** 2) * (high - low) / 2
    found[np.arange(N), np.arange(N)] = P - found.sum(axis=1)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.5, 10.0])
def test_implicit_mle_goes_to_the_better_key_as_often_as_quadrature_says(step):
    gradients = np.asarray(jax.vmap(jax.grad(cubic))(jnp.eye(N)))
    joint = better_key(gradients, step)
    assert np.all(joint > -1e-9)
    mean, error, variance = over_noise("implicit_mle", cubic, step=step)
    differences = (np.eye(N)[:, None] - np.eye(N)) / step
    expected = np.einsum("ij,ijk->k", joint, differences)
    assert np.all(np.abs(mean - expected) < 4.5 * error + 1e-6)
    np.testing.assert_allclose(
        variance, np.einsum("ij,ijk->k", joint, np.square(differences - expected)), rtol=0.1, atol=1e-4
    )


@pytest.mark.slow
def test_averaging_over_noise_lowers_the_variance_and_not_the_mean():
    few, *_, spread = over_noise("reinmax_rao", cubic, num_samples=1)
    many, error, less = over_noise("reinmax_rao", cubic, num_samples=8)
    assert np.all(np.abs(few - many) < 5 * np.sqrt(error**2 + spread / 40_000))
    assert less.sum() < 0.9 * spread.sum()


@pytest.mark.slow
def test_a_control_of_scale_0_is_reinmax():
    mean, each = over_keys("reinmax", cubic)
    variance = P @ np.square(each - mean)
    got, error, spread = over_noise("reinmax_cv", cubic, scale=0.0, num_samples=1)
    assert np.all(np.abs(got - mean) < 4.5 * error)
    np.testing.assert_allclose(spread, variance, rtol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_row_is_a_sampled_key_and_its_gradient_sums_to_zero(name):
    log_weights = jax.nn.log_softmax(jnp.asarray(LOGITS, jnp.float32))
    rngs = jax.random.split(jax.random.key(0), 20_000)
    rows = compiled(jax.vmap(lambda rng: READINGS[name](rng, log_weights).rows[0]))(rngs)
    np.testing.assert_allclose(rows.max(-1), 1, atol=1e-5)
    frequencies = np.bincount(rows.argmax(-1), minlength=N) / len(rows)
    np.testing.assert_array_less(np.abs(frequencies - P), 4.5 * np.sqrt(P * (1 - P) / len(rows)))
    gradients = compiled(jax.vmap(gradient_of(READINGS[name], cubic)))(rngs[:50])
    np.testing.assert_allclose(gradients.sum(-1), 0, atol=1e-5)
