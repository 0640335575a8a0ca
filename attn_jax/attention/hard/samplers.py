"""Draws: with which rows of weights the values are read.

Soft attention reads once, with the weights themselves. Hard attention reads one key at a time; which one is
random, so the loss is an expectation over the weights a,

    E[f] = sum_x a_x f(value_x),

and a *draw* says at which keys f is evaluated and what each evaluation counts:

    draw(rng, log_weights [..., k]) -> Draw(rows [..., n, k], mass [..., n], log_prob [..., n], others)
    contexts [..., n, d] = rows @ values,    E[f] is estimated by sum_n mass_n f(context_n)

Every draw that is not relaxed keeps one promise, E[sum_n mass_n [x_n = x]] = a_x, from which it follows that the
value and the gradient made of it in estimators.py are unbiased. In place of the rng a draw of this kind also takes
the outcome of its randomness, the sampled keys or the points in [0, 1), so that enumeration.py can go through all of
them and prove it. A masked key has log_weight -inf; that a row without any key reads zeros is up to a Reading.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from attn_jax.errors import UserError
from attn_jax.types import Array, Float, Int, PRNGKeyArray

LogWeights = Float[Array, "... k"]
Outcome = PRNGKeyArray | Float[Array, "..."] | Int[Array, "..."]


@struct.dataclass
class Draw:
    """The rows to read with, and how their losses are put together."""

    rows: Float[Array, "... n k"]  # one-hot, the mean, or relaxed: only these last two carry a gradient
    mass: Float[Array, "... n"]  # what each loss counts; no gradient
    log_prob: Float[Array, "... n"]  # log a of the chosen key, with its gradient; 0 where no key was chosen
    others: Float[Array, "... n n"] | None = None  # row n: how the losses make up a baseline for the n-th one
    complete: bool = struct.field(pytree_node=False, default=False)  # the rows are all keys, each once: nothing random


def one_row(rows: Float[Array, "... k"]) -> Draw:
    """A single evaluation of f, at these weights."""
    ones = jnp.ones((*rows.shape[:-1], 1), rows.dtype)
    return Draw(rows[..., None, :], ones, jnp.zeros_like(ones))


def choose(log_weights: LogWeights, index: Int[Array, "... n"], mass: Float[Array, "... n"], others=None) -> Draw:
    """One-hot rows at `index`; a key that cannot be chosen counts nothing."""
    log_prob = jnp.take_along_axis(log_weights, index, axis=-1)
    possible = log_prob > -jnp.inf
    rows = jax.nn.one_hot(index, log_weights.shape[-1], dtype=log_weights.dtype)
    mass = jnp.where(possible, mass, 0)
    return Draw(rows, jax.lax.stop_gradient(mass), jnp.where(possible, log_prob, 0), others)


def _is_rng(rng: Outcome) -> bool:
    return jnp.issubdtype(rng.dtype, jax.dtypes.prng_key)


def _uniform(rng: Outcome, shape: tuple[int, ...]) -> Float[Array, "..."]:
    return jax.random.uniform(rng, shape) if _is_rng(rng) else rng


def _probabilities(log_weights: LogWeights) -> Float[Array, "... k"]:
    return jnp.exp(jax.lax.stop_gradient(log_weights))


def _check(num_samples: int, log_weights: LogWeights) -> None:
    if num_samples > log_weights.shape[-1]:
        raise UserError(
            f"{num_samples} samples without replacement from {log_weights.shape[-1]} candidates; "
            f"expected model.attention.num_samples of at most {log_weights.shape[-1]}"
        )


def _without(p: Float[Array, "... k"], index: Int[Array, "... n"]) -> Float[Array, "... k"]:
    """The probabilities of the other keys; 0 at those of `index`."""
    return p * (1 - jnp.sum(jax.nn.one_hot(index, p.shape[-1], dtype=p.dtype), axis=-2))


def _check_leave_one_out(num_samples: int) -> None:
    if num_samples < 2:
        raise UserError(
            f"no other sample to leave one out of {num_samples}; expected model.attention.num_samples of at least 2"
        )


def mean(rng: PRNGKeyArray | None, log_weights: LogWeights) -> Draw:
    """The weights themselves: soft attention, f(E[value])."""
    return one_row(jnp.exp(log_weights))


def every(rng: Outcome | None, log_weights: LogWeights) -> Draw:
    """Each key, with its weight as mass: the exact expectation, for k evaluations of f."""
    num_keys = log_weights.shape[-1]
    index = jnp.broadcast_to(jnp.arange(num_keys), log_weights.shape)
    return choose(log_weights, index, _probabilities(log_weights)).replace(complete=True)


def with_replacement(rng: Outcome, log_weights: LogWeights, num_samples: int = 1, leave_one_out: bool = False) -> Draw:
    """T independent samples of mass 1/T: REINFORCE (Williams 1992).

    With `leave_one_out` the baseline of a sample is the mean loss of the other T - 1 (Kool 2019, "Buy 4 REINFORCE
    samples, get a baseline for free!").
    """
    shape = (*log_weights.shape[:-1], num_samples)
    index = jax.random.categorical(rng, log_weights[..., None, :], shape=shape) if _is_rng(rng) else rng
    others = None
    if leave_one_out:
        _check_leave_one_out(num_samples)
        others = (1 - np.eye(num_samples)) / (num_samples - 1)
        others = jnp.broadcast_to(jnp.asarray(others, log_weights.dtype), (*shape, num_samples))
    return choose(log_weights, index, jnp.full(shape, 1 / num_samples, log_weights.dtype), others)


def _inverse_cdf(p: Float[Array, "... k"], u: Float[Array, "... n"]) -> Int[Array, "... n"]:
    """The first key at which the cumulated probability (p need not sum to one) exceeds u of the whole."""
    cdf = jnp.cumsum(p, axis=-1)
    count = jnp.sum(cdf[..., None, :] <= u[..., None] * cdf[..., None, -1:], axis=-1)
    last = p.shape[-1] - 1 - jnp.argmax(p[..., ::-1] > 0, axis=-1)  # u * whole may round up to the whole
    return jnp.minimum(count, last[..., None])


def stratified(rng: Outcome, log_weights: LogWeights, num_samples: int = 1) -> Draw:
    """One sample from each of T equal parts of the distribution function, of mass 1/T."""
    shape = (*log_weights.shape[:-1], num_samples)
    u = (jnp.arange(num_samples) + _uniform(rng, shape)) / num_samples
    index = _inverse_cdf(_probabilities(log_weights), u)
    return choose(log_weights, index, jnp.full(shape, 1 / num_samples, log_weights.dtype))


def systematic(rng: Outcome, log_weights: LogWeights, num_samples: int = 1) -> Draw:
    """As stratified, but all T points have the same place within their part."""
    shape = (*log_weights.shape[:-1], num_samples)
    u = (jnp.arange(num_samples) + _uniform(rng, (*shape[:-1], 1))) / num_samples
    index = _inverse_cdf(_probabilities(log_weights), u)
    return choose(log_weights, index, jnp.full(shape, 1 / num_samples, log_weights.dtype))


def sum_and_sample(rng: Outcome, log_weights: LogWeights, num_samples: int = 2) -> Draw:
    """The k - 1 most probable keys, each with its weight, and one sample from the rest, with the mass of the rest.

    Liu 2019 (arXiv 1810.04777). Exact once the rest is empty: over the support of sparsemax this is
    sparse marginalization (Correia 2020, arXiv 2007.01919) while the support has at most k keys.
    """
    _check(num_samples, log_weights)
    p = _probabilities(log_weights)
    top = jax.lax.top_k(jax.lax.stop_gradient(log_weights), num_samples - 1)[1]
    rest = _without(p, top)
    u = _uniform(rng, (*p.shape[:-1], 1))
    index = jnp.concatenate([top, _inverse_cdf(rest, u)], axis=-1)
    mass = jnp.concatenate([jnp.take_along_axis(p, top, -1), jnp.sum(rest, -1, keepdims=True)], axis=-1)
    return choose(log_weights, index, mass)


def _gumbel_top_k(rng: Outcome, log_weights: LogWeights, num_samples: int) -> Int[Array, "... n"]:
    """n different keys, in the order of drawing them one by one without replacement (Vieira 2014)."""
    if not _is_rng(rng):
        return rng
    noise = jax.random.gumbel(rng, log_weights.shape, log_weights.dtype)
    return jax.lax.top_k(jax.lax.stop_gradient(log_weights) + noise, num_samples)[1]


def stochastic_sum_and_sample(rng: Outcome, log_weights: LogWeights, num_samples: int = 2) -> Draw:
    """As sum_and_sample, with the k - 1 keys drawn without replacement (Kool 2020, arXiv 2002.06043)."""
    _check(num_samples, log_weights)
    p, index = _probabilities(log_weights), _gumbel_top_k(rng, log_weights, num_samples)
    first = index[..., :-1]
    rest = _without(p, first)
    mass = jnp.concatenate([jnp.take_along_axis(p, first, -1), jnp.sum(rest, -1, keepdims=True)], axis=-1)
    return choose(log_weights, index, mass)


def unordered_set(rng: Outcome, log_weights: LogWeights, num_samples: int = 2, leave_one_out: bool = False) -> Draw:
    """k different keys, drawn without replacement and then taken as a set S (Kool 2020, arXiv 2002.06043).

    mass_s = p(s) R(S, s) with the leave-one-out ratio R(S, s) = P(S | s was first) / P(S): the
    estimator of one sample, averaged over which of S came first. All in log space, so that it stays finite when
    one key has nearly all the weight. `leave_one_out` is their built-in baseline.
    """
    _check(num_samples, log_weights)
    k = num_samples
    log_p = jax.lax.stop_gradient(log_weights)
    index = _gumbel_top_k(rng, log_weights, k)
    chosen = jnp.take_along_axis(log_p, index, axis=-1)
    outside = jnp.where(jnp.sum(jax.nn.one_hot(index, log_p.shape[-1]), axis=-2) > 0, -jnp.inf, log_p)
    log_outside = jax.nn.logsumexp(outside, axis=-1)
    whole = chosen[..., -1] == -jnp.inf  # fewer keys than samples: the set is all there is, as in `every`
    chosen = jnp.where(whole[..., None], 0.0, chosen)
    log_first = log_first_ratios(chosen, jnp.where(whole, 0.0, log_outside))
    ratios, pairs = log_first[1] - log_first[0][..., None], log_first[2] - log_first[1][..., None]
    p = _probabilities(jnp.take_along_axis(log_weights, index, axis=-1))
    mass = jnp.where(whole[..., None], p, jnp.exp(chosen + ratios))
    others = None
    if leave_one_out:
        _check_leave_one_out(num_samples)
        eye = jnp.eye(k, dtype=bool)
        others = jnp.exp(chosen[..., None, :] + jnp.where(eye, 0.0, pairs))
        others = jnp.where(whole[..., None, None], p[..., None, :], others)
    return choose(log_weights, index, mass, others)


def log_first_ratios(log_p: Float[Array, "... k"], log_outside: Float[Array, "..."]) -> tuple[Array, Array, Array]:
    """log V(C) for C empty [...], of one key [..., k] and of two [..., k, k] of a set S of k keys with log_p.

    V(C) is the probability that, with C taken away, the next k - |C| keys drawn without replacement are the rest of
    S. By the first of them: V(C) = sum over r in S - C of p_r V(C + r) / (1 - P(C)), V(S) = 1, from the full set
    down to the empty one; `log_outside` is the log probability of all keys that are not in S.
    """
    k = log_p.shape[-1]
    bit = 1 << np.arange(k)
    subsets = np.arange(2**k)  # C as a number: bit r tells whether it has key r
    has = (subsets[:, None] & bit) > 0
    log_left = jnp.where(has, -jnp.inf, log_p[..., None, :])
    log_rest = jnp.logaddexp(jax.nn.logsumexp(log_left, axis=-1), log_outside[..., None])  # no subtraction from 1
    log_v = jnp.broadcast_to(jnp.where(has.all(axis=-1), 0.0, -jnp.inf), log_rest.shape).astype(log_p.dtype)
    for size in reversed(range(k)):
        of_size = np.flatnonzero(has.sum(axis=-1) == size)
        following = log_v[..., of_size[:, None] | bit]
        first = jax.nn.logsumexp(log_left[..., of_size, :] + following, axis=-1)
        log_v = log_v.at[..., of_size].set(first - log_rest[..., of_size])
    return log_v[..., 0], log_v[..., bit], log_v[..., bit[:, None] | bit]


def optimal_resampling(rng: Outcome, log_weights: LogWeights, num_samples: int = 2) -> Draw:
    """k different keys: those with a weight above a threshold c count their weight, systematic samples of the rest c.

    c solves sum_i min(1, p_i / c) = k, so that no evaluation of f is spent twice; of all unbiased masses on k keys
    these have the least mean squared error, sum_i E (mass_i - p_i)^2 (Fearnhead & Clifford 2003, JRSS B 65). How many
    keys are summed and how many are sampled follows the concentration of the weights by itself: a flat distribution
    is sampled systematically, a peaked one is summed but for its tail.
    """
    _check(num_samples, log_weights)
    k, p = num_samples, _probabilities(log_weights)
    order = jnp.argsort(-p, axis=-1)[..., :k]
    top = jnp.take_along_axis(p, order, axis=-1)
    outside = jnp.sum(_without(p, order), axis=-1, keepdims=True)
    rest = jnp.cumsum(top[..., ::-1], axis=-1)[..., ::-1] + outside  # without the m most probable keys, m = 0 ... k - 1
    m = jnp.argmax(top * (k - jnp.arange(k)) <= rest, axis=-1)[..., None]  # the last m always qualifies
    c = jnp.take_along_axis(rest, m, axis=-1) / (k - m)
    rank = jnp.arange(k)
    kept = rank < m
    is_kept = jnp.sum(jax.nn.one_hot(order, p.shape[-1], dtype=p.dtype) * kept[..., None], axis=-2)
    u = (_uniform(rng, m.shape) + (rank - m)) / (k - m)
    sampled = _inverse_cdf(p * (1 - is_kept), u)
    return choose(log_weights, jnp.where(kept, order, sampled), jnp.where(kept, top, c))


def top(rng: PRNGKeyArray | None, log_weights: LogWeights, num_samples: int = 1) -> Draw:
    """The mean of the k values with the largest weights (of all, if there are fewer): no gradient through the choice.

    With the norm score it is the hard attention of Malinowski 2018 (arXiv 1808.00300): the k values of largest norm.
    """
    best, index = jax.lax.top_k(jax.lax.stop_gradient(log_weights), min(num_samples, log_weights.shape[-1]))
    rows = jnp.sum(jax.nn.one_hot(index, log_weights.shape[-1]) * (best > -jnp.inf)[..., None], axis=-2)
    return one_row(rows / jnp.maximum(jnp.sum(rows, axis=-1, keepdims=True), 1))
