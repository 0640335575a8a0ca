"""Straight-through estimators: one sampled key D, whose one-hot row gets the gradient of a differentiable expression.

With log weights t, weights a = softmax(t), g the gradient of f at the one-hot row D, and the Jacobian of softmax
J(p) = diag(p) - p p^T at the value p, the exact gradient with respect to t is approximated by

    straight_through  J(softmax((t + G_D) / temperature)) g / temperature
    gumbel_rao        E[J(softmax((t + G) / temperature))] g / temperature
    reinmax           2 J((a + D) / 2) g - J(a) g / 2
    reinmax_rao       2 E[J(softmax((t' + G) / temperature))] g / temperature - J(a) g / 2,    t' = log((a + D) / 2)
    reinmax_cv        reinmax - scale (J(softmax((t' + G_D) / temperature)) - E[J(...)]) g / temperature
    gapped            J(softmax((t + m) / temperature)) g / temperature
    implicit_mle      (D - argmax(t + G_D - step g)) / step

where G_D is the Gumbel noise of the sample, and E is over Gumbel noise G for which t + G (or t' + G) is largest at D.
All are biased; reinmax is exact if f is quadratic. Each takes one evaluation of f and of its gradient.

Instead of the rng, `reinmax` and `gapped` also accept the sampled key: they have no other randomness.
"""

from functools import partial

import jax
import jax.numpy as jnp

from attn_jax.attention.hard.relaxations import Temperature, averaged, finite, perturbed, relax
from attn_jax.attention.hard.samplers import LogWeights, Randomness, Sample, is_rng, one_row
from attn_jax.attention.normalizers.base import softmax
from attn_jax.types import Array, Float, Int, PRNGKeyArray


def _one_hot(index: Int[Array, "..."], log_weights: LogWeights) -> Float[Array, "... k"]:
    return jax.nn.one_hot(index, log_weights.shape[-1], dtype=log_weights.dtype)


def _with_gradient(row: Float[Array, "... k"], of: Float[Array, "... k"]) -> Sample:
    """Returns a sample with the value `row` and the gradient of `of`."""
    return one_row(row + of - jax.lax.stop_gradient(of))


def _sampled(outcome: Randomness, log_weights: LogWeights) -> Int[Array, "..."]:
    return jax.random.categorical(outcome, log_weights) if is_rng(outcome) else outcome


def _moved(log_weights: LogWeights, to: Float[Array, "... k"]) -> LogWeights:
    """Returns log `to` with the gradient of the log weights; -inf where `to` is 0."""
    possible = to > 0
    shift = jnp.where(possible, jnp.log(jnp.where(possible, to, 1)), 0) - finite(log_weights)
    return jnp.where(possible, finite(log_weights) + jax.lax.stop_gradient(shift), -jnp.inf)


def _half_way(hard: Float[Array, "... k"], log_weights: LogWeights, temperature: Temperature = 1.0) -> LogWeights:
    """Returns t' = log((a + D) / 2), with the gradient of the log weights."""
    return _moved(log_weights, jax.lax.stop_gradient(hard + relax(log_weights, log_weights, temperature)) / 2)


def straight_through(rng: PRNGKeyArray, log_weights: LogWeights, temperature: Temperature = 1.0) -> Sample:
    """One one-hot row with the gradient of `gumbel_softmax` (Jang 2017, arXiv 1611.01144). Biased."""
    return gumbel_rao(rng, log_weights, temperature, num_samples=0)


def gumbel_rao(
    rng: PRNGKeyArray, log_weights: LogWeights, temperature: Temperature = 1.0, num_samples: int = 10
) -> Sample:
    """`straight_through` with its gradient averaged over noise that leads to the same sampled key.

    Paulus 2021 (arXiv 2010.04838), with `num_samples` samples of the noise and one evaluation of f. The noise given the
    key depends on the weights but is treated as a constant, so the mean gradient is the same as for `straight_through`.
    With num_samples 0 the noise of the sample is used, which is `straight_through`.
    """
    sample_rng, noise_rng = jax.random.split(rng)
    z, index = perturbed(sample_rng, log_weights)
    if num_samples == 0:
        relaxed = relax(z, log_weights, temperature)
    else:
        relaxed = averaged(noise_rng, log_weights, index, temperature, num_samples)
    return _with_gradient(_one_hot(index, log_weights), relaxed)


def reinmax(rng: Randomness, log_weights: LogWeights, temperature: Temperature = 1.0) -> Sample:
    """Second-order straight-through: 2 J((a + D) / 2) g - J(a) g / 2 (Liu 2023, arXiv 2304.08612).

    The trapezoidal rule (Heun's method) for f(D) - f(x) along the line from key x to D: exact if f is quadratic and
    the temperature is 1. A temperature above 1 flattens the a of the first term.
    """
    hard = _one_hot(_sampled(rng, log_weights), log_weights)
    between = _half_way(hard, log_weights, temperature)
    return _with_gradient(hard, 2 * softmax(between, between > -jnp.inf) - relax(log_weights, log_weights, 1.0) / 2)


def reinmax_rao(
    rng: PRNGKeyArray, log_weights: LogWeights, temperature: Temperature = 1.0, num_samples: int = 10
) -> Sample:
    """`reinmax` whose first term is a Gumbel-Rao estimate at t' = log((a + D) / 2) (Wang & Bui 2026, arXiv 2603.08257).

    With `num_samples` samples of the noise. Its mean differs from the mean of `reinmax`.
    """
    sample_rng, noise_rng = jax.random.split(rng)
    hard = _one_hot(index := _sampled(sample_rng, log_weights), log_weights)
    first = averaged(noise_rng, _half_way(hard, log_weights), index, temperature, num_samples)
    return _with_gradient(hard, 2 * first - relax(log_weights, log_weights, 1.0) / 2)


def reinmax_cv(
    rng: PRNGKeyArray,
    log_weights: LogWeights,
    temperature: Temperature = 1.0,
    scale: float = 0.5,
    num_samples: int = 10,
) -> Sample:
    """`reinmax` minus scale (Gumbel-softmax - Gumbel-Rao), both at t' (Wang & Bui 2026, arXiv 2603.08257).

    The noise of the Gumbel-softmax term is the noise of the sample, for which t + noise is largest at D; in the
    Gumbel-Rao term t' + noise is largest at D. The two means differ because a and (a + D) / 2 differ, so the control
    variate adds a small bias.
    """
    sample_rng, noise_rng = jax.random.split(rng)
    z, index = perturbed(sample_rng, log_weights)
    hard, noise = _one_hot(index, log_weights), jax.lax.stop_gradient(z - finite(log_weights))
    between = _half_way(hard, log_weights)
    control = relax(finite(between) + noise, between, temperature)
    control -= averaged(noise_rng, between, index, temperature, num_samples)
    both = 2 * softmax(between, between > -jnp.inf) - relax(log_weights, log_weights, 1.0) / 2
    return _with_gradient(hard, both - scale * control)


def gapped(rng: Randomness, log_weights: LogWeights, temperature: Temperature = 1.0, gap: float = 1.0) -> Sample:
    """One sampled key with the gradient of softmax((t + m) / temperature), m constant (Fan 2022, arXiv 2206.07235).

    m raises the log weight of D to the largest, max t, and lowers all others to at most max t - gap. This is the
    effect that the noise of `straight_through` has on average, without the noise.
    """
    hard = _one_hot(_sampled(rng, log_weights), log_weights)
    constant = jax.lax.stop_gradient(log_weights)
    # Finite also in a row without any key, where the difference of two -inf would be NaN.
    t, largest = finite(constant), finite(jnp.max(constant, axis=-1, keepdims=True))
    target = jnp.where(hard > 0, largest, jnp.minimum(t, largest - gap))
    move = jnp.where(constant > -jnp.inf, target - t, 0.0)
    return _with_gradient(hard, relax(finite(log_weights) + move, log_weights, temperature))


def implicit_mle(rng: PRNGKeyArray, log_weights: LogWeights, step: float = 10.0) -> Sample:
    """One sampled key with the gradient (D - argmax(t + noise - step g)) / step (Niepert 2021, arXiv 2106.01798).

    The second key is the maximum a posteriori after a step down the gradient, with the noise of the sample; with Gumbel
    noise the samples are exact. The difference is divided by the step, which gives it the scale of a gradient.
    """
    possible = log_weights > -jnp.inf
    z, _ = perturbed(rng, log_weights)
    return one_row(_perturb_and_map(step, jnp.where(possible, z, -jnp.inf), finite(log_weights)))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _perturb_and_map(step: float, z: LogWeights, log_weights: LogWeights) -> Float[Array, "... k"]:
    """Returns the one-hot row of the largest z; the gradient goes to `log_weights`."""
    return _one_hot(jnp.argmax(z, axis=-1), z)


def _forward(step: float, z: LogWeights, log_weights: LogWeights):
    row = _perturb_and_map(step, z, log_weights)
    return row, (row, z)


def _backward(step: float, saved, g: Float[Array, "... k"]):
    row, z = saved
    target = _one_hot(jnp.argmax(z - step * g, axis=-1), z)
    return jnp.zeros_like(z), (row - target) / step


_perturb_and_map.defvjp(_forward, _backward)
