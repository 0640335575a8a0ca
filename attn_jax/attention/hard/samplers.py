"""Samplers: the rows of weights with which the values are read.

Soft attention reads once, with the weights as the row. Hard attention reads one key at a time, chosen at random, so
the loss is an expectation over the weights a,

    E[f] = sum_x a_x f(value_x).

A sampler chooses the keys at which f is evaluated, and the importance weight of each evaluation:

    sampler(rng, log_weights [..., k]) -> Sample(rows [..., n, k], importance_weights [..., n], log_prob [..., n])
    contexts [..., n, d] = rows @ values
    E[f] is estimated by sum_n importance_weights_n f(context_n)

Every sampler that is not relaxed satisfies E[sum_n importance_weights_n [x_n = x]] = a_x. Therefore the value and the
gradient that estimators.py computes from the sample are unbiased. Instead of the rng these samplers also accept the
outcome of their randomness: the sampled keys, or the points in [0, 1) at which the distribution function is inverted.
A test can then enumerate all outcomes and compute expectations exactly.

A masked key has log weight -inf. Reading handles a row without any key, with rows of zeros.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from attn_jax.types import Array, Float, Int, PRNGKeyArray

LogWeights = Float[Array, "... k"]
Randomness = PRNGKeyArray | Float[Array, "..."] | Int[Array, "..."]  # an rng, or an outcome drawn with it


class Sample(struct.PyTreeNode):
    """Rows of weights to read with, and how to combine the losses at these rows."""

    rows: Float[Array, "... n k"]  # one-hot, the mean, or relaxed: one-hot rows have no gradient
    importance_weights: Float[Array, "... n"]  # of each loss; no gradient
    log_prob: Float[Array, "... n"]  # log a of the sampled key, with its gradient; 0 if no key was sampled
    leave_one_out: Float[Array, "... n n"] | None = None  # row n: how the losses form a baseline for loss n
    sampler: Int[Array, "..."] | None = None  # which of several samplers was chosen, before it sampled
    complete: bool = struct.field(pytree_node=False, default=False)  # the rows are all keys, each once: not random
    independent: bool = struct.field(pytree_node=False, default=False)  # the samples are independent of each other


def one_row(rows: Float[Array, "... k"]) -> Sample:
    """Wraps one row of weights as a Sample with a single evaluation of f."""
    ones = jnp.ones((*rows.shape[:-1], 1), rows.dtype)
    return Sample(rows[..., None, :], ones, jnp.zeros_like(ones), independent=True)


def choose(
    log_weights: LogWeights,
    index: Int[Array, "... n"],
    importance_weights: Float[Array, "... n"],
    leave_one_out: Float[Array, "... n n"] | None = None,
) -> Sample:
    """Makes a Sample of one-hot rows at `index`. A key with weight zero gets importance weight zero."""
    log_prob = jnp.take_along_axis(log_weights, index, axis=-1)
    possible = log_prob > -jnp.inf
    rows = jax.nn.one_hot(index, log_weights.shape[-1], dtype=log_weights.dtype)
    importance_weights = jax.lax.stop_gradient(jnp.where(possible, importance_weights, 0))
    return Sample(rows, importance_weights, jnp.where(possible, log_prob, 0), leave_one_out)


def mean(rng: PRNGKeyArray | None, log_weights: LogWeights) -> Sample:
    """Soft attention: one row, the weights; f(E[value])."""
    return one_row(jnp.exp(log_weights))


def every(rng: Randomness | None, log_weights: LogWeights) -> Sample:
    """Enumeration: each key with its own weight. The exact expectation, with k evaluations of f."""
    num_keys = log_weights.shape[-1]
    index = jnp.broadcast_to(jnp.arange(num_keys), log_weights.shape)
    return choose(log_weights, index, probabilities(log_weights)).replace(complete=True)


def with_replacement(
    rng: Randomness, log_weights: LogWeights, num_samples: int = 1, leave_one_out: bool = False
) -> Sample:
    """T independent samples with importance weights 1/T: REINFORCE (Williams 1992).

    With `leave_one_out` the baseline of a sample is the mean loss of the other T - 1 samples (Kool 2019, "Buy 4
    REINFORCE samples, get a baseline for free!").

    Raises:
        ValueError: `leave_one_out` with a single sample.
    """
    shape = (*log_weights.shape[:-1], num_samples)
    index = jax.random.categorical(rng, log_weights[..., None, :], shape=shape) if is_rng(rng) else rng
    matrix = None
    if leave_one_out:
        _check_leave_one_out(num_samples)
        matrix = (1 - np.eye(num_samples)) / (num_samples - 1)
        matrix = jnp.broadcast_to(jnp.asarray(matrix, log_weights.dtype), (*shape, num_samples))
    sample = choose(log_weights, index, jnp.full(shape, 1 / num_samples, log_weights.dtype), matrix)
    return sample.replace(independent=True)


def stratified(rng: Randomness, log_weights: LogWeights, num_samples: int = 1) -> Sample:
    """One sample from each of T equal parts of the distribution function, with importance weights 1/T."""
    shape = (*log_weights.shape[:-1], num_samples)
    points = (jnp.broadcast_to(jnp.arange(num_samples), shape) + _uniform(rng, shape)) / num_samples
    index = _inverse_cdf(probabilities(log_weights), points)
    return choose(log_weights, index, jnp.full(shape, 1 / num_samples, log_weights.dtype))


def systematic(rng: Randomness, log_weights: LogWeights, num_samples: int = 1) -> Sample:
    """Stratified sampling with one random number: all T points have the same position within their part."""
    shape = (*log_weights.shape[:-1], num_samples)
    points = (jnp.broadcast_to(jnp.arange(num_samples), shape) + _uniform(rng, (*shape[:-1], 1))) / num_samples
    index = _inverse_cdf(probabilities(log_weights), points)
    return choose(log_weights, index, jnp.full(shape, 1 / num_samples, log_weights.dtype))


def sum_and_sample(rng: Randomness, log_weights: LogWeights, num_samples: int = 2) -> Sample:
    """Sums the k - 1 most probable keys with their weights, and samples one other key with the weight of the rest.

    Liu 2019 (arXiv 1810.04777). Exact if the rest has no weight: for sparsemax weights with at most k keys in their
    support it is sparse marginalization (Correia 2020, arXiv 2007.01919).

    Raises:
        ValueError: more samples than keys.
    """
    _check_distinct(num_samples, log_weights)
    p = probabilities(log_weights)
    largest = jax.lax.top_k(jax.lax.stop_gradient(log_weights), num_samples - 1)[1]
    rest = _without(p, largest)
    point = _uniform(rng, (*p.shape[:-1], 1))
    index = jnp.concatenate([largest, _inverse_cdf(rest, point)], axis=-1)
    weight_of_rest = jnp.sum(rest, -1, keepdims=True)
    return choose(log_weights, index, jnp.concatenate([jnp.take_along_axis(p, largest, -1), weight_of_rest], axis=-1))


def stochastic_sum_and_sample(rng: Randomness, log_weights: LogWeights, num_samples: int = 2) -> Sample:
    """`sum_and_sample`, with the first k - 1 keys sampled without replacement (Kool 2020, arXiv 2002.06043).

    Raises:
        ValueError: more samples than keys.
    """
    _check_distinct(num_samples, log_weights)
    p, index = probabilities(log_weights), _gumbel_top_k(rng, log_weights, num_samples)
    first = index[..., :-1]
    weight_of_rest = jnp.sum(_without(p, first), -1, keepdims=True)
    return choose(log_weights, index, jnp.concatenate([jnp.take_along_axis(p, first, -1), weight_of_rest], axis=-1))


def unordered_set(
    rng: Randomness, log_weights: LogWeights, num_samples: int = 2, leave_one_out: bool = False
) -> Sample:
    """A set S of k different keys, sampled without replacement; the estimate is averaged over their order.

    The importance weight of key s is p(s) R(S, s) with the ratio R(S, s) = P(S | s was first) / P(S): the one-sample
    estimator, averaged over which key of S came first (Kool 2020, arXiv 2002.06043). It is computed in log space, so it
    stays finite when one key has nearly all the weight. `leave_one_out` uses the baseline of the same paper.

    Raises:
        ValueError: more samples than keys, or `leave_one_out` with a single sample.
    """
    _check_distinct(num_samples, log_weights)
    log_p = jax.lax.stop_gradient(log_weights)
    index = _gumbel_top_k(rng, log_weights, num_samples)
    in_set = jnp.sum(jax.nn.one_hot(index, log_p.shape[-1], dtype=log_p.dtype), axis=-2) > 0
    log_outside = jax.nn.logsumexp(jnp.where(in_set, -jnp.inf, log_p), axis=-1)
    log_chosen = jnp.take_along_axis(log_p, index, axis=-1)
    # With fewer possible keys than samples the set contains all of them and nothing is random: the weights are exact.
    is_whole = log_chosen[..., -1] == -jnp.inf
    p = probabilities(jnp.take_along_axis(log_weights, index, axis=-1))
    log_chosen = jnp.where(is_whole[..., None], 0.0, log_chosen)
    log_rest = log_set_probabilities(log_chosen, jnp.where(is_whole, 0.0, log_outside))
    log_ratio = log_rest.after_one - log_rest.after_none[..., None]  # log R(S, s)
    weights = jnp.where(is_whole[..., None], p, jnp.exp(log_chosen + log_ratio))
    matrix = None
    if leave_one_out:
        _check_leave_one_out(num_samples)
        log_pair_ratio = log_rest.after_two - log_rest.after_one[..., None]  # log R(S without s, s')
        log_pair_ratio = jnp.where(jnp.eye(num_samples, dtype=bool), 0.0, log_pair_ratio)
        matrix = jnp.exp(log_chosen[..., None, :] + log_pair_ratio)
        matrix = jnp.where(is_whole[..., None, None], p[..., None, :], matrix)
    return choose(log_weights, index, weights, matrix)


class LogSetProbabilities(NamedTuple):
    """log P(the rest of a set S is sampled next, without replacement), given which keys of S were sampled already."""

    after_none: Float[Array, "..."]  # log P(S)
    after_one: Float[Array, "... k"]  # given one key
    after_two: Float[Array, "... k k"]  # given two keys; diagonal: the same key twice, equal to after_one


def log_set_probabilities(log_p: Float[Array, "... k"], log_outside: Float[Array, "..."]) -> LogSetProbabilities:
    """Computes the probability of a set of keys under sampling without replacement, by recursion over its subsets.

    V(C) is the probability that, after the keys C of S, the next k - |C| sampled keys are the rest of S:

        V(C) = sum over r in S - C of p_r V(C + r) / (1 - P(C)),    V(S) = 1,

    computed from the full set down to the empty one.

    Args:
        log_p: log probabilities of the k keys in S.
        log_outside: log of the total probability of all keys outside of S.
    """
    k = log_p.shape[-1]
    bit = 1 << np.arange(k)
    subsets = np.arange(2**k)  # C as a binary number: bit r is set if C contains key r
    has = (subsets[:, None] & bit) > 0
    log_left = jnp.where(has, -jnp.inf, log_p[..., None, :])
    log_rest = jnp.logaddexp(jax.nn.logsumexp(log_left, axis=-1), log_outside[..., None])  # no subtraction from 1
    log_v = jnp.where(jnp.broadcast_to(has.all(axis=-1), log_rest.shape), jnp.zeros_like(log_rest), -jnp.inf)
    for size in reversed(range(k)):
        of_size = np.flatnonzero(has.sum(axis=-1) == size)
        following = log_v[..., of_size[:, None] | bit]
        first = jax.nn.logsumexp(log_left[..., of_size, :] + following, axis=-1)
        log_v = log_v.at[..., of_size].set(first - log_rest[..., of_size])
    return LogSetProbabilities(log_v[..., 0], log_v[..., bit], log_v[..., bit[:, None] | bit])


def optimal_resampling(rng: Randomness, log_weights: LogWeights, num_samples: int = 2) -> Sample:
    """k distinct keys: keys with weight above a threshold c keep it, systematic samples of the rest get weight c.

    c solves sum_i min(1, p_i / c) = k, so f is never evaluated twice at a key. These importance weights have the least
    mean squared error, sum_i E (weight_i - p_i)^2, of all unbiased importance weights on k keys (Fearnhead & Clifford
    2003, JRSS B 65). The number of kept keys follows from the weights: a flat distribution is sampled systematically, a
    peaked distribution is summed except for its tail.

    Raises:
        ValueError: more samples than keys.
    """
    _check_distinct(num_samples, log_weights)
    p = probabilities(log_weights)
    rank = jnp.broadcast_to(jnp.arange(num_samples), (*p.shape[:-1], num_samples))
    largest = jnp.argsort(-p, axis=-1)[..., :num_samples]
    p_of_largest = jnp.take_along_axis(p, largest, axis=-1)
    p_outside = jnp.sum(_without(p, largest), axis=-1, keepdims=True)
    # Entry m is the probability that is left when the m largest keys are kept.
    p_left = jnp.cumsum(p_of_largest[..., ::-1], axis=-1)[..., ::-1] + p_outside
    # The first m for which the largest remaining key is at most c = p_left / (k - m); the last m always satisfies this.
    num_kept = jnp.argmax(p_of_largest * (num_samples - rank) <= p_left, axis=-1)[..., None]
    num_sampled = num_samples - num_kept
    threshold = jnp.take_along_axis(p_left, num_kept, axis=-1) / num_sampled
    is_kept = rank < num_kept
    kept_keys = jnp.sum(jax.nn.one_hot(largest, p.shape[-1], dtype=p.dtype) * is_kept[..., None], axis=-2)
    points = (_uniform(rng, num_kept.shape) + (rank - num_kept)) / num_sampled
    sampled = _inverse_cdf(p * (1 - kept_keys), points)
    index = jnp.where(is_kept, largest, sampled)
    return choose(log_weights, index, jnp.where(is_kept, p_of_largest, threshold))


def adaptive(
    rng: Randomness, log_weights: LogWeights, num_samples: int = 2, probability: float | Float[Array, ""] = 0.5
) -> Sample:
    """Samples each row by `optimal_resampling` with this probability, else by `sum_and_sample`.

    Which one has less variance depends on the weights and the losses. A probability that does not depend on the sample
    keeps the estimates unbiased: baselines.Adaptive learns it from earlier samples. Instead of the rng it accepts two
    points, [..., 2]: one for the choice, one for the sampler.

    Raises:
        ValueError: more samples than keys.
    """
    points = _uniform(rng, (*log_weights.shape[:-1], 2))
    second = points[..., 0] >= probability
    samples = (sampler(points[..., 1:], log_weights, num_samples) for sampler in (optimal_resampling, sum_and_sample))
    chosen = jax.tree.map(
        lambda a, b: jnp.where(second.reshape(second.shape + (1,) * (a.ndim - second.ndim)), b, a), *samples
    )
    return chosen.replace(sampler=second.astype(jnp.int32))


def top(rng: PRNGKeyArray | None, log_weights: LogWeights, num_samples: int = 1) -> Sample:
    """Averages the k values with the largest weights (all values, if there are fewer); the choice has no gradient.

    With the norm score it is the hard attention of Malinowski 2018 (arXiv 1808.00300): the k values of largest norm.
    """
    best, index = jax.lax.top_k(jax.lax.stop_gradient(log_weights), min(num_samples, log_weights.shape[-1]))
    rows = jax.nn.one_hot(index, log_weights.shape[-1], dtype=log_weights.dtype)
    rows = jnp.sum(rows * (best > -jnp.inf)[..., None], axis=-2)
    return one_row(rows / jnp.maximum(jnp.sum(rows, axis=-1, keepdims=True), 1))


def is_rng(rng: Randomness) -> bool:
    """Tells whether the argument is a PRNG key, not an outcome."""
    return jnp.issubdtype(rng.dtype, jax.dtypes.prng_key)


def _uniform(rng: Randomness, shape: tuple[int, ...]) -> Float[Array, "..."]:
    return jax.random.uniform(rng, shape, jnp.float32) if is_rng(rng) else rng


def probabilities(log_weights: LogWeights) -> Float[Array, "... k"]:
    """Computes the weights, without a gradient."""
    return jnp.exp(jax.lax.stop_gradient(log_weights))


def _without(p: Float[Array, "... k"], index: Int[Array, "... n"]) -> Float[Array, "... k"]:
    """Sets the probabilities of the keys at `index` to zero."""
    return p * (1 - jnp.sum(jax.nn.one_hot(index, p.shape[-1], dtype=p.dtype), axis=-2))


def _inverse_cdf(p: Float[Array, "... k"], points: Float[Array, "... n"]) -> Int[Array, "... n"]:
    """Finds the first key at which the cumulative p exceeds each point times sum(p); p need not sum to one."""
    cdf = jnp.cumsum(p, axis=-1)
    count = jnp.sum(cdf[..., None, :] <= points[..., None] * cdf[..., None, -1:], axis=-1)
    last = p.shape[-1] - 1 - jnp.argmax(p[..., ::-1] > 0, axis=-1)  # point * sum(p) may round up to sum(p)
    return jnp.minimum(count, last[..., None])


def _gumbel_top_k(rng: Randomness, log_weights: LogWeights, num_samples: int) -> Int[Array, "... n"]:
    """Samples n different keys, in the order of sampling them one by one without replacement (Vieira 2014)."""
    if not is_rng(rng):
        return rng
    noise = jax.random.gumbel(rng, log_weights.shape, log_weights.dtype)
    return jax.lax.top_k(jax.lax.stop_gradient(log_weights) + noise, num_samples)[1]


def _check_distinct(num_samples: int, log_weights: LogWeights) -> None:
    if num_samples > (num_keys := log_weights.shape[-1]):
        raise ValueError(
            f"num_samples is {num_samples}, but there are {num_keys} keys to sample without replacement; expected at "
            f"most {num_keys}"
        )


def _check_leave_one_out(num_samples: int) -> None:
    if num_samples < 2:
        raise ValueError(f"leave_one_out with num_samples {num_samples}: no other sample is left; expected at least 2")
