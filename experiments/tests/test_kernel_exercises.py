"""The exercises of the chapter on kernel regression, on less data."""

import numpy as np
import pytest

from experiments import kernel_exercises as exercises


def test_parzen_windows_and_the_regression_agree_on_the_class():
    assert exercises.parzen(num_places=300) == (0, 300)


@pytest.mark.slow
def test_on_the_sphere_the_gaussian_kernel_is_a_dot_product():
    assert exercises.sphere() < 1e-6


@pytest.mark.slow
def test_descent_on_the_training_error_shrinks_the_width_further_than_on_the_leave_one_out_error():
    widths = {name: exercises.descend(name, num_draws=3, steps=300)[0] for name in ("training", "leave_one_out")}
    assert widths["training"].shape == (3, 300)
    assert np.all(widths["training"][:, -1] < widths["leave_one_out"][:, -1])
