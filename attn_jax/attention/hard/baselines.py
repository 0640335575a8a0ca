"""Baselines of the score-function estimator: predictions of the loss, which reduce the variance of its gradient.

A baseline is a module with four methods: `value` is subtracted from the losses; `coordinates` is one number for each
logit of the weights; `per_key` predicts the loss at each key; `loss` is the squared error of the baseline, whose
gradient trains only the baseline. The first three must not depend on the sampled keys, or the gradient of the model is
biased. Two more methods, `configure` and `of_sampler`, let a baseline choose between samplers before they sample.

Parameters with a name in RUNNING are running means. Train them by plain gradient descent with a fixed rate, since
descent on (b - f)^2 / 2 with rate r is b <- (1 - r) b + r mean(f).
"""

from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.hard.estimators import coordinate_moments, logit_estimates
from attn_jax.attention.hard.readings import Reading
from attn_jax.attention.hard.samplers import Sample
from attn_jax.parts import option
from attn_jax.types import Array, Float, Int

RUNNING = frozenset({"running_mean", "running_numerator", "running_denominator", "running_moments"})


class SampledLosses(NamedTuple):
    """A sample and the losses at its rows, to train a baseline."""

    sample: Sample
    log_weights: Float[Array, "b t s"]  # the log weights that were sampled from
    losses: Float[Array, "b t n"]  # the loss at each row
    guess: Float[Array, "b t s"] | None  # the result of `per_key`


def given(sampled: SampledLosses | None) -> SampledLosses:
    """Returns the sample that some baselines learn from.

    Raises:
        ValueError: it is None.
    """
    if sampled is None:
        raise ValueError("the baseline learns from a sample and the losses at its rows: expected `sampled`, got None")
    return sampled


class NoBaseline(nn.Module, kw_only=True):
    """b = 0 (Williams 1992). Other baselines override the methods."""

    label: ClassVar[str] = "none"  # key in BASELINES
    of_each_key: ClassVar[bool] = False  # has a value for each key

    def value(self, hidden: Float[Array, "b t h"]) -> Float[Array, "b t"] | None:
        """Computes b from `hidden`, a state at each step that does not depend on the sample; None: b = 0."""
        return None

    def coordinates(self, length: int) -> Float[Array, "s"] | None:
        """Returns b_i for the logits of the first `length` keys; None: all 0."""
        return None

    def per_key(
        self, hidden: Float[Array, "b t h"], values: Float[Array, "b s d"], targets: Float[Array, "b t e"]
    ) -> Float[Array, "b t s"] | None:
        """Computes g_x, a guess of the loss at each key, from the values and the embedded targets; None: all 0."""
        return None

    def configure(self, reading: Reading) -> Reading:
        """Returns the reading with its options set to their learned values."""
        return reading

    def of_sampler(self, hidden: Float[Array, "b t h"], sampler: Int[Array, "b t"]) -> Float[Array, "b t"] | None:
        """Computes b, given which sampler of the reading was chosen; by default b is the same for all of them."""
        return self.value(hidden)

    def loss(
        self, hidden: Float[Array, "b t h"], f: Float[Array, "b t"], sampled: SampledLosses | None = None
    ) -> Float[Array, "b t"]:
        """Computes the squared error that trains the baseline; `f` is the mean loss over the sample."""
        return jnp.zeros_like(f)


class LeaveOneOut(NoBaseline, kw_only=True):
    """The mean loss of the other samples (Kool 2019), computed by the estimator."""

    label: ClassVar[str] = "leave_one_out"


class LossOfTheMean(NoBaseline, kw_only=True):
    """The loss at the mean context (Deng 2018, arXiv 1807.03756), computed by the objective."""

    label: ClassVar[str] = "soft"


class RunningMean(NoBaseline, kw_only=True):
    """Running mean of the loss over all target tokens (Xu 2015, arXiv 1502.03044)."""

    label: ClassVar[str] = "running_mean"

    def setup(self):
        self.mean = self.param("running_mean", nn.initializers.zeros, (), jnp.float32)

    def value(self, hidden):
        return jnp.broadcast_to(self.mean, hidden.shape[:-1])

    def loss(self, hidden, f, sampled=None):
        return 0.5 * jnp.square(self.mean - f)


class LearnedBaseline(NoBaseline, kw_only=True):
    """b = v . tanh(W hidden + c) + d (Mnih & Gregor 2014, arXiv 1402.0030: NVIL).

    Trained on (b - f)^2; `hidden` gets no gradient from it.
    """

    label: ClassVar[str] = "learned"
    features: int = option(256, "width of the hidden layer", at_least=1)

    def setup(self):
        self.inner = nn.Dense(self.features)
        self.outer = nn.Dense(1)

    def value(self, hidden):
        return self.outer(jnp.tanh(self.inner(jax.lax.stop_gradient(hidden))))[..., 0]

    def loss(self, hidden, f, sampled=None):
        return jnp.square(self.value(hidden) - f)


class PerCoordinate(NoBaseline, kw_only=True):
    """b_i = E[A_i B_i] / E[B_i^2] for the i-th logit, from running means: see estimators.coordinate_moments.

    The constant baseline of least variance (Greensmith, Bartlett & Baxter 2004), for each coordinate.

    Keys are identified by their position; the baseline is 0 from position `max_length` on.
    """

    label: ClassVar[str] = "per_coordinate"
    of_each_key: ClassVar[bool] = True

    max_length: int = option(100, "number of positions", at_least=1)

    def setup(self):
        self.numerator = self.param("running_numerator", nn.initializers.zeros, (self.max_length,), jnp.float32)
        self.denominator = self.param("running_denominator", nn.initializers.zeros, (self.max_length,), jnp.float32)

    def coordinates(self, length):
        b = self.numerator / jnp.maximum(self.denominator, 1e-8)
        return jnp.pad(b, (0, max(0, length - self.max_length)))[:length]

    def loss(self, hidden, f, sampled=None):
        products, squares = coordinate_moments(*given(sampled)[:3])
        length = min(self.max_length, products.shape[-1])
        error = jnp.square(self.numerator[None, None, :length] - products[..., :length])
        error += jnp.square(self.denominator[None, None, :length] - squares[..., :length])
        return 0.5 * jnp.sum(error, axis=-1)


class Critic(NoBaseline, kw_only=True):
    """g_x = b(u) + W u . V value_x / sqrt(d), u = tanh(U [hidden; embedded target]): a prediction of the loss at key x.

    An action-dependent control variate (Gu 2017, arXiv 1611.02247). It may use the target, since the sample does not
    depend on the target. One matrix product predicts the losses at all keys, whereas f needs a softmax over the
    vocabulary at each key.

    Trained on sum_n w_n (g_{x_n} - f_n)^2, w the importance weights.
    """

    label: ClassVar[str] = "critic"
    of_each_key: ClassVar[bool] = True

    features: int = option(256, "width of the hidden layers", at_least=1)

    def setup(self):
        self.inner = nn.Dense(self.features)
        self.query = nn.Dense(self.features)
        self.key = nn.Dense(self.features, use_bias=False)
        self.mean = nn.Dense(1)

    def per_key(self, hidden, values, targets):
        hidden, values, targets = jax.lax.stop_gradient((hidden, values, targets))
        u = jnp.tanh(self.inner(jnp.concatenate([hidden, targets], axis=-1)))
        return self.mean(u) + jnp.einsum("btd,bsd->bts", self.query(u), self.key(values)) / self.features**0.5

    def loss(self, hidden, f, sampled=None):
        sample, _, losses, guess = given(sampled)
        chosen = jnp.einsum("...nk,...k->...n", jax.lax.stop_gradient(sample.rows), guess)
        return jnp.sum(sample.importance_weights * jnp.square(chosen - losses), axis=-1)


class Adaptive(NoBaseline, kw_only=True):
    """Chooses the sampler of less variance, and learns the best constant baseline of each sampler.

    An estimate of the gradient of the logits is A - b B (see estimators.logit_estimates). With running means over the
    samples of each sampler (m of the loss, and w of the constant 1, which goes to one),

        b = m + (E[A . B] - m E[B . B]) / ((2 - w) E[B . B]).

    At first b is half way from m to the least squares b* = E[A . B] / E[B . B], later it is b*. Both samplers are
    unbiased, so the one with less E|A - b B|^2 has less variance. Once both have been used, it is chosen with
    probability 7/8. All statistics come from earlier steps, so the estimate is unbiased given these steps.
    """

    label: ClassVar[str] = "adaptive"
    explored: ClassVar[float] = 1 / 8  # probability of the sampler that currently seems worse

    def setup(self):
        self.moments = self.param("running_moments", nn.initializers.zeros, (2, 5), jnp.float32)

    def _learned(self) -> tuple[Float[Array, "2"], Float[Array, "2"], Float[Array, "2"]]:
        """Returns (b, E|A - b B|^2, w) of each sampler."""
        w, f, a_a, a_b, b_b = self.moments.T
        m = jnp.sum(f) / jnp.maximum(jnp.sum(w), 1e-30)
        b = m + jnp.where(b_b > 0, (a_b - m * b_b) / jnp.where(b_b > 0, (2 - w) * b_b, 1), 0.0)
        square = (a_a - 2 * b * a_b + b**2 * b_b) / jnp.where(w > 0, w, 1)
        return jax.lax.stop_gradient((b, square, w))

    def configure(self, reading):
        _, (first, second), w = self._learned()
        better = jnp.where(first <= second, 1 - self.explored, self.explored)
        return reading.configure(probability=jnp.where(jnp.all(w > 0), better, 0.5))

    def of_sampler(self, hidden, sampler):
        return self._learned()[0][sampler]

    def loss(self, hidden, f, sampled=None):
        sample, log_weights, losses, _ = given(sampled)
        a, b = logit_estimates(sample, log_weights, losses)
        products = (jnp.sum(x, axis=-1) for x in (a * a, a * b, b * b))
        found = jax.lax.stop_gradient(jnp.stack([jnp.ones_like(f), f, *products], axis=-1))
        chosen = jax.nn.one_hot(sample.sampler, 2, dtype=f.dtype)
        return 0.5 * jnp.einsum("bts,btsm->bt", chosen, jnp.square(self.moments[None, None] - found[..., None, :]))


BASELINES = {
    kind.label: kind
    for kind in (
        NoBaseline,
        LeaveOneOut,
        LossOfTheMean,
        RunningMean,
        LearnedBaseline,
        PerCoordinate,
        Critic,
        Adaptive,
    )
}
