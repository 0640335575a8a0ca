"""Objectives: the loss of a target token, given the weights of the decoder's attention.

With weights a, contexts z, and -log p(y | context) = f(context), the loss of a token is

    soft        f(E[z])              one deterministic context
    hard        E[f(z)]              an upper bound on marginal; trained by sampling
    marginal    -log E[exp(-f(z))]   the likelihood itself: the key that is read is latent and marginalized
    elbo        E_q[f(z)] + KL(q || a), q from a network that sees the target (Deng 2018, arXiv 1807.03756)

An objective is a module with `losses` (training), `evaluate` (all steps of a known target, and the weights to plot),
`start` and `step` (decoding). It computes probabilities of words by the functions of a `Readout`. In evaluation and
decoding, an objective whose key is latent predicts the mixture sum_x a_x p(y | z_x).
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Memory
from attn_jax.attention.hard.baselines import NoBaseline, SampledLosses
from attn_jax.attention.hard.estimators import combine, combine_marginal, gradient_only
from attn_jax.attention.hard.monotonic import forward, initial_weights, log_transition, predict, update
from attn_jax.attention.hard.readings import READINGS, Reading, log_of
from attn_jax.attention.hard.samplers import Sample
from attn_jax.attention.information import kl_divergence
from attn_jax.attention.scores.base import Score
from attn_jax.layers.rnn import RNN
from attn_jax.models.seq2seq.cooling import Cooling
from attn_jax.models.seq2seq.decoder_base import StepOutputs
from attn_jax.outputs.base import nll_and_correct
from attn_jax.outputs.top_k import top_k
from attn_jax.types import Array, Bool, Float, Int, PyTree, Source, wide


class Readout(NamedTuple):
    """The functions of a sequence model that an objective uses: from decoder states and contexts to words.

    Rows of weights [..., n, s] define the contexts to read: context_n = sum_s rows_ns values_s. Rows of None stand for
    the one-hot rows of all keys (n = s), and avoid the product. "..." is [b, t] for all steps of a target, [b] for one
    step. Training losses contain dropout and label smoothing, log-probabilities do not.
    """

    losses: Callable[
        ..., tuple[Array, Array]
    ]  # (readout [..., d], targets [...]) -> (training loss [...], negative log-likelihood [...])
    log_probs: Callable[..., Array]  # readout [..., d] -> log p(word) [..., v]
    nll_and_correct: Callable[
        ..., tuple[Array, Array]
    ]  # (readout [..., d], targets [...]) -> (nll, 1 for the most probable word), each [...]
    top_k: Callable[
        ..., tuple[Array, Array]
    ]  # (readout [..., d], k) -> (log-probabilities, words) of the k most probable words, each [..., k]
    row_losses: Callable[
        ..., tuple[Array, Array]
    ]  # (memory, steps, rows [b, t, n, s] or None, targets [b, t]) -> (loss, nll), each [b, t, n]
    row_log_probs: Callable[..., Array]  # (memory, steps, rows [..., n, s] or None) -> log p(word) [..., n, v]
    embed: Callable[[Array], Array]  # target tokens [...] -> embeddings [..., e]
    scores: Callable[..., Array]  # (query [b, t, q], memory) -> unnormalized scores of the keys [b, t, s]
    vocab_size: int
    step: Int[Array, ""] | int = 0  # updates so far, in training


class TokenLosses(NamedTuple):
    """The training loss of each target token (value and gradient), and the negative log-likelihood."""

    loss: Float[Array, "b t"]
    nll: Float[Array, "b t"]


def falling(step: Int[Array, ""] | int, num_steps: int) -> Float[Array, ""]:
    """Computes max(0, 1 - step / num_steps), which is 1 before the first of `num_steps` steps."""
    return jnp.maximum(0.0, 1 - jnp.asarray(step, jnp.float32) / num_steps)


class SoftObjective(nn.Module, kw_only=True):
    """-log p(y | context): for soft attention, and for every reading that is differentiable or deterministic.

    Base class and interface of the other objectives. `steps` are the outputs of the decoder, `memory` is its memory.
    """

    num_trajectories = 1  # runs of the decoder over each sentence in training
    soft_steps = 0  # training steps over which the loss changes from soft attention to the objective
    cooling = None  # the temperature of relaxed samples, by training step
    is_latent = False  # hard attention: one key is read at a time, sampled from the weights

    def soft_share(self, step: Int[Array, ""] | int) -> Float[Array, ""] | None:
        """Returns the weight of the mean context's loss at a training step; None: always zero."""
        return None

    def mean_share(self, step: Int[Array, ""] | int) -> Float[Array, ""] | float | None:
        """Returns the probability that a trajectory reads mean contexts, not sampled ones; None: always zero."""
        return None

    def losses(
        self,
        readout: Readout,
        memory: PyTree,
        steps: StepOutputs,
        *,
        targets: Int[Array, "b t"],
        real: Bool[Array, "b t"],
    ) -> TokenLosses:
        """Computes the training losses; positions that are not `real` are padding."""
        loss, nll = readout.losses(steps.readout, targets)
        return TokenLosses(loss, nll)

    def copied(self, source: Source) -> Int[Array, "b s"] | None:
        """Returns the target id of each source token for `StepOutputs.copied`; None without copying."""
        return None

    def start(self, readout: Readout, memory: PyTree) -> PyTree:
        """Returns the initial state of the objective in decoding; () without a state."""
        return ()

    def step(self, readout: Readout, memory: PyTree, state: PyTree, token: Int[Array, "b"], steps: StepOutputs):
        """Returns (state, log p(next token) [b, v]), for the outputs of the decoder after `token`."""
        return state, self.log_probs(readout, memory, steps)

    def step_top_k(
        self, readout: Readout, memory: PyTree, state: PyTree, token: Int[Array, "b"], steps: StepOutputs, k: int
    ):
        """Returns (state, (log-probabilities, tokens) of the k most probable next tokens), each [b, k]."""
        return state, readout.top_k(steps.readout, k)

    def log_probs(self, readout: Readout, memory: PyTree, steps: StepOutputs) -> Float[Array, "... v"]:
        """log p(word) at each step."""
        return readout.log_probs(steps.readout)

    def evaluate(
        self,
        readout: Readout,
        memory: PyTree,
        steps: StepOutputs,
        *,
        targets: Int[Array, "b t"],
        real: Bool[Array, "b t"],
    ):
        """Returns (nll [b, t], 1 where the target is the most probable token [b, t], weights to plot [b, t, s])."""
        nll, correct = readout.nll_and_correct(steps.readout, targets)
        return nll, correct, steps.weights


class TrajectoryObjective(SoftObjective, kw_only=True):
    """Hard attention with the sampled context fed back into the decoder (Xu 2015, arXiv 1502.03044).

    The samples of all steps form a trajectory; `num_trajectories` of them are computed in parallel. A sample affects
    every later loss. With R_t = sum_{t' >= t} f_t' the surrogate of a trajectory is

        sum_t f_t + (R_t - b_t) log a(x_t).

    b_t is computed from the query of step t, which depends on x_1 ... x_{t-1} but not on x_t: the hidden state after
    the step may depend on the sampled context, and such a baseline would bias the gradient. With `leave_one_out`, b_t
    is the mean R_t of the other trajectories. With `mean_probability` (section 4.1: 1/2) some trajectories read the
    mean context at every step, which is soft attention, and have no second term; in the first `soft_steps` training
    steps there are more of them, initially all. Penalties of the weights contribute only their direct gradient: the
    effect of x_t on the weights of later steps is not included.
    """

    num_trajectories: int = 1
    mean_probability: float = 0.0
    is_latent: ClassVar[bool] = True
    soft_steps: int = 0
    leave_one_out: bool = False
    baseline: nn.Module = NoBaseline()

    def mean_share(self, step):
        if not self.soft_steps:
            return self.mean_probability or None
        return self.mean_probability + (1 - self.mean_probability) * falling(step, self.soft_steps)

    def losses(self, readout, memory, steps, *, targets, real):
        n = self.num_trajectories

        def split(x):  # [b n, t, ...] -> [b, t, n, ...]
            return jnp.moveaxis(x.reshape(-1, n, *x.shape[1:]), 1, 2)

        loss, nll = (split(x) for x in readout.losses(steps.readout, jnp.repeat(targets, n, axis=0)))
        log_prob, real = split(steps.log_prob), real[..., None]
        # The surrogate of the class docstring. R_t, b_t are constants, so the second term has a gradient only through
        # log a(x_t). `own` trains only the baseline. Both contribute a gradient but no value to the loss.
        reward = jax.lax.stop_gradient(jnp.cumsum((loss * real)[:, ::-1], axis=1)[:, ::-1])
        value = self.baseline.value(steps.query)
        if self.leave_one_out:
            advantage = reward - (jnp.sum(reward, axis=-1, keepdims=True) - reward) / (n - 1)
        else:
            advantage = reward if value is None else reward - jax.lax.stop_gradient(split(value))
        own = split(self.baseline.loss(steps.query, jnp.moveaxis(reward, -1, 1).reshape(-1, reward.shape[1])))
        extra = jnp.mean(advantage * log_prob + own, axis=-1)
        return TokenLosses(jnp.mean(loss, axis=-1) + gradient_only(extra), jnp.mean(nll, axis=-1))


class MixtureObjective(SoftObjective, kw_only=True):
    """Base of objectives that predict a mixture over contexts; its best tokens are found among all tokens."""

    is_latent: ClassVar[bool] = True

    def step_top_k(self, readout, memory, state, token, steps, k):
        state, log_probs = self.step(readout, memory, state, token, steps)
        values, tokens = top_k(log_probs, k)
        return state, (values, tokens)

    def evaluate(self, readout, memory, steps, *, targets, real):
        nll, correct = nll_and_correct(self.log_probs(readout, memory, steps), targets)
        return nll, correct, steps.weights


class HardObjective(MixtureObjective, kw_only=True):
    """E[f(z)]: the output layer reads one latent key, the recurrence the mean context (Deng 2018, arXiv 1807.03756).

    The keys of different steps are independent, so the loss of a token needs only the samples of its own step.
    `reading` samples the keys at which f is evaluated in training; with `soft_baseline` the baseline is f(E[z]). In
    evaluation and decoding p(y) = sum_x a_x p(y | z_x), over all keys or over the `k_max` most probable ones,
    renormalized (Deng 2018, "K-max"). In the first `soft_steps` training steps the loss is s f(E[z]) + (1 - s) E[f(z)],
    where s falls from 1 to 0: the expectation of choosing soft attention with probability s for each token. With
    `cooling`, the temperature of relaxed samples decreases.
    """

    reading: Reading = READINGS["enumeration"]
    baseline: nn.Module = NoBaseline()
    soft_baseline: bool = False
    k_max: int = 0
    soft_steps: int = 0
    cooling: Cooling | None = None

    def soft_share(self, step):
        return falling(step, self.soft_steps) if self.soft_steps else None

    def losses(self, readout, memory, steps, *, targets, real):
        log_q, penalty = self.proposal(readout, memory, steps, targets=targets, real=real)
        sample = self._sample(log_q, readout.step)
        rows = None if sample.complete else sample.rows
        # f is the expensive part (the output layer), so it is evaluated once for all contexts: the sampled rows and,
        # for the soft baseline, one more row with the mean context, which is split off again below.
        if self.soft_baseline:
            rows = jnp.concatenate([sample.rows, jax.lax.stop_gradient(jnp.exp(log_q))[..., None, :]], axis=-2)
        loss, nll = readout.row_losses(memory, steps, rows, targets)
        if self.soft_baseline:
            value = loss[..., -1]
        elif sample.sampler is None:
            value = self.baseline.value(steps.hidden)
        else:
            value = self.baseline.of_sampler(steps.hidden, sample.sampler)
        n = sample.rows.shape[-2]
        loss, nll = loss[..., :n], nll[..., :n]
        coordinates = self.baseline.coordinates(log_q.shape[-1])
        guess = self.baseline.per_key(steps.hidden, memory.values, readout.embed(targets))
        # `estimate` trains the network and, through log q, the attention. `own` trains only the baseline: it regresses
        # on losses without their gradient, and contributes a gradient but no value to the loss.
        total, nll = self.estimate(
            sample, loss=loss, nll=nll, value=value, log_q=log_q, coordinates=coordinates, guess=guess
        )
        loss = jax.lax.stop_gradient(loss)
        reward = jax.lax.stop_gradient(self.reward(sample, loss))
        own = self.baseline.loss(steps.hidden, reward, SampledLosses(sample, log_q, loss, guess))
        return TokenLosses(total + gradient_only(own) + penalty, nll + penalty)

    def proposal(self, readout, memory, steps, *, targets, real):
        """Returns (log weights from which keys are sampled [b, t, s], additional term of the loss [b, t])."""
        return log_of(steps.weights), 0.0

    def estimate(self, sample, *, loss, nll, value, log_q, coordinates, guess):
        """Returns (training loss, negative log-likelihood) [b, t] from the losses of the sampled keys [b, t, n]."""
        nll = jnp.sum(sample.importance_weights * nll, axis=-1)
        return combine(sample, loss, value, log_q, coordinates, guess), nll

    def reward(self, sample: Sample, loss: Float[Array, "b t n"]) -> Float[Array, "b t"]:
        """Computes the factor of grad log q in the gradient estimate, which a baseline learns to predict."""
        return jnp.sum(sample.importance_weights * loss, axis=-1)

    def _sample(self, log_q: Float[Array, "b t s"], step: Int[Array, ""] | int) -> Sample:
        """Samples keys; a source with fewer keys than samples is padded with keys of probability zero."""
        size = log_q.shape[-1]
        missing = max(0, self.reading.num_keys - size)
        padded = jnp.pad(log_q, ((0, 0), (0, 0), (0, missing)), constant_values=-jnp.inf)
        reading = self.baseline.configure(self.reading)
        reading = reading if self.cooling is None else reading.configure(temperature=self.cooling(step))
        sample = reading(self.make_rng("sample") if reading.random else None, padded)
        return sample.replace(rows=sample.rows[..., :size])

    def log_probs(self, readout, memory, steps):
        num_keys = steps.weights.shape[-1]
        k = min(self.k_max or num_keys, num_keys)
        if k == num_keys:
            return mixture(log_of(steps.weights), readout.row_log_probs(memory, steps, None))
        weights, index = jax.lax.top_k(steps.weights, k)
        log_weights = log_of(weights / jnp.maximum(jnp.sum(weights, axis=-1, keepdims=True), 1e-30))
        rows = jax.nn.one_hot(index, num_keys, dtype=weights.dtype)
        return mixture(log_weights, readout.row_log_probs(memory, steps, rows))


class MarginalObjective(HardObjective, kw_only=True):
    """-log E[exp(-f(z))]: the likelihood itself, or a bound on it if keys are sampled; see `combine_marginal`."""

    def estimate(self, sample, *, loss, nll, value, log_q, coordinates, guess):
        return combine_marginal(sample, loss, value), combine_marginal(sample, nll)

    def reward(self, sample, loss):
        return combine_marginal(sample, loss)


class ElboObjective(HardObjective, kw_only=True):
    """E_q[f(z)] + KL(q || a), keys sampled from q, an `inference` network that sees the target (Deng 2018)."""

    inference: nn.Module

    def proposal(self, readout, memory, steps, *, targets, real):
        log_q = self.inference(readout, memory, targets=targets, real=real, possible=steps.weights > 0)
        return log_q, kl_divergence(log_q, log_of(wide(steps.weights)))


class MarkovObjective(MixtureObjective, kw_only=True):
    """Exact hard attention: the keys x_t are the states of a Markov chain, marginalized by dynamic programming.

    p(y) = sum_x prod_t p(x_t | x_{t-1}, y_<t) p(y_t | z_{x_t}, y_<t). With `monotonic`, x_t is not before x_{t-1}
    (Wu & Cotterell 2019, arXiv 1905.06319: order 0). With `jump_size` > 0 the chain is of order 1: the decoder state
    also scores the distance x_t - x_{t-1}, clipped at jump_size (this parametrization is our own). The transitions are
    computed from the scores of the attention, and no context may enter the recurrence (`Decoder.feeds_attention`).
    """

    monotonic: bool = True
    jump_size: int = 0

    def setup(self):
        if self.jump_size:
            self.jumps = nn.Dense(self.jump_size + 1 if self.monotonic else 2 * self.jump_size + 1)

    def losses(self, readout, memory, steps, *, targets, real):
        loss, nll = readout.row_losses(memory, steps, None, targets)
        transitions = self._transitions(readout, memory, steps, first=self._first(steps))
        return TokenLosses(forward(transitions, loss, real).nll, forward(transitions, nll, real).nll)

    def evaluate(self, readout, memory, steps, *, targets, real):
        log_probs = readout.row_log_probs(memory, steps, None)
        nll = -jnp.take_along_axis(log_probs, targets[..., None, None], axis=-1)[..., 0]
        transitions = self._transitions(readout, memory, steps, first=self._first(steps))
        aligned = forward(transitions, nll, real)
        correct = nll_and_correct(mixture(aligned.log_predictive, log_probs), targets)[1]
        return aligned.nll, correct, jnp.exp(aligned.log_posterior)

    def start(self, readout, memory):
        batch_size, num_keys = memory.key_mask.shape
        log_probs = jnp.zeros((batch_size, num_keys, readout.vocab_size), jnp.float32)
        return jnp.log(initial_weights(memory.key_mask)), log_probs, jnp.ones(batch_size, bool)

    def step(self, readout, memory, state, token, steps):
        """Updates the posterior over the keys with `token`, then predicts key and token of the next step."""
        log_predictive, log_probs, first = state
        nll = -jnp.take_along_axis(log_probs, token[:, None, None], axis=-1)[..., 0]
        log_posterior = jnp.where(first[:, None], log_predictive, update(log_predictive, nll)[1])
        one = jax.tree.map(lambda x: x[:, None], steps)
        transition = self._transitions(readout, memory, one, first=first[:, None])[:, 0]
        log_predictive = predict(log_posterior, transition)
        log_probs = readout.row_log_probs(memory, one, None)[:, 0]
        return (log_predictive, log_probs, jnp.zeros_like(first)), mixture(log_predictive, log_probs)

    def _first(self, steps: StepOutputs) -> Bool[Array, "b t"]:
        return jnp.broadcast_to(jnp.arange(steps.hidden.shape[1]) == 0, steps.hidden.shape[:2])

    def _transitions(self, readout, memory, steps, *, first):
        scores = readout.scores(steps.query, memory)
        jumps = self.jumps(steps.query) if self.jump_size else None
        return log_transition(scores, memory.key_mask[:, None], monotonic=self.monotonic, jumps=jumps, first=first)


class InferenceNetwork(nn.Module, kw_only=True):
    """log q(x_t | source, target) [b, t, s]: a bidirectional RNN over the target scores the values (Deng 2018).

    q is zero for keys that are not `possible`, to which the attention a gives no weight, since KL(q || a) would be
    infinite.
    """

    rnn: RNN
    score: Score

    @nn.compact
    def __call__(
        self,
        readout: Readout,
        memory: Memory,
        *,
        targets: Int[Array, "b t"],
        real: Bool[Array, "b t"],
        possible: Bool[Array, "b t s"],
    ):
        embedded = readout.embed(targets)
        _, states = self.rnn(embedded, real)
        scores = self.score(states, self.score.project_keys(memory.values))
        return log_transition(scores, memory.key_mask[:, None] & possible)[..., 0, :]


def mixture(log_weights: Float[Array, "... n"], log_probs: Float[Array, "... n v"]) -> Float[Array, "... v"]:
    """log sum_n exp(log_weights_n) p_n, with uniform weights if all weights are zero."""
    empty = jnp.all(log_weights == -jnp.inf, axis=-1, keepdims=True)
    log_weights = jnp.where(empty, -jnp.log(float(log_weights.shape[-1])), log_weights)
    return jax.nn.logsumexp(log_weights[..., None] + log_probs, axis=-2)
