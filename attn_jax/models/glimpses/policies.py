"""Policies: the place of the next glimpse, given the hidden state.

    policy(hidden [b, h], rng, choice) -> Choice

With an rng the place is sampled, a given `choice` is taken, otherwise it is the most probable place. No gradient flows
through a sampled place: the policy is trained through log_prob.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.dense import Dense
from attn_jax.attention.information import entropy
from attn_jax.layers.glimpses import PlaceGrid
from attn_jax.types import Array, Dtype, Float, Int, PRNGKeyArray


class Choice(struct.PyTreeNode):
    """A place, and its log-probability."""

    place: Float[Array, "b 2"]
    log_prob: Float[Array, "b"]  # log density of a place in the plane, or log probability of a cell
    entropy: Float[Array, "b"]  # entropy of the distribution, in nats


class GaussianPlaces(nn.Module, kw_only=True):
    """place ~ N(tanh(W hidden + b), sigma^2 I): Mnih 2014 (arXiv 1406.6247), section 3.1, with fixed sigma.

    A place outside of the image is moved to the nearest place on its edge, but keeps its log density.
    """

    sigma: float
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "b h"], rng: PRNGKeyArray | None = None, choice: Float[Array, "b 2"] | None = None
    ) -> Choice:
        mean = jnp.tanh(Dense(features=2, dtype=self.dtype, name="mean")(hidden)).astype(jnp.float32)
        if choice is None:
            choice = mean if rng is None else mean + self.sigma * jax.random.normal(rng, mean.shape, mean.dtype)
        choice = jax.lax.stop_gradient(choice)
        constant = math.log(2 * math.pi * self.sigma**2)
        log_prob = -jnp.sum(jnp.square(choice - mean), axis=-1) / (2 * self.sigma**2) - constant
        return Choice(jnp.clip(choice, -1, 1), log_prob, jnp.full(log_prob.shape, 1 + constant, log_prob.dtype))


class GridPlaces(nn.Module, kw_only=True):
    """place ~ softmax(W hidden + b) over the centres of the cells of a grid, so that places can be enumerated."""

    grid: PlaceGrid
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "b h"], rng: PRNGKeyArray | None = None, choice: Int[Array, "b"] | None = None
    ) -> Choice:
        centres = self.grid.centres()
        logits = Dense(features=len(centres), dtype=self.dtype, name="logits")(hidden).astype(jnp.float32)
        if choice is None:
            choice = jnp.argmax(logits, axis=-1) if rng is None else jax.random.categorical(rng, logits)
        log_probs = jax.nn.log_softmax(logits)
        own = jnp.take_along_axis(log_probs, choice[:, None], axis=-1)[:, 0]
        return Choice(centres[choice], own, entropy(jnp.exp(log_probs)))
