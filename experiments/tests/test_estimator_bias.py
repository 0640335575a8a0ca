"""Bias and variance of estimators by the gradient of f, where they are known."""

import jax
import numpy as np
import pytest

from experiments import estimator_bias as biased
from experiments import estimator_toys as toys

ENTRIES = {entry.label: entry for entry in biased.ENTRIES}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.mark.slow
def test_unbiased_ones_have_no_bias_and_reinmax_none_where_f_is_quadratic():
    for label, power, unbiased in (
        *(("leave-one-out", power, True) for power in (2, 4)),
        *(("coupled", power, True) for power in (2, 4)),
        ("ReinMax", 2, True),
        ("ReinMax", 4, False),
        ("gapped straight-through", 2, False),
    ):
        found = biased.moments(ENTRIES[label], -1.0, power, 0)
        assert (abs(found.bias) < 1e-9) == unbiased, (label, power)
        assert found.error == 0 and found.variance > 1e-6


@pytest.mark.slow
def test_leave_one_out_has_the_variance_of_the_other_table():
    found = biased.moments(ENTRIES["leave-one-out"], -1.0, 2, 0)
    assert found.variance == pytest.approx(toys.leave_one_out_variance(2, -1.0), rel=1e-9)


@pytest.mark.slow
def test_sampled_moments_agree_with_enumerated_ones():
    exact = biased.moments(ENTRIES["ReinMax"], -1.0, 4, 0)
    sampled = biased.moments(ENTRIES["ReinMax"]._replace(exact=""), -1.0, 4, 20_000)
    assert abs(sampled.bias - exact.bias) < 4.5 * sampled.error
    np.testing.assert_allclose(sampled.variance, exact.variance, rtol=0.05)
