"""The exact risk is what a simulation finds, and the searched widths bracket its minimum."""

import jax.numpy as jnp
import numpy as np
from arrays import compiled

from experiments import kernels as experiment


def test_the_exact_risk_is_that_of_a_simulation():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 5, (30, 1)).astype(np.float32)
    places = np.float32([[1.0], [2.5], [4.9]])
    f = lambda x: 2 * jnp.sin(x[:, 0]) + x[:, 0]  # noqa: E731
    widths = jnp.array([0.2, 0.8])
    exact = compiled(lambda x, places: experiment.risk(0, x, places, f, widths))(x, places)
    truth = 2 * np.sin(places) + places
    for width, expected in zip([0.2, 0.8], exact, strict=True):
        weights = np.exp(-np.square(places - x.T) / (2 * width**2))
        weights /= weights.sum(-1, keepdims=True)
        y = 2 * np.sin(x) + x + rng.normal(size=(30, 20_000))
        np.testing.assert_allclose(np.mean((weights @ y - truth) ** 2), expected, rtol=0.03)


def test_a_slope_is_an_exponent():
    sizes = [10, 100, 1000]
    assert np.isclose(experiment.slope(sizes, 3 * np.array(sizes) ** -0.2), -0.2)


def test_the_error_of_the_constant_kernel_is_that_of_the_mean():
    x, y = experiment.draws(range(3))
    found, _ = experiment.fit(experiment.model("constant"), x, y)
    expected = np.mean((y.mean(axis=1) - experiment.TRUTH[:, 0]) ** 2, axis=-1)
    np.testing.assert_allclose(experiment.errors(found), expected, rtol=1e-4)
