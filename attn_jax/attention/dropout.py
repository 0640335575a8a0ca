"""Dropout with 16 random bits per entry.

In a small Transformer on a CPU much of the time goes into random bits. A mask of n entries takes n / 2 words of 32
bits; comparing uniform numbers takes n words.
"""

import math
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.types import Array, Bool, PRNGKeyArray

LEVELS = 1 << 16  # number of values of 16 bits


def keep_probability(rate: float) -> float:
    """Returns 1 - rate rounded to a multiple of 1 / LEVELS, the exact probability of True in a `keep_mask`."""
    return round((1 - rate) * LEVELS) / LEVELS


def keep_mask(rng: PRNGKeyArray, rate: float, shape: Sequence[int]) -> Bool[Array, "..."]:
    """Draws independent Bernoulli variables, True with probability `keep_probability(rate)`."""
    size = math.prod(shape)
    words = jax.random.bits(rng, (-(-size // 2),), jnp.uint32)
    halves = jnp.stack([words & (LEVELS - 1), words >> 16])
    return (halves < round((1 - rate) * LEVELS)).reshape(-1)[:size].reshape(shape)


def drop(rng: PRNGKeyArray, rate: float, inputs: Array, broadcast_dims: Sequence[int] = ()) -> Array:
    """Sets entries to zero at random and divides the others by the probability of keeping one (Srivastava 2014).

    All entries along the axes `broadcast_dims` share one decision. The mean of the result is `inputs`; at rate 1
    everything is zero.

    Raises:
        ValueError: the rate is not from 0 to 1.
    """
    _check(rate)
    shape = [1 if axis in {d % inputs.ndim for d in broadcast_dims} else n for axis, n in enumerate(inputs.shape)]
    return jnp.where(keep_mask(rng, rate, shape), inputs / max(keep_probability(rate), 1 / LEVELS), 0)


def dropout_rng(module: nn.Module) -> PRNGKeyArray:
    """Returns the next key of the rng stream "dropout".

    Raises:
        ValueError: the module was called without this stream.
    """
    if not module.has_rng("dropout"):
        raise ValueError('dropout in training needs a key: apply(..., rngs={"dropout": jax.random.key(0)})')
    return module.make_rng("dropout")


def _check(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise ValueError(f"the rate of dropout is {rate}; expected 0 to 1")


class Dropout(nn.Module, kw_only=True):
    """Computes `drop` with the rng stream "dropout", or returns the inputs if `deterministic` or at rate 0.

    Raises:
        ValueError: the rate is not from 0 to 1; there is no such stream.
    """

    rate: float
    broadcast_dims: Sequence[int] = ()

    @nn.compact
    def __call__(self, inputs: Array, *, deterministic: bool) -> Array:
        _check(self.rate)
        if deterministic or self.rate == 0:
            return inputs
        return drop(dropout_rng(self), self.rate, inputs, self.broadcast_dims)
