"""The triangular system of the delta rule: its inverse and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled

from attn_jax.attention.recurrent.delta import unit_lower_inverse


def lower_of(n, lead=(2, 3)):
    return jnp.tril(jax.random.normal(jax.random.key(n), (*lead, n, n)), -1) / np.sqrt(n)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_inverse_is_that_of_lapack(n):
    lower = np.asarray(lower_of(n))
    found, expected = compiled(unit_lower_inverse)(lower), np.linalg.inv(np.eye(n) + lower)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_derivatives_in_float64():
    check_derivatives(lambda x: jnp.sum(jnp.sin(unit_lower_inverse(x))), np.asarray(lower_of(6, (2,)), np.float64))


@pytest.mark.slow
def test_what_is_above_the_diagonal_does_not_count():
    lower, above = lower_of(5), jnp.triu(jnp.ones((5, 5)))
    np.testing.assert_array_equal(unit_lower_inverse(lower + above), unit_lower_inverse(lower))
    gradient = jax.grad(lambda x: jnp.sum(jnp.sin(unit_lower_inverse(x))))(lower)
    assert np.all(gradient * above == 0) and np.any(gradient != 0)
