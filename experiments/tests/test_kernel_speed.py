"""The benchmark compares two programs that compute the same."""

import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.tasks.points.curves import curve
from experiments.benchmarks import kernel_speed as speed


@pytest.mark.slow
def test_our_width_and_predictions_are_those_of_statsmodels():
    pytest.importorskip("statsmodels")
    x, y = curve(speed.NUM_POINTS, 1.0, np.random.default_rng(0))
    found, width = speed.ours(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
    expected, expected_width = speed.theirs(x, y)
    np.testing.assert_allclose(width, expected_width, rtol=1e-2)
    np.testing.assert_allclose(found, expected, atol=2e-2)
