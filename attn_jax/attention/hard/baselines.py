"""Baselines of the score-function estimator: what the loss is expected to be, before it is known.

A baseline is a module: `value` is subtracted from the losses, `coordinates` is one number for each logit of the
weights, `per_key` a guess of the loss at each key, and `loss` its own squared error, whose gradient trains it and
nothing else. None of them may depend on the key that is drawn, or the gradient of the model is wrong. Parameters named
"running..." are running means: the optimizer moves them by plain gradient descent with a fixed rate (see
optimizers.keep_running), and descent on (b - f)^2 / 2 with rate r is b <- (1 - r) b + r mean(f).
"""

from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.hard.estimators import coordinate_moments
from attn_jax.attention.hard.samplers import Draw
from attn_jax.types import Array, Float


class Sampled(NamedTuple):
    """What is known once the keys are drawn."""

    draw: Draw
    log_weights: Float[Array, "b t s"]  # with which it was drawn
    losses: Float[Array, "b t n"]  # at each key drawn
    guess: Float[Array, "b t s"] | None  # what `per_key` said


class NoBaseline(nn.Module):
    """b = 0; also where the draw has its own baseline (leave-one-out), or the soft loss serves as one."""

    of_each_key: ClassVar[bool] = False  # it has a value for each key

    def value(self, hidden: Float[Array, "b t h"]) -> Float[Array, "b t"] | None:
        """b, from a state of the decoder at each step that does not depend on the draw; None: none of this kind."""
        return None

    def coordinates(self, length: int) -> Float[Array, "s"] | None:
        """b_i for the logit of each of so many keys; None: none of this kind."""
        return None

    def per_key(
        self, top: Float[Array, "b t h"], values: Float[Array, "b s d"], targets: Float[Array, "b t e"]
    ) -> Float[Array, "b t s"] | None:
        """g_x, a guess of the loss at each key, also from the keys' values and the embedded targets; None: none."""
        return None

    def loss(
        self, hidden: Float[Array, "b t h"], f: Float[Array, "b t"], sampled: Sampled | None = None
    ) -> Float[Array, "b t"]:
        """The squared error that trains the baseline; `f` is the loss, averaged over the draw."""
        return jnp.zeros_like(f)


class RunningMean(NoBaseline):
    """b = the running mean of the loss over all target tokens (Xu 2015, arXiv 1502.03044)."""

    def setup(self):
        self.mean = self.param("running_mean", nn.initializers.zeros, ())

    def value(self, hidden):
        return jnp.broadcast_to(self.mean, hidden.shape[:-1])

    def loss(self, hidden, f, sampled=None):
        return 0.5 * jnp.square(self.mean - f)


class LearnedBaseline(NoBaseline):
    """b = v . tanh(W hidden + c) + d, from a decoder state that does not depend on the draw (Mnih & Gregor 2014, NVIL).

    Trained on (b - f)^2; no gradient of it reaches the decoder.
    """

    features: int

    def setup(self):
        self.inner = nn.Dense(self.features)
        self.outer = nn.Dense(1)

    def value(self, hidden):
        return self.outer(jnp.tanh(self.inner(jax.lax.stop_gradient(hidden))))[..., 0]

    def loss(self, hidden, f, sampled=None):
        return jnp.square(self.value(hidden) - f)


class PerCoordinate(NoBaseline):
    """b_i = E[A_i B_i] / E[B_i^2] for the i-th logit, from running means: see estimators.coordinate_moments.

    The logits of attention are source positions, of which the first `max_length` have a baseline of their own.
    """

    of_each_key: ClassVar[bool] = True

    max_length: int

    def setup(self):
        self.numerator = self.param("running_numerator", nn.initializers.zeros, (self.max_length,))
        self.denominator = self.param("running_denominator", nn.initializers.zeros, (self.max_length,))

    def coordinates(self, length):
        b = self.numerator / jnp.maximum(self.denominator, 1e-8)
        return jnp.pad(b, (0, max(0, length - self.max_length)))[:length]

    def loss(self, hidden, f, sampled=None):
        products, squares = coordinate_moments(sampled.draw, sampled.log_weights, sampled.losses)
        length = min(self.max_length, products.shape[-1])
        error = jnp.square(self.numerator[:length] - products[..., :length])
        error += jnp.square(self.denominator[:length] - squares[..., :length])
        return 0.5 * jnp.sum(error, axis=-1)


class Critic(NoBaseline):
    """g_x = b(u) + W u . V value_x / sqrt(d), u = tanh(U [top; embedded target]): a guess of the loss at key x.

    A baseline may know the target, for the draw knows nothing of it. One product for all keys, where f itself is a
    readout and a softmax over the vocabulary for each. Trained on sum_n mass_n (g_{x_n} - f_n)^2.
    """

    of_each_key: ClassVar[bool] = True

    features: int

    def setup(self):
        self.inner = nn.Dense(self.features)
        self.query = nn.Dense(self.features)
        self.key = nn.Dense(self.features, use_bias=False)
        self.mean = nn.Dense(1)

    def per_key(self, top, values, targets):
        top, values, targets = jax.lax.stop_gradient((top, values, targets))
        u = jnp.tanh(self.inner(jnp.concatenate([top, targets], axis=-1)))
        return self.mean(u) + jnp.einsum("btd,bsd->bts", self.query(u), self.key(values)) / self.features**0.5

    def loss(self, hidden, f, sampled=None):
        rows, mass = jax.lax.stop_gradient(sampled.draw.rows), sampled.draw.mass
        chosen = jnp.einsum("...nk,...k->...n", rows, sampled.guess)
        return jnp.sum(mass * jnp.square(chosen - sampled.losses), axis=-1)


BASELINES = {
    "none": NoBaseline,
    "leave_one_out": NoBaseline,
    "soft": NoBaseline,
    "running_mean": RunningMean,
    "learned": LearnedBaseline,
    "per_coordinate": PerCoordinate,
    "critic": Critic,
}
