"""Estimators: surrogate losses whose value and gradient estimate the value and gradient of E[f] over sampled keys.

For a loss f(value_x) under weights a, with the sampled keys x_n and their importance weights w_n,

    value     sum_n w_n f_n                                           estimates   E[f]
    gradient  sum_n w_n (f_n - b_n) grad log a(x_n)                   estimates   sum_x f_x grad a_x
            + sum_n w_n grad f_n                                      and         sum_x a_x grad f_x

The same formula serves every sampler of samplers.py. It is unbiased because E[sum_n w_n [x_n = x]] = a_x, with any
baseline b that does not depend on the sample, since E[sum_n w_n grad log a(x_n)] = grad sum_x a_x = 0.

Reading one sampled key is not enough to train the weights: sampling is not differentiable, so the context has no
gradient with respect to scores, query or keys. The first line of the gradient above exists only in the surrogate that
`combine` or `combine_marginal` returns. Minimize the surrogate, not the loss at the sampled context.
"""

import jax
import jax.numpy as jnp

from attn_jax.attention.hard.samplers import Sample
from attn_jax.attention.information import log_sum_exp_or_0
from attn_jax.types import Array, Float


def gradient_only(x: Array) -> Array:
    """Returns zero, with the gradient of x."""
    return x - jax.lax.stop_gradient(x)


def combine(
    sample: Sample,
    f: Float[Array, "... n"],
    baseline: Float[Array, "..."] | None = None,
    log_weights: Float[Array, "... k"] | None = None,
    coordinates: Float[Array, "... k"] | None = None,
    per_key: Float[Array, "... k"] | None = None,
) -> Float[Array, "..."]:
    """Surrogate of E[f]: its value and its gradient are the estimates above.

    Evaluate the loss at each row of a sample, then minimize the surrogate:

        >>> log_weights = jnp.log(jnp.array([0.5, 0.25, 0.125, 0.0625, 0.0625]))
        >>> sample = attn_jax.reinforce(num_samples=4)(rng, log_weights)
        >>> f = jnp.square(sample.rows @ values).sum(-1)
        >>> surrogate = combine(sample, f)
        >>> bool(jnp.allclose(surrogate, f.mean()))
        True

    Args:
        sample: the result of a reading.
        f: the loss at each row, differentiable.
        baseline: b, the same for all samples; None is 0. A leave-one-out baseline of the sample is subtracted, too.
        log_weights: log a, needed with `coordinates` or `per_key`.
        coordinates: an additional baseline for each coordinate of the gradient with respect to the logits of the
            weights, see `coordinate_control`.
        per_key: a prediction g_x of the loss at every key, a baseline with a known expectation: the gradient is
            sum_n w_n (f_n - g_{x_n}) grad log a(x_n) + sum_x g_x grad a_x. It is unbiased for any g that does not
            depend on the sample, and without variance in the weights if g = f (an action-dependent control variate:
            Gu 2017, arXiv 1611.02247).

    Returns:
        One number for each leading index; minimize it.

    Raises:
        ValueError: f is not one loss per row, a baseline is not one number for all rows, or log_weights are missing.
    """
    _check_losses("combine", sample, f, baseline)
    control = log_prob_term(sample, f, baseline)
    if coordinates is None and per_key is None:
        return jnp.sum(sample.importance_weights * f, axis=-1) + control
    if log_weights is None:
        raise ValueError("combine with coordinates or per_key: expected log_weights as well, got None")
    if per_key is not None:
        control = control + key_control(sample, log_weights, per_key)
    if coordinates is not None:
        control = control - coordinate_control(sample, log_weights, coordinates)
    return jnp.sum(sample.importance_weights * f, axis=-1) + control


def log_prob_term(
    sample: Sample, f: Float[Array, "... n"], baseline: Float[Array, "..."] | None
) -> Float[Array, "..."]:
    """Returns 0, with the gradient sum_n w_n (f_n - b_n) grad log a(x_n).

    f has no stop_gradient: it is multiplied by a factor of value 0, so the gradient can be differentiated again with
    respect to parameters of f (the temperature of REBAR).
    """
    advantage = f
    if baseline is not None:
        advantage = advantage - jax.lax.stop_gradient(baseline)[..., None]
    if sample.leave_one_out is not None:
        advantage = advantage - jnp.einsum("...nm,...m->...n", sample.leave_one_out, advantage)
    return jnp.sum(sample.importance_weights * advantage * gradient_only(sample.log_prob), axis=-1)


def key_control(
    sample: Sample, log_weights: Float[Array, "... k"], per_key: Float[Array, "... k"]
) -> Float[Array, "..."]:
    """Returns 0, with the gradient sum_x g_x grad a_x - sum_n w_n g_{x_n} grad log a(x_n), of mean zero."""
    g = jax.lax.stop_gradient(per_key)
    weights = jnp.where(log_weights > -jnp.inf, jnp.exp(log_weights), 0.0)
    chosen = jnp.einsum("...nk,...k->...n", jax.lax.stop_gradient(sample.rows), g)
    return gradient_only(jnp.sum(weights * g, axis=-1)) - jnp.sum(
        sample.importance_weights * chosen * gradient_only(sample.log_prob), axis=-1
    )


def counts(sample: Sample) -> Float[Array, "... k"]:
    """Computes C_x = sum_n w_n [x_n = x], an unbiased estimate of the weights."""
    return jax.lax.stop_gradient(jnp.einsum("...n,...nk->...k", sample.importance_weights, sample.rows))


def coordinate_control(
    sample: Sample, log_weights: Float[Array, "... k"], coordinates: Float[Array, "... k"]
) -> Float[Array, "..."]:
    """Returns 0, with the gradient b_i (C_i - a_i), minus its mean over the keys, with respect to the logit of key i.

    Its expectation is zero, so b_i is a separate baseline for each coordinate of the gradient. The true gradient with
    respect to logits sums to zero over the keys; subtracting the mean projects the control onto that space.
    """
    possible = log_weights > -jnp.inf
    finite = jnp.where(possible, log_weights, 0.0)
    difference = counts(sample) - jnp.where(possible, jnp.exp(finite), 0.0)
    noise = jax.lax.stop_gradient(jnp.broadcast_to(coordinates, difference.shape) * difference)
    mean = jnp.mean(noise, axis=-1, keepdims=True, where=possible)
    mean = jnp.where(jnp.any(possible, axis=-1, keepdims=True), mean, 0.0)
    return jnp.sum(jnp.where(possible, noise - mean, 0.0) * gradient_only(finite), axis=-1)


def coordinate_moments(
    sample: Sample, log_weights: Float[Array, "... k"], f: Float[Array, "... n"]
) -> tuple[Float[Array, "... k"], Float[Array, "... k"]]:
    """Computes (A_i B_i, B_i^2), A the estimated gradient with respect to logit i and B the same for f = 1.

    E[A B] / E[B^2] is the baseline b_i that minimizes Var(A_i - b_i B_i) (Weaver & Tao 2001; for one coordinate at a
    time, Peters & Schaal 2008). Both expectations can be estimated by running means.
    """
    estimate, unit = logit_estimates(sample, log_weights, f)
    return estimate * unit, jnp.square(unit)


def logit_estimates(
    sample: Sample, log_weights: Float[Array, "... k"], f: Float[Array, "... n"]
) -> tuple[Float[Array, "... k"], Float[Array, "... k"]]:
    """Computes (A, B): the estimated gradient with respect to each logit without a baseline, and the same for f = 1.

    With a constant baseline b the estimate is A - b B; E[B] = 0.
    """
    weights = jax.lax.stop_gradient(jnp.exp(log_weights))
    f = jax.lax.stop_gradient(f)
    weighted = jnp.einsum("...n,...nk->...k", sample.importance_weights * f, jax.lax.stop_gradient(sample.rows))
    estimate = weighted - weights * jnp.sum(sample.importance_weights * f, axis=-1, keepdims=True)
    unit = counts(sample) - weights * jnp.sum(sample.importance_weights, axis=-1, keepdims=True)
    return estimate, unit


def combine_marginal(
    sample: Sample, f: Float[Array, "... n"], baseline: Float[Array, "..."] | None = None
) -> Float[Array, "..."]:
    """Surrogate of the negative marginal log-likelihood -log E[p] for f = -log p: L = -log sum_n w_n exp(-f_n).

    Exact for a complete sample (enumeration). With T samples of importance weight 1/T it is the bound of Burda 2016
    (arXiv 1509.00519), E[-log 1/T sum_n p_n], and its gradient is estimated by

        sum_n (L - b_n) grad log a(x_n) + grad L.

    With leave-one-out, b_n is L with p_n replaced by the geometric mean of the other p: VIMCO (Mnih & Rezende 2016,
    arXiv 1602.06725).

    Raises:
        ValueError: f is not one loss per row, a baseline is not one number for all rows, or the sample comes neither
            from enumeration nor from independent draws (reinforce); for other samplers this gradient is wrong.
    """
    _check_losses("combine_marginal", sample, f, baseline)
    if not (sample.complete or sample.independent):
        raise ValueError("combine_marginal needs all keys or independent samples: read=enumeration() or reinforce()")
    counted = sample.importance_weights > 0
    log_importance = jnp.where(counted, jnp.log(jnp.where(counted, sample.importance_weights, 1)), -jnp.inf)
    if sample.complete:  # the importance weights are the weights a, with their gradient
        return -log_sum_exp_or_0(log_importance + gradient_only(sample.log_prob) - f)
    loss = -log_sum_exp_or_0(log_importance - f)
    reward = jax.lax.stop_gradient(loss)[..., None]
    if sample.leave_one_out is not None:
        f_others = jnp.einsum("...nm,...m->...n", sample.leave_one_out, f)
        replaced = jnp.where(jnp.eye(f.shape[-1], dtype=bool), f_others[..., None], f[..., None, :])
        reward = reward - jax.lax.stop_gradient(-log_sum_exp_or_0(log_importance[..., None, :] - replaced))
    elif baseline is not None:
        reward = reward - jax.lax.stop_gradient(baseline)[..., None]
    return loss + gradient_only(jnp.sum(reward * sample.log_prob, axis=-1))


def _check_losses(where: str, sample: Sample, f: Array, baseline: Array | None) -> None:
    if f.shape[-1:] != (rows := sample.importance_weights.shape[-1:]):
        raise ValueError(f"{where}: f has the shape {f.shape}; expected [..., {rows[0]}], a loss for each row read")
    if baseline is None:
        return
    lead = jnp.broadcast_shapes(f.shape, sample.log_prob.shape)[:-1]
    try:
        fits = jnp.broadcast_shapes(baseline.shape, lead) == lead
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{where}: the baseline has the shape {baseline.shape}; expected {lead}, one number for all rows of a "
            "sample"
        )
