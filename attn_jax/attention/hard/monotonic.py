"""Monotonic and Markov attention: the weights of a step depend on the position attended to at the step before.

Two families, both exact and without sampling:

- Latent positions, marginalized in the loss by the forward algorithm of a hidden Markov model whose states are the
  source positions: Wu, Shapiro & Cotterell 2018 (arXiv 1808.10024) with independent positions, Wu & Cotterell 2019
  (arXiv 1905.06319) with monotonic positions, of order 0 (the step before only limits the next position) or order 1
  (its distance is scored as well). `log_transition` computes p(position | position before), `predict` and `update` do
  one step, `forward` all steps of a known target.
- Monotonic attention in expectation (Raffel 2017, arXiv 1704.00784): move right, stop at each key with some
  probability. `expected_weights` is for training, `hard_weights` is the process whose expectation it is.

Axis s is the source position now, j the source position before (both include masked keys), t target time, w the
jumps. A mask is True where a key may be attended to. Every other key has probability 0 and log probability -inf, and
its score, even NaN, has no effect. There are no NaN and no infinite gradients, even in a row without any key.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.attention import loops
from attn_jax.attention.information import log_sum_exp
from attn_jax.attention.masks import check_mask, checked_masks, with_axes
from attn_jax.types import Array, Bool, Float, PRNGKeyArray, wide, widest


class ForwardResult(struct.PyTreeNode):
    """Result of `forward` for each target step: its loss and two distributions over the source positions."""

    nll: Float[Array, "... t"]  # -log p(y_t | y_<t), positions marginalized; the sum over t is the loss of the sequence
    log_predictive: Float[Array, "... t s"]  # log p(a_t | y_<t), before the token is seen: for decoding
    log_posterior: Float[Array, "... t s"]  # log p(a_t | y_<=t), after the token is seen


@checked_masks
def initial_weights(mask: Bool[Array, "... s"]) -> Float[Array, "... s"]:
    """Weights before the first step: one at position 0, masked or not. Their log is the first input of `predict`."""
    return jnp.broadcast_to(jax.nn.one_hot(0, mask.shape[-1], dtype=jnp.float32), mask.shape)


@checked_masks
def log_transition(
    scores: Float[Array, "... s"],
    mask: Bool[Array, "... s"],
    monotonic: bool = False,
    jumps: Float[Array, "... w"] | None = None,
    first: Bool[Array, "..."] | None = None,
) -> Float[Array, "... j s"]:
    """Computes log p(a_t = i | a_{t-1} = j) = log_softmax_i(scores_i + jump(i - j)) over the allowed i.

    Args:
        scores: scores of each source position; target time is one of the leading axes.
        mask: the allowed positions, with as many axes as the scores, [..., 1, s] if the same for all steps; or [s].
        monotonic: allow i >= j only (Wu & Cotterell 2019, order 0). If False and without jumps, positions are
            independent (Wu 2018), and axis j has size 1.
        jumps: scores of the distance i - j (order 1), from 0 to w - 1 if monotonic, else from -c to c with
            w = 2 c + 1; larger distances have the last score.
        first: True for steps without a step before, which jumps and order do not affect. If None, no step is first,
            and `forward` starts from position 0.

    Raises:
        ValueError: an even number of jumps in both directions, which has no middle; the mask is not boolean, or does
            not fit.
    """
    check_mask(mask, scores.shape, axes=1)
    size = scores.shape[-1]
    positions = jnp.arange(size)
    distance = positions[None] - positions[:, None]  # [j, i]
    logits = wide(scores)[..., None, :]
    allowed = with_axes(mask[..., None, :], logits.ndim)
    free = jnp.zeros((), bool) if first is None else first[..., None, None]
    if jumps is not None:
        width = jumps.shape[-1]
        if not monotonic and width % 2 == 0:
            raise ValueError(f"jumps that go both ways need an odd width, got {width}")
        index = jnp.clip(distance + (0 if monotonic else width // 2), 0, width - 1)
        logits = logits + jnp.where(free, 0.0, with_axes(jnp.take(wide(jumps), index, axis=-1), logits.ndim))
    if monotonic:
        allowed = allowed & (free | (with_axes(distance, logits.ndim) >= 0))
    return _log_softmax(logits, allowed)


def predict(log_posterior: Float[Array, "... s"], log_transition: Float[Array, "... j s"]) -> Float[Array, "... s"]:
    """Computes log p(a_t = i | y_<t) = log sum_j p(a_t = i | a_{t-1} = j) p(a_{t-1} = j | y_<t)."""
    if log_transition.shape[-2] == 1:  # does not depend on j
        return jnp.broadcast_to(log_transition[..., 0, :], log_posterior.shape)
    return log_sum_exp(log_posterior[..., :, None] + log_transition, axis=-2)


def update(
    log_predictive: Float[Array, "... s"], nll: Float[Array, "... s"]
) -> tuple[Float[Array, "..."], Float[Array, "... s"]]:
    """Computes the loss of a token, -log sum_i p(a_t = i | y_<t) exp(-nll_i), and log p(a_t | y_<=t).

    nll_i is the token's negative log-probability given position i. With an axis of candidates,
    update(log_predictive[..., None, :], nll [..., v, s]), the first result is the loss of each word v, for decoding.
    A row without any key makes the token impossible: infinite loss, zero gradient.
    """
    possible = log_predictive > -jnp.inf
    # The inner `where` keeps NaN and inf of masked keys out of the gradient as well.
    joint = jnp.where(possible, log_predictive - jnp.where(possible, wide(nll), 0.0), -jnp.inf)
    total = log_sum_exp(joint, axis=-1)
    return -total, joint - _finite(total)[..., None]


def forward(
    log_transitions: Float[Array, "... t j s"], nll: Float[Array, "... t s"], real: Bool[Array, "... t"]
) -> ForwardResult:
    """Runs the forward algorithm: alpha_t(i) = exp(-nll_t(i)) sum_j p(a_t = i | a_{t-1} = j) alpha_{t-1}(j).

    alpha is normalized after each step, and the negative logarithms of the divisors are the losses of the tokens. Their
    sum is -log sum over all paths a of prod_t p(a_t | a_{t-1}) exp(-nll_t(a_t)) (Wu & Cotterell 2019). It takes
    O(t s^2) time and starts from `initial_weights`; entry 0 of the transitions is used like the others, and does not
    depend on the start if `log_transition` was called with `first`.

    A step that is not `real` has loss 0 for any nll, and is skipped: its posterior is its predictive distribution.
    """
    nll = jnp.where(real[..., None], nll, 0.0)
    if log_transitions.shape[-2] == 1:  # independent steps, nothing to carry
        log_predictive = log_transitions[..., 0, :]
    else:

        def step(log_posterior, inputs):
            log_transition, nll, real = inputs
            log_predictive = predict(log_posterior, log_transition)
            _, seen = update(log_predictive, nll)
            return jnp.where(real[..., None], seen, log_posterior), log_predictive

        start = jnp.log(initial_weights(jnp.ones((*nll.shape[:-2], nll.shape[-1]), bool)))
        start = start.astype(widest(log_transitions, nll))
        inputs = (jnp.moveaxis(log_transitions, -3, 0), jnp.moveaxis(nll, -2, 0), jnp.moveaxis(real, -1, 0))
        log_predictive = jnp.moveaxis(loops.scan(step, start, inputs)[1], 0, -2)
    token_nll, log_posterior = update(log_predictive, nll)
    return ForwardResult(jnp.where(real, token_nll, 0.0), log_predictive, log_posterior)


@checked_masks
def expected_weights(
    select: Float[Array, "... s"], previous: Float[Array, "... s"], mask: Bool[Array, "... #s"]
) -> Float[Array, "... s"]:
    """Computes weights_i = p_i sum_{k<=i} previous_k prod_{l=k}^{i-1} (1 - p_l), with p = select.

    The probability that the process stops at key i. It starts at k, the position of the step before (with probability
    previous_k), and at each key stops with probability p_i or moves to the next; masked keys are skipped. Raffel 2017,
    equation 9, computed as p_i q_i with q_i = (1 - p_{i-1}) q_{i-1} + previous_i (equations 13 and 14). A parallel scan
    of products and sums of non-negative numbers replaces the cumulative products of the paper, which divide by 1 - p.

    The weights sum to at most one. The rest is the probability of running past the last key, which gives a zero
    context now and in all later steps. Before the first step, previous = `initial_weights(mask)`.
    """
    check_mask(mask, select.shape, axes=1)
    select = jnp.where(mask, wide(select), 0.0)
    moved = jnp.concatenate([jnp.ones_like(select[..., :1]), 1.0 - select[..., :-1]], axis=-1)

    def compose(left, right):  # compose maps q -> a q + b
        (left_a, left_b), (right_a, right_b) = left, right
        return left_a * right_a, right_a * left_b + right_b

    maps = jnp.broadcast_arrays(moved, previous.astype(moved.dtype))
    return select * jax.lax.associative_scan(compose, tuple(maps), axis=-1)[1]


@checked_masks
def hard_weights(
    select: Float[Array, "... s"], previous: Float[Array, "... s"], mask: Bool[Array, "... #s"]
) -> Float[Array, "... s"]:
    """One at the first key with select >= 0.5 from the previous position on, zero elsewhere (Raffel 2017, section 2.5).

    `previous` is the result of the step before, one-hot or zero. If no such key is left, all weights are zero, now and
    in all later steps. Equal to `expected_weights` if select is 0 or 1; no gradient with respect to select.
    """
    return expected_weights((select >= 0.5).astype(select.dtype), previous, mask)


class MonotonicSelection(nn.Module, kw_only=True):
    """Weights of monotonic attention, from select = sigmoid(scores + offset) (Raffel 2017).

    With an rng, as in training, the weights are `expected_weights`, and standard normal noise added before the sigmoid
    drives the scores to values where the sigmoid is nearly 0 or 1. Without an rng the weights are `hard_weights`, which
    read one key per step and could run online. Weights sum to at most one.
    """

    offset: float = -1.0  # initial value of the learned offset; a negative offset favours moving on over stopping

    sums_to_one = False

    @checked_masks
    @nn.compact
    def __call__(
        self,
        scores: Float[Array, "... q s"],
        previous: Float[Array, "... q s"],
        mask: Bool[Array, "... #q s"],
        rng: PRNGKeyArray | None,
    ) -> Float[Array, "... q s"]:
        offset = self.param("offset", nn.initializers.constant(self.offset), (), jnp.float32)
        scores = wide(scores) + offset
        if rng is None:
            return hard_weights(jax.nn.sigmoid(scores), previous, mask)
        noise = jax.random.normal(rng, scores.shape, scores.dtype)
        return expected_weights(jax.nn.sigmoid(scores + noise), previous, mask)


def _finite(logs: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.where(jnp.isfinite(logs), logs, 0.0)


def _log_softmax(logits: Float[Array, "... k"], allowed: Bool[Array, "... #k"]) -> Float[Array, "... k"]:
    logits = jnp.where(allowed, logits, -jnp.inf)
    # Subtract the largest logit first: log sum exp of large scores would round their differences away.
    logits = logits - _finite(jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True)))
    return logits - _finite(log_sum_exp(logits, axis=-1))[..., None]
