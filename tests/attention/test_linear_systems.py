"""Systems with a symmetric positive definite matrix, beside NumPy's and JAX's solvers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled

from attn_jax.attention.linear_systems import conjugate_gradient, solve_positive
from attn_jax.attention.scores.base import unit


@pytest.mark.parametrize("derivative", [lambda f: f, jax.jacrev, jax.jacfwd, jax.hessian])
def test_an_exact_solution_has_the_derivatives_of_a_general_solver(derivative):
    rng = np.random.default_rng(0)
    factor, right = rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 3, 2))

    def solved(solve):
        def of(factor):
            return solve(factor @ factor.mT + 0.5 * jnp.eye(3), jnp.sin(right + factor[..., :2]))

        with jax.enable_x64(True):
            return compiled(derivative(of))(jnp.asarray(factor))

    np.testing.assert_allclose(solved(solve_positive), solved(jnp.linalg.solve), rtol=1e-8, atol=1e-8)


def test_more_steps_of_conjugate_gradient_than_needed_do_no_harm():
    """In float32 what is left after convergence is rounding, which is no direction to go."""
    rng = np.random.default_rng(0)
    keys, right = (jnp.asarray(rng.normal(size=(rows, 16)), jnp.float32) for rows in (16, 50))
    matrix = unit(keys).T @ unit(keys) + 0.25 * jnp.eye(16)

    @compiled
    def solved(right):
        solve = lambda right: conjugate_gradient(lambda x: x @ matrix, right, 400)  # noqa: E731
        return solve(right), jax.vjp(solve, right)[1](right)[0]

    expected = np.linalg.solve(np.asarray(matrix, np.float64), np.asarray(right, np.float64).T).T
    for found in solved(right):
        np.testing.assert_allclose(found, expected, atol=1e-4)
