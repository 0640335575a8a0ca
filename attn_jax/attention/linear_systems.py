"""Linear systems with a symmetric positive definite matrix, solved exactly or by conjugate gradient."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from attn_jax.attention import loops
from attn_jax.types import Array, Bool, Float


@loops.by_compiler
def solve_positive(matrix: Float[Array, "... d d"], right: Float[Array, "... d n"]) -> Float[Array, "... d n"]:
    """Solves A x = right by Cholesky's factors; the derivative is one more solve with the same factors."""
    factors = jax.scipy.linalg.cho_factor(jax.lax.stop_gradient(matrix))

    def solve(_, right: Array) -> Array:
        return jax.scipy.linalg.cho_solve(factors, right)

    return jax.lax.custom_linear_solve(lambda x: matrix @ x, right.astype(matrix.dtype), solve, symmetric=True)


def conjugate_gradient(
    times: Callable[[Float[Array, "... d"]], Float[Array, "... d"]], right: Float[Array, "... d"], steps: int
) -> Float[Array, "... d"]:
    """Solves A x = right for each row separately, by conjugate gradient from 0 (Hestenes & Stiefel 1952).

    `times` multiplies by A, symmetric and positive definite; with as many steps as columns x is exact. A row stops once
    its residual reaches rounding error, since further steps would only amplify noise. The derivative is the derivative
    of the exact solution, computed by the same solver.
    """

    def solve(times: Callable, right: Array) -> Array:
        def step(_, so_far):
            x, residual, direction, square = so_far
            product = times(direction)
            going = square > least
            length = _ratio(square, jnp.sum(direction * product, axis=-1, keepdims=True), going)
            x, residual = x + length * direction, residual - length * product
            new = jnp.sum(residual * residual, axis=-1, keepdims=True)
            return x, residual, residual + _ratio(new, square, going) * direction, new

        square = jnp.sum(right * right, axis=-1, keepdims=True)
        least = jnp.finfo(right.dtype).eps ** 2 * square
        return loops.fori_loop(0, steps, step, (jnp.zeros_like(right), right, right, square))[0]

    return jax.lax.custom_linear_solve(times, right, solve, symmetric=True)


def _ratio(x: Array, y: Array, going: Bool[Array, "..."]) -> Array:
    """Computes x / y; 0 for rows that are solved."""
    going = going & (y > 0)
    return jnp.where(going, x / jnp.where(going, y, 1), 0)
