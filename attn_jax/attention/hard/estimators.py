"""From the losses at the rows of a draw to one number whose gradient is an estimate of the expectation's.

For a loss f(value_x) under weights a, with the sampled keys x_n and the mass that the draw gives them,

    value     sum_n mass_n f_n                                        estimates   E[f]
    gradient  sum_n mass_n (f_n - b_n) grad log a(x_n)                estimates   sum_x f_x grad a_x
            + sum_n mass_n grad f_n                                   and         sum_x a_x grad f_x

One formula for every draw of draws.py: unbiased as E[sum_n mass_n [x_n = x]] = a_x, for any baseline b that knows
nothing of the draw, since E[sum_n mass_n grad log a(x_n)] = grad sum_x a_x = 0.
"""

import jax
import jax.numpy as jnp

from attn_jax.attention.hard.samplers import Draw
from attn_jax.types import Array, Float


def gradient_only(x: Array) -> Array:
    """Zero, with the gradient of x."""
    return x - jax.lax.stop_gradient(x)


def combine(
    draw: Draw,
    f: Float[Array, "... n"],
    baseline: Float[Array, "..."] | None = None,
    log_weights: Float[Array, "... k"] | None = None,
    coordinates: Float[Array, "... k"] | None = None,
    per_key: Float[Array, "... k"] | None = None,
) -> Float[Array, "..."]:
    """The surrogate of E[f]: its value and its gradient are the estimates above.

    Args:
        draw: what a reading returned.
        f: the loss at each row, differentiable.
        baseline: b, one for all samples; None is 0. The draw's own `others` come on top.
        log_weights, coordinates: a further baseline for each coordinate of the gradient with respect to the logits
            of the weights, see `coordinate_control`.
        per_key: a guess g_x of the loss at every key, a baseline that is known exactly: the gradient is
            sum_n mass_n (f_n - g_{x_n}) grad log a(x_n) + sum_x g_x grad a_x. Unbiased for any g that knows nothing of
            the draw, and without variance in the weights where g = f (an action-dependent control variate: Gu 2017,
            arXiv 1611.02247).
    """
    score = log_prob_term(draw, f, baseline)
    if per_key is not None:
        score = score + key_control(draw, log_weights, per_key)
    if coordinates is not None:
        score = score - coordinate_control(draw, log_weights, coordinates)
    return jnp.sum(draw.mass * f, axis=-1) + score


def log_prob_term(draw: Draw, f: Float[Array, "... n"], baseline: Float[Array, "..."] | None) -> Float[Array, "..."]:
    """0, with the gradient sum_n mass_n (f_n - b_n) grad log a(x_n).

    f itself is not stopped: it meets a factor that is 0, and so the gradient can be differentiated once more, with
    respect to what f depends on (the temperature of REBAR).
    """
    advantage = f
    if baseline is not None:
        advantage = advantage - jax.lax.stop_gradient(baseline)[..., None]
    if draw.others is not None:
        advantage = advantage - jnp.einsum("...nm,...m->...n", draw.others, advantage)
    return jnp.sum(draw.mass * advantage * gradient_only(draw.log_prob), axis=-1)


def key_control(draw: Draw, log_weights: Float[Array, "... k"], per_key: Float[Array, "... k"]) -> Float[Array, "..."]:
    """0, with the gradient sum_x g_x grad a_x - sum_n mass_n g_{x_n} grad log a(x_n), of mean zero."""
    g = jax.lax.stop_gradient(per_key)
    weights = jnp.where(log_weights > -jnp.inf, jnp.exp(log_weights), 0.0)
    chosen = jnp.einsum("...nk,...k->...n", jax.lax.stop_gradient(draw.rows), g)
    return gradient_only(jnp.sum(weights * g, axis=-1)) - jnp.sum(
        draw.mass * chosen * gradient_only(draw.log_prob), axis=-1
    )


def counts(draw: Draw) -> Float[Array, "... k"]:
    """C_x = sum_n mass_n [x_n = x], an unbiased estimate of the weights."""
    return jax.lax.stop_gradient(jnp.einsum("...n,...nk->...k", draw.mass, draw.rows))


def coordinate_control(
    draw: Draw, log_weights: Float[Array, "... k"], coordinates: Float[Array, "... k"]
) -> Float[Array, "..."]:
    """0, with the gradient b_i (C_i - a_i), less its mean over the keys, with respect to the logit of key i.

    Of mean zero, so b_i is a baseline of its own for each coordinate of the gradient. The true gradient with
    respect to logits sums to zero over the keys; leaving out the mean projects the control onto that space.
    """
    possible = log_weights > -jnp.inf
    finite = jnp.where(possible, log_weights, 0.0)
    noise = jax.lax.stop_gradient(coordinates * (counts(draw) - jnp.where(possible, jnp.exp(finite), 0.0)))
    mean = jnp.mean(noise, axis=-1, keepdims=True, where=possible)
    mean = jnp.where(jnp.any(possible, axis=-1, keepdims=True), mean, 0.0)
    return jnp.sum(jnp.where(possible, noise - mean, 0.0) * gradient_only(finite), axis=-1)


def coordinate_moments(
    draw: Draw, log_weights: Float[Array, "... k"], f: Float[Array, "... n"]
) -> tuple[Float[Array, "... k"], Float[Array, "... k"]]:
    """(A_i B_i, B_i^2), A the estimated gradient with respect to logit i and B the same for f = 1.

    E[A B] / E[B^2] is the baseline b_i that makes Var(A_i - b_i B_i) least (Weaver & Tao 2001; one coordinate at a
    time, Peters & Schaal 2008). Both expectations can be kept as running averages.
    """
    weights = jax.lax.stop_gradient(jnp.exp(log_weights))
    f = jax.lax.stop_gradient(f)
    weighted = jnp.einsum("...n,...nk->...k", draw.mass * f, jax.lax.stop_gradient(draw.rows))
    estimate = weighted - weights * jnp.sum(draw.mass * f, axis=-1, keepdims=True)
    unit = counts(draw) - weights * jnp.sum(draw.mass, axis=-1, keepdims=True)
    return estimate * unit, jnp.square(unit)


def combine_marginal(
    draw: Draw, f: Float[Array, "... n"], baseline: Float[Array, "..."] | None = None
) -> Float[Array, "..."]:
    """-log sum_n mass_n exp(-f_n) for f = -log p: the negative marginal log-likelihood -log E[p].

    Exact with the draw `every`. With T samples of mass 1/T it is the bound of Burda 2016 on it, and the gradient of

        E[-log 1/T sum_n p_n]  is estimated by  sum_n (L - b_n) grad log a(x_n) + grad L.

    With leave-one-out b_n is the L in which p_n is replaced by the geometric mean of the others: VIMCO (Mnih & Rezende
    2016, arXiv 1602.06725).
    """
    log_mass = jnp.where(draw.mass > 0, jnp.log(jnp.where(draw.mass > 0, draw.mass, 1)), -jnp.inf)
    if draw.complete:  # here the mass is the weight itself, gradient and all
        return -_logsumexp(log_mass + gradient_only(draw.log_prob) - f)
    loss = -_logsumexp(log_mass - f)
    reward = jax.lax.stop_gradient(loss)[..., None]
    if draw.others is not None:
        f_others = jnp.einsum("...nm,...m->...n", draw.others, f)
        replaced = jnp.where(jnp.eye(f.shape[-1], dtype=bool), f_others[..., None], f[..., None, :])
        reward = reward - jax.lax.stop_gradient(-_logsumexp(log_mass[..., None, :] - replaced))
    elif baseline is not None:
        reward = reward - jax.lax.stop_gradient(baseline)[..., None]
    return loss + gradient_only(jnp.sum(reward * draw.log_prob, axis=-1))


def _logsumexp(x: Float[Array, "... n"]) -> Float[Array, "..."]:
    """logsumexp over the last axis; 0 without a gradient where everything is -inf."""
    possible = x > -jnp.inf
    some = jnp.any(possible, axis=-1)
    safe = jnp.where(some[..., None], x, 0.0)
    return jnp.where(some, jax.nn.logsumexp(safe, axis=-1), 0.0)


def kl_divergence(log_q: Float[Array, "... k"], log_p: Float[Array, "... k"]) -> Float[Array, "..."]:
    """KL(q || p) = sum_x q_x (log q_x - log p_x), both over the same keys; 0 for a row without keys."""
    possible = (log_q > -jnp.inf) & (log_p > -jnp.inf)
    q = jnp.where(possible, jnp.exp(jnp.where(possible, log_q, 0.0)), 0.0)
    return jnp.sum(q * (jnp.where(possible, log_q, 0.0) - jnp.where(possible, log_p, 0.0)), axis=-1)


def entropy(weights: Float[Array, "... k"]) -> Float[Array, "..."]:
    """-sum_x a_x log a_x, in nats."""
    positive = weights > 0
    return -jnp.sum(jnp.where(positive, weights * jnp.log(jnp.where(positive, weights, 1)), 0.0), axis=-1)
