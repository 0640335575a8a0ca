"""Coupled samples: two antithetic samples of the same weights instead of two independent samples.

For independent keys x, y the leave-one-out estimate of two samples is (f_x - f_y) (s_x - s_y) / 2 with s = grad log a.
For keys with another joint probability P(x, y), each still sampled with the weights a, the estimate becomes

    W (f_x - f_y) (s_x - s_y) / 2,    W = a_x a_y / P(x, y)

and is unbiased if P(x, y) > 0 for all x != y with weights above 0 (Dong, Mnih & Tucker 2021, arXiv 2106.08056). A pair
x = y contributes nothing, so a coupling that makes such pairs rare wastes fewer evaluations of f.
"""

import jax
import jax.numpy as jnp

from attn_jax.attention.hard.samplers import LogWeights, Randomness, Sample, choose, is_rng, probabilities
from attn_jax.types import Array, Float, Int


def coupled(rng: Randomness, log_weights: LogWeights) -> Sample:
    """Samples two keys by antithetic stick breaking, in ascending order of the weights.

    Sample x is the first key k with u_k < s_k = a_k / R_k, where R_k is the sum of the weights from k on. Sample y is
    the first key with 1 - u_k < s_k. In ascending order s_k <= 1/2 except for the last key, so x = y is possible only
    at the last key. If i is the first key of x and y in this order, and j the second one,

        P(x, y) = prod_{k < i} (1 - 2 s_k) s_i a_j / R_{i+1},    W = R_i R_{i+1} / prod_{k < i} (1 - 2 s_k).

    Instead of the rng it accepts the two keys, [..., 2].
    """
    p = probabilities(log_weights)
    order = jnp.argsort(p, axis=-1)
    ascending = jnp.take_along_axis(p, order, axis=-1)
    rest = jnp.cumsum(ascending[..., ::-1], axis=-1)[..., ::-1]  # R_k
    share = ascending / jnp.where(rest > 0, rest, 1)
    if is_rng(rng):
        u = jax.random.uniform(rng, p.shape, p.dtype)
        place = jnp.stack([_first(u, share), _first(1 - u, share)], axis=-1)
    else:  # places of the given keys in ascending order
        place = jnp.take_along_axis(jnp.argsort(order, axis=-1), rng, axis=-1)
    index = jnp.take_along_axis(order, place, axis=-1)
    # log prod_{k < i} (1 - 2 s_k): up to the third largest key s_k <= 1/3; the two largest are not before i if x != y.
    counted = jnp.arange(p.shape[-1]) < p.shape[-1] - 2
    log_both = jnp.log1p(-2 * jnp.where(counted, share, 0.0))
    log_both = jnp.cumsum(log_both, axis=-1) - log_both
    next_rest = jnp.concatenate([rest[..., 1:], jnp.zeros_like(rest[..., :1])], axis=-1)
    ratio = rest * next_rest * jnp.exp(-log_both)
    first = jnp.min(place, axis=-1, keepdims=True)
    w = jnp.take_along_axis(ratio, first, axis=-1)[..., None]
    one = jnp.broadcast_to(jnp.eye(2, dtype=p.dtype), (*w.shape[:-2], 2, 2))
    # Row n of the matrix, times the losses, is subtracted from f_n; the difference is W (f_n - f_other).
    matrix = (1 - w) * one + w * (1 - one)
    return choose(log_weights, index, jnp.full(index.shape, 0.5, p.dtype), matrix)


def _first(u: Float[Array, "... k"], share: Float[Array, "... k"]) -> Int[Array, "..."]:
    """Returns the index of the first stick that breaks; the last one always does."""
    breaks = (u < share).at[..., -1].set(True)
    return jnp.argmax(breaks, axis=-1)
