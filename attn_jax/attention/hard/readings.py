"""Readings: each draw under the name that a config gives it, with what it may be combined with."""

import dataclasses
import inspect
from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np

from attn_jax.attention.hard.relaxations import gumbel_rao, gumbel_softmax, rebar, straight_through
from attn_jax.attention.hard.samplers import (
    Draw,
    LogWeights,
    Outcome,
    every,
    mean,
    optimal_resampling,
    stochastic_sum_and_sample,
    stratified,
    sum_and_sample,
    systematic,
    top,
    unordered_set,
    with_replacement,
)
from attn_jax.types import Array, Float


def expectation(weights: Float[Array, "... q k"], values: Float[Array, "... k d"]) -> Float[Array, "... q d"]:
    """Soft attention: context_q = sum_k weights_qk values_k, the mean value under the weights."""
    return jnp.einsum("...qk,...kd->...qd", weights, values)


def log_of(weights: Float[Array, "... k"]) -> LogWeights:
    """log weights; -inf, without a gradient, where a weight is 0."""
    positive = weights > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, weights, 1)), -jnp.inf)


@dataclasses.dataclass(frozen=True)
class Reading:
    """A draw with its options, and what it may be combined with."""

    name: str
    function: Callable[..., Draw]
    baselines: tuple[str, ...] = ("none",)
    per_step: bool = False  # one row, so that what was read may be fed back into a recurrent state
    random: bool = True
    distinct: bool = False  # no key twice, so there have to be as many keys as samples

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the function."""
        return tuple(inspect.signature(self.function).parameters)[2:]

    @property
    def exact_rows(self) -> bool:
        """Every key has a row of its own."""
        return getattr(self.function, "func", self.function) is every

    @property
    def num_keys(self) -> int:
        """The fewest keys that it can be asked to read from."""
        return getattr(self.function, "keywords", {}).get("num_samples", 1) if self.distinct else 1

    def __call__(self, rng: Outcome | None, log_weights: LogWeights) -> Draw:
        """`function`, with rows of zeros where there is no key."""
        empty = jnp.all(log_weights == -jnp.inf, axis=-1, keepdims=True)
        draw = self.function(rng, jnp.where(empty, -np.log(log_weights.shape[-1]), log_weights))
        return draw.replace(rows=jnp.where(empty[..., None], 0, draw.rows), log_prob=jnp.where(empty, 0, draw.log_prob))

    def configure(self, **options) -> "Reading":
        """With these options of the function fixed."""
        return dataclasses.replace(self, function=partial(self.function, **options))


# Anything that knows nothing of the draw.
CONSTANT = ("none", "running_mean", "learned", "soft", "per_coordinate", "critic")
READINGS = {
    reading.name: reading
    for reading in (
        Reading("expectation", mean, per_step=True, random=False),
        Reading("enumeration", every, random=False),
        Reading("reinforce", with_replacement, (*CONSTANT, "leave_one_out"), per_step=True),
        Reading("stratified", stratified, CONSTANT),
        Reading("systematic", systematic, CONSTANT),
        Reading("sum_and_sample", sum_and_sample, CONSTANT, distinct=True),
        Reading("stochastic_sum_and_sample", stochastic_sum_and_sample, CONSTANT, distinct=True),
        Reading("unordered_set", unordered_set, (*CONSTANT, "leave_one_out"), distinct=True),
        Reading("optimal_resampling", optimal_resampling, CONSTANT, distinct=True),
        Reading("rebar", rebar, ("none", "running_mean", "learned", "soft")),
        Reading("gumbel_softmax", gumbel_softmax, per_step=True),
        Reading("straight_through", straight_through, per_step=True),
        Reading("gumbel_rao", gumbel_rao, per_step=True),
        Reading("top", top, per_step=True, random=False),
    )
}
