"""Information measures of distributions over keys, in nats (entropy, divergence), and log sum exp of an empty sum."""

import jax
import jax.numpy as jnp

from attn_jax.types import Array, Float, wide


def log_sum_exp(logs: Float[Array, "..."], axis: int = -1) -> Float[Array, "..."]:
    """Computes log sum exp over an axis; -inf, with zero gradient, if all terms are -inf."""
    possible = logs > -jnp.inf
    some = jnp.any(possible, axis=axis, keepdims=True)
    # If all terms are -inf, zeros replace them: otherwise the value or the gradient would be NaN.
    found = jax.nn.logsumexp(jnp.where(some, logs, 0.0), axis=axis, where=possible | ~some)
    return jnp.where(jnp.squeeze(some, axis), found, -jnp.inf)


def log_sum_exp_or_0(logs: Float[Array, "... n"]) -> Float[Array, "..."]:
    """Computes log sum exp over the last axis; 0, with zero gradient, if all terms are -inf: without a key, no loss."""
    total = log_sum_exp(logs)
    return jnp.where(total > -jnp.inf, total, 0.0)


def kl_divergence(log_q: Float[Array, "... k"], log_p: Float[Array, "... k"]) -> Float[Array, "..."]:
    """Computes KL(q || p) = sum_x q_x (log q_x - log p_x) over the last axis, in nats; 0 if p has no keys.

    Infinite, with zero gradient, if q > 0 at a key where p = 0 (and p is not zero everywhere).
    """
    log_q, log_p = wide(log_q), wide(log_p)
    possible = (log_q > -jnp.inf) & (log_p > -jnp.inf)
    q = jnp.where(possible, jnp.exp(jnp.where(possible, log_q, 0.0)), 0.0)
    found = jnp.sum(q * (jnp.where(possible, log_q, 0.0) - jnp.where(possible, log_p, 0.0)), axis=-1)
    some = jnp.any(log_p > -jnp.inf, axis=-1)
    lacking = some & jnp.any((log_q > -jnp.inf) & (log_p == -jnp.inf), axis=-1)
    return jnp.where(lacking, jnp.inf, found)


def entropy(weights: Float[Array, "... k"]) -> Float[Array, "..."]:
    """Computes -sum_x a_x log a_x over the last axis, in nats; a weight of 0 contributes 0."""
    weights = wide(weights)
    positive = weights > 0
    return -jnp.sum(jnp.where(positive, weights * jnp.log(jnp.where(positive, weights, 1)), 0.0), axis=-1)
