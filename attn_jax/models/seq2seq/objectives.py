"""What the loss of a target token is, given what the decoder attends to: the objectives of soft and hard attention.

With weights a, contexts z, and -log p(y | context) = f(context), the loss of a token is

    soft        f(E[z])              one deterministic context
    hard        E[f(z)]              a bound on the next; trained by sampling
    marginal    -log E[exp(-f(z))]   the likelihood itself: the alignment is latent and summed out
    elbo        E_q[f(z)] + KL(q || a), q from a network that sees the target (Deng 2018, arXiv 1807.03756)

An alignment is a module with `losses` (training), `evaluate` (all steps of a known target, and the weights to look
at), `start` and `step` (decoding). The `model` that it is given has `row_losses` and `row_log_probs`: the output
layer, read with given rows of weights. To the outside a latent alignment is always the mixture sum_x a_x p(y | z_x).
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.hard.baselines import NoBaseline, SampledLosses
from attn_jax.attention.hard.estimators import combine, combine_marginal, gradient_only, kl_divergence
from attn_jax.attention.hard.monotonic import forward, initial_weights, log_transition, predict, update
from attn_jax.attention.hard.readings import READINGS, Reading, log_of
from attn_jax.attention.hard.samplers import Sample
from attn_jax.attention.scores.base import Score
from attn_jax.layers.rnn import RNN
from attn_jax.models.seq2seq.decoders import Steps
from attn_jax.outputs.loss import nll_and_correct
from attn_jax.types import Array, Bool, Float, Int, PyTree


class TokenLosses(NamedTuple):
    """Of each target token [b, t]: what is minimized (value and gradient), and its plain negative log-likelihood."""

    loss: Float[Array, "b t"]
    nll: Float[Array, "b t"]


class SoftAlignment(nn.Module):
    """The loss at what the decoder read: soft attention, and every reading that is differentiable or deterministic."""

    num_trajectories = 1  # how often the decoder runs over each sentence in training

    def losses(self, model: Any, memory: PyTree, steps: Steps, targets: Int[Array, "b t"], real: Bool[Array, "b t"]):
        loss, nll = model.hidden_losses(steps.hidden, targets)
        return TokenLosses(loss, nll)

    def start(self, model: Any, memory: PyTree) -> PyTree:
        """What has to be remembered from step to step, besides the decoder's state."""
        return ()

    def step(self, model: Any, memory: PyTree, state: PyTree, token: Int[Array, "b"], steps: Steps):
        """(state, log p(next token) [b, v]) after the decoder has seen `token`."""
        return state, self.log_probs(model, memory, steps)

    def log_probs(self, model: Any, memory: PyTree, steps: Steps) -> Float[Array, "... v"]:
        return model.output_log_probs(steps.hidden)

    def evaluate(self, model: Any, memory: PyTree, steps: Steps, targets: Int[Array, "b t"], real: Bool[Array, "b t"]):
        """(nll, 1 where the target is the best token, weights to look at) of each token."""
        nll, correct = nll_and_correct(self.log_probs(model, memory, steps), targets)
        return nll, correct, steps.weights


class TrajectoryAlignment(SoftAlignment):
    """Hard attention with the sampled context fed back into the decoder (Xu 2015, arXiv 1502.03044).

    The whole target is one trajectory of samples, of which `num_trajectories` run side by side; a sample has a
    share in every later loss. With R_t = sum_{t' >= t} f_t' the surrogate of a trajectory is

        sum_t f_t + (R_t - b_t) log a(x_t).

    b_t is computed from the query of step t, which knows x_1 ... x_{t-1} but not x_t: the decoder's state after the
    step may hold the sampled context, and a baseline that sees it takes the signal away. The baseline of
    `leave_one_out` is the mean R_t of the other trajectories.
    """

    num_trajectories: int = 1
    leave_one_out: bool = False
    baseline: nn.Module = NoBaseline()

    def losses(self, model, memory, steps, targets, real):
        n = self.num_trajectories

        def split(x):  # [b n, t, ...] -> [b, t, n, ...]
            return jnp.moveaxis(x.reshape(-1, n, *x.shape[1:]), 1, 2)

        loss, nll = (split(x) for x in model.hidden_losses(steps.hidden, jnp.repeat(targets, n, axis=0)))
        log_prob, real = split(steps.log_prob), real[..., None]
        reward = jax.lax.stop_gradient(jnp.cumsum((loss * real)[:, ::-1], axis=1)[:, ::-1])
        value = self.baseline.value(steps.query)
        if self.leave_one_out:
            advantage = reward - (jnp.sum(reward, axis=-1, keepdims=True) - reward) / (n - 1)
        else:
            advantage = reward if value is None else reward - jax.lax.stop_gradient(split(value))
        own = split(self.baseline.loss(steps.query, jnp.moveaxis(reward, -1, 1).reshape(-1, reward.shape[1])))
        extra = jnp.mean(advantage * log_prob + own, axis=-1)
        return TokenLosses(jnp.mean(loss, axis=-1) + gradient_only(extra), jnp.mean(nll, axis=-1))


class HardAlignment(SoftAlignment):
    """E[f(z)]: which key the output layer reads is latent, while the state goes on with the mean context (Deng 2018).

    Each step has its own independent choice, so all objectives are local to it. `reading` says at which keys f is
    evaluated in training. In evaluation and decoding p(y) = sum_x a_x p(y | z_x), over all keys or, renormalized,
    the `k_max` most probable ones (Deng 2018, "K-max").
    """

    reading: Reading = READINGS["enumeration"]
    baseline: nn.Module = NoBaseline()
    soft_baseline: bool = False
    k_max: int = 0

    def losses(self, model, memory, steps, targets, real):
        log_q, penalty = self.proposal(model, memory, steps, targets, real)
        sample = self._sample(log_q)
        rows = None if self.reading.exact_rows else sample.rows
        if self.soft_baseline:  # one more evaluation of f, at the mean
            rows = jnp.concatenate([sample.rows, jax.lax.stop_gradient(jnp.exp(log_q))[..., None, :]], axis=-2)
        loss, nll = model.row_losses(memory, steps, rows, targets)
        value = loss[..., -1] if self.soft_baseline else self.baseline.value(steps.top)
        n = sample.rows.shape[-2]
        loss, nll = loss[..., :n], nll[..., :n]
        coordinates = self.baseline.coordinates(log_q.shape[-1])
        guess = self.baseline.per_key(steps.top, memory.values, model.target_embedding(targets))
        total, nll = self.estimate(sample, loss, nll, value, log_q, coordinates, guess)
        loss = jax.lax.stop_gradient(loss)
        f = jnp.sum(sample.importance_weights * loss, axis=-1)
        own = self.baseline.loss(steps.top, f, SampledLosses(sample, log_q, loss, guess))
        return TokenLosses(total + gradient_only(own) + penalty, nll + penalty)

    def proposal(self, model, memory, steps, targets, real):
        """(the log weights [b, t, s] with which keys are drawn, what these cost in the loss [b, t])."""
        return log_of(steps.weights), 0.0

    def estimate(self, sample, loss, nll, value, log_q, coordinates, guess):
        """(what is minimized, negative log-likelihood) [b, t], of the losses [b, t, n] at the keys that were drawn."""
        nll = jnp.sum(sample.importance_weights * nll, axis=-1)
        return combine(sample, loss, value, log_q, coordinates, guess), nll

    def _sample(self, log_q: Float[Array, "b t s"]) -> Sample:
        """From keys that cannot be drawn besides, where a short source has fewer than there are to be samples."""
        size = log_q.shape[-1]
        missing = max(0, self.reading.num_keys - size)
        padded = jnp.pad(log_q, ((0, 0), (0, 0), (0, missing)), constant_values=-jnp.inf)
        sample = self.reading(self.make_rng("sample") if self.reading.random else None, padded)
        return sample.replace(rows=sample.rows[..., :size])

    def log_probs(self, model, memory, steps):
        num_keys = steps.weights.shape[-1]
        k = min(self.k_max or num_keys, num_keys)
        if k == num_keys:
            return mixture(log_of(steps.weights), model.row_log_probs(memory, steps, None))
        weights, index = jax.lax.top_k(steps.weights, k)
        log_weights = log_of(weights / jnp.maximum(jnp.sum(weights, axis=-1, keepdims=True), 1e-30))
        rows = jax.nn.one_hot(index, num_keys, dtype=weights.dtype)
        return mixture(log_weights, model.row_log_probs(memory, steps, rows))


class MarginalAlignment(HardAlignment):
    """-log E[exp(-f(z))]: the likelihood itself, or with sampled keys a bound on it; see `combine_marginal`."""

    def estimate(self, sample, loss, nll, value, log_q, coordinates, guess):
        return combine_marginal(sample, loss, value), combine_marginal(sample, nll)


class ElboAlignment(HardAlignment, kw_only=True):
    """E_q[f(z)] + KL(q || a), the keys drawn by an `inference` network that sees the target (Deng 2018)."""

    inference: nn.Module

    def proposal(self, model, memory, steps, targets, real):
        log_q = self.inference(model, memory, targets, real, steps.weights > 0)
        return log_q, kl_divergence(log_q, log_of(steps.weights))


class MarkovAlignment(SoftAlignment):
    """Exact hard attention: the alignment is the hidden state of a Markov chain, summed out by dynamic programming.

    p(y) = sum_x prod_t p(x_t | x_{t-1}, y_<t) p(y_t | z_{x_t}, y_<t). Monotonic, a key may not lie before the one
    chosen last (Wu & Cotterell 2019, arXiv 1905.06319: order 0). With `jump_size` > 0 it is of order 1: the decoder
    state also scores the distance from x_{t-1}, up to jump_size; this parametrization is our own. The transitions are
    made of the scores of the attention; nothing of what was read may enter the recurrence.
    """

    monotonic: bool = True
    jump_size: int = 0

    def setup(self):
        if self.jump_size:
            self.jumps = nn.Dense(self.jump_size + 1 if self.monotonic else 2 * self.jump_size + 1)

    def losses(self, model, memory, steps, targets, real):
        loss, nll = model.row_losses(memory, steps, None, targets)
        transitions = self._transitions(model, memory, steps, self._first(steps))
        return TokenLosses(forward(transitions, loss, real).nll, forward(transitions, nll, real).nll)

    def evaluate(self, model, memory, steps, targets, real):
        log_probs = model.row_log_probs(memory, steps, None)
        nll = -jnp.take_along_axis(log_probs, targets[..., None, None], axis=-1)[..., 0]
        transitions = self._transitions(model, memory, steps, self._first(steps))
        aligned = forward(transitions, nll, real)
        correct = nll_and_correct(mixture(aligned.log_predictive, log_probs), targets)[1]
        return aligned.nll, correct, jnp.exp(aligned.log_posterior)

    def start(self, model, memory):
        batch_size, num_keys = memory.mask.shape
        log_probs = jnp.zeros((batch_size, num_keys, model.output.vocab_size))
        return jnp.log(initial_weights(memory.mask)), log_probs, jnp.ones(batch_size, bool)

    def step(self, model, memory, state, token, steps):
        """The posterior over the keys once `token` is seen, then the keys and the words of the next step."""
        log_predictive, log_probs, first = state
        nll = -jnp.take_along_axis(log_probs, token[:, None, None], axis=-1)[..., 0]
        log_posterior = jnp.where(first[:, None], log_predictive, update(log_predictive, nll)[1])
        one = jax.tree.map(lambda x: x[:, None], steps)
        transition = self._transitions(model, memory, one, first[:, None])[:, 0]
        log_predictive = predict(log_posterior, transition)
        log_probs = model.row_log_probs(memory, one, None)[:, 0]
        return (log_predictive, log_probs, jnp.zeros_like(first)), mixture(log_predictive, log_probs)

    def _first(self, steps: Steps) -> Bool[Array, "b t"]:
        return jnp.broadcast_to(jnp.arange(steps.top.shape[1]) == 0, steps.top.shape[:2])

    def _transitions(self, model, memory, steps, first):
        scores = model.decoder.attention.score(steps.query, memory.keys)
        jumps = self.jumps(steps.query) if self.jump_size else None
        return log_transition(scores, memory.mask[:, None], self.monotonic, jumps, first)


class InferenceNetwork(nn.Module):
    """log q(x_t | source, target): a bidirectional RNN over the target asks the memory (Deng 2018).

    Only keys that are `possible` under the attention have mass; with any on another one KL(q || a) is infinite.
    """

    rnn: RNN
    score: Score

    @nn.compact
    def __call__(self, model, memory, targets, real, possible: Bool[Array, "b t s"]):
        embedded = model.target_embedding(targets)
        _, states = self.rnn(embedded, real)
        scores = self.score(states, self.score.project_keys(memory.values))
        return log_transition(scores, memory.mask[:, None] & possible)[..., 0, :]


def mixture(log_weights: Float[Array, "... n"], log_probs: Float[Array, "... n v"]) -> Float[Array, "... v"]:
    """log sum_n exp(log_weights_n) p_n, and a uniform distribution where there is no key at all."""
    empty = jnp.all(log_weights == -jnp.inf, axis=-1, keepdims=True)
    log_weights = jnp.where(empty, -jnp.log(float(log_weights.shape[-1])), log_weights)
    return jax.nn.logsumexp(log_weights[..., None] + log_probs, axis=-2)
