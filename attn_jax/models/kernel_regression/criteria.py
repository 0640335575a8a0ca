"""Criteria that choose the width of a kernel, and weight the components of a mixture.

leave_one_out   mean_i |y_i - prediction of y_i without point i|^2, self-attention with a masked diagonal
aicc            log(mean_i |y_i - prediction_i|^2) + 1 + 2 (t + 1) / (n - t - 2), t = sum_i weights_i(key_i)
                (Hurvich, Simonoff & Tsai 1998, equation 5): penalizes the effective number of parameters; varies less
                than leave_one_out for few points
training        mean_i |y_i - prediction_i|^2: has its minimum at width 0, where each point predicts itself
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from attn_jax.types import Array, Float, Int

# Lower bound of mean squares, so that their logarithm is finite: in float32 and for targets of unit size it cannot be
# distinguished from a perfect fit.
SMALLEST_ERROR = 2.0**-46


class Criterion(NamedTuple):
    """A criterion to minimize, with the properties that differ between criteria.

    value(predict, smoother, targets, index) is computed from predict(index, exclude) -> predictions of the training
    points `index`, and from smoother() -> weights of all training points in all predictions [n, n].
    """

    value: Callable[..., Float[Array, ""]]
    is_log: bool = False  # whether the value is the logarithm of a mean square
    all_points: bool = False  # whether it always uses all pairs of training points


def leave_one_out(
    predict: Callable[..., Array], smoother: Callable[[], Array], targets: Float[Array, "n v"], index: Int[Array, "b"]
) -> Float[Array, ""]:
    """Mean over `index` of |y_i - prediction from all other points|^2."""
    predictions = predict(index, exclude=index)
    return jnp.mean(jnp.sum(jnp.square(targets[index] - predictions), axis=-1))


def training_error(
    predict: Callable[..., Array], smoother: Callable[[], Array], targets: Float[Array, "n v"], index: Int[Array, "b"]
) -> Float[Array, ""]:
    """Mean over `index` of |y_i - prediction from all points, including point i|^2."""
    return jnp.mean(jnp.sum(jnp.square(targets[index] - predict(index)), axis=-1))


def aicc(
    predict: Callable[..., Array], smoother: Callable[[], Array], targets: Float[Array, "n v"], index: Int[Array, "b"]
) -> Float[Array, ""]:
    """Corrected Akaike criterion of all points; inf if the fit has as many parameters as there are points."""
    weights = smoother()
    error = jnp.maximum(jnp.mean(jnp.sum(jnp.square(targets - weights @ targets), axis=-1)), SMALLEST_ERROR)
    num_parameters, n = jnp.trace(weights), len(targets)
    freedom = n - num_parameters - 2
    penalty = 1 + 2 * (num_parameters + 1) / jnp.where(freedom > 0, freedom, 1.0)
    return jnp.where(freedom > 0, jnp.log(error) + penalty, jnp.inf)


CRITERIA = {
    "leave_one_out": Criterion(leave_one_out),
    "aicc": Criterion(aicc, is_log=True, all_points=True),
    "training": Criterion(training_error),
}
