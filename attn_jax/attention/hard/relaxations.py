"""Relaxations: differentiable rows of weights, computed from the Gumbel noise of a sample.

The sampled key maximizes log_weights + noise; the softmax of log_weights + noise at a temperature approximates the
one-hot row of this key. Gradients through a relaxed row are biased; REBAR corrects the bias.
"""

import jax
import jax.numpy as jnp

from attn_jax.attention.hard.samplers import LogWeights, Sample, choose, one_row
from attn_jax.attention.normalizers.base import softmax
from attn_jax.types import Array, Float, Int, PRNGKeyArray

Temperature = float | Float[Array, ""]  # a number, or a scalar that a schedule computes from the training step


def relax(z: Float[Array, "... k"], log_weights: LogWeights, temperature: Temperature) -> Float[Array, "... k"]:
    """Computes softmax(z / temperature), 0 for masked keys."""
    return softmax(z / temperature, log_weights > -jnp.inf)


def finite(log_weights: LogWeights) -> LogWeights:
    """Replaces the -inf of masked keys by 0."""
    return jnp.where(log_weights > -jnp.inf, log_weights, 0.0)


def perturbed(rng: PRNGKeyArray, log_weights: LogWeights) -> tuple[Array, Array]:
    """Samples by the Gumbel-max trick: (log_weights + Gumbel noise, the key that maximizes it)."""
    z = finite(log_weights) + jax.random.gumbel(rng, log_weights.shape, log_weights.dtype)
    return z, jnp.argmax(jnp.where(log_weights > -jnp.inf, z, -jnp.inf), axis=-1)


def perturbed_given(rng: PRNGKeyArray, log_weights: LogWeights, index: Int[Array, "..."]) -> Array:
    """Samples log_weights + Gumbel noise given that key `index` is the largest; differentiable in log_weights.

    Maddison 2014 and Tucker 2017 (arXiv 1703.07370): the maximum is a Gumbel variable at log sum a = 0, the others are
    Gumbel variables truncated at the maximum.
    """
    noise = jax.random.gumbel(rng, log_weights.shape, log_weights.dtype)
    largest = jnp.take_along_axis(noise, index[..., None], axis=-1)
    cut = -jnp.logaddexp(-noise - finite(log_weights), -largest)
    return jnp.where(jax.nn.one_hot(index, log_weights.shape[-1], dtype=bool), largest, cut)


def averaged(
    rng: PRNGKeyArray, log_weights: LogWeights, index: Int[Array, "..."], temperature: Temperature, num_samples: int
) -> Float[Array, "... k"]:
    """Averages relaxed rows over noise for which key `index` is sampled; the noise has no gradient."""
    fixed = jax.lax.stop_gradient(log_weights)
    noises = [perturbed_given(r, fixed, index) - finite(fixed) for r in jax.random.split(rng, num_samples)]
    rows = [relax(finite(log_weights) + noise, log_weights, temperature) for noise in noises]
    return sum(rows[1:], rows[0]) / num_samples


def gumbel_softmax(rng: PRNGKeyArray, log_weights: LogWeights, temperature: Temperature = 1.0) -> Sample:
    """One relaxed row, softmax((log_weights + Gumbel noise) / temperature).

    Biased for every temperature above 0 (Jang 2017, arXiv 1611.01144; Maddison 2017, arXiv 1611.00712).
    """
    z, _ = perturbed(rng, log_weights)
    return one_row(relax(z, log_weights, temperature))


def rebar(
    rng: PRNGKeyArray,
    log_weights: LogWeights,
    temperature: Temperature = 1.0,
    scale: float | Float[Array, ""] = 1.0,
) -> Sample:
    """REBAR (Tucker 2017, arXiv 1703.07370): one sampled key x, with f at a relaxed row z as control variate.

        gradient = (f(x) - scale f(z given x)) grad log a_x + scale (grad f(z) - grad f(z given x)) + grad f(x)

    where z is relaxed at `temperature`. Three rows, so three evaluations of f; unbiased for every temperature and
    scale.
    """
    sample_rng, noise_rng = jax.random.split(rng)
    z, index = perturbed(sample_rng, log_weights)
    given = perturbed_given(noise_rng, log_weights, index)
    relaxed = [relax(x, log_weights, temperature)[..., None, :] for x in (z, given)]
    hard = choose(log_weights, index[..., None], jnp.ones((*index.shape, 1), log_weights.dtype))
    scale = jnp.asarray(scale, log_weights.dtype)
    zero, one = jnp.zeros_like(scale), jnp.ones_like(scale)
    importance_weights = jnp.broadcast_to(jnp.stack([one, scale, -scale]), (*index.shape, 3))
    log_prob = jnp.concatenate([hard.log_prob, *[jnp.zeros_like(hard.log_prob)] * 2], axis=-1)
    # The baseline of the sampled key is scale f(z given x); the relaxed rows have none.
    matrix = jnp.zeros((3, 3), log_weights.dtype).at[0].set(jnp.stack([zero, zero, scale]))
    return Sample(
        rows=jnp.concatenate([hard.rows, *relaxed], axis=-2),
        importance_weights=importance_weights,
        log_prob=log_prob,
        leave_one_out=jnp.broadcast_to(matrix, (*index.shape, 3, 3)),
    )
