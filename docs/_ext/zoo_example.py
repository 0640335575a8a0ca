"""The example that all pages of the zoo share: twelve positions, each a query and a key, and what is drawn of them.

Position t has the angle 2 pi t / 8 and a slower one, so a query resembles the keys near to it and those eight positions
away. The last two keys are longer, and keys 3 and 4 are short: products see this, distances see it differently.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.attention.hard.estimators import combine
from attn_jax.attention.hard.readings import READINGS

SIZE, WIDTH, SAMPLES = 12, 4, 500
RNG = jax.random.key(0)
T = np.arange(SIZE)
ANGLES = np.stack([2 * np.pi * T / 8, 2 * np.pi * T / 24], axis=1)
POINTS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=2).reshape(SIZE, WIDTH)
LENGTHS = np.where(T >= 10, 1.4, np.where((T == 3) | (T == 4), 0.6, 1.0))[:, None]
QUERY = jnp.asarray(2 * POINTS, jnp.float32)
KEYS = jnp.asarray(2 * POINTS * LENGTHS, jnp.float32)
VALUES = jnp.asarray(np.stack([T / SIZE, np.cos(T)], axis=1), jnp.float32)
MASK = jnp.ones((SIZE, SIZE), bool)
CAUSAL = jnp.tril(MASK)
SCORES = QUERY @ KEYS.T / WIDTH**0.5  # of the scaled dot product
LOGITS = jnp.array([2.0, 1.0, 0.0, 0.0, -0.5, -1.5])  # of the keys that readings choose from
TARGETS = jnp.array([0.2, -0.3, 0.9, 0.1, -0.6, 0.5])  # values at these keys


def loss(rows: jax.Array) -> jax.Array:
    """f of a context, for the readings: a square, so that E f(value) is not f(E value)."""
    return jnp.square(rows @ TARGETS - 1.0) + 0.3 * (rows @ TARGETS)


def initialized(module: Any, *arguments: Any, method: Any = None, **named: Any) -> tuple[Any, Any]:
    """Returns (variables of a module, what it computes), with its parameters drawn from one rng."""
    run = jax.jit(lambda *arguments: module.init_with_output(RNG, *arguments, method=method, **named))
    made, variables = run(*arguments)
    return variables, made


def number_of(variables: Any) -> int:
    """Counts the parameters."""
    return sum(x.size for x in jax.tree.leaves(variables))


class Readings(NamedTuple):
    """What a reading did on the example, many times."""

    rows: np.ndarray  # [samples, keys]: the weight that a reading gives to each key
    evaluations: int  # of the loss, in one reading
    exact: np.ndarray  # gradient of E f with respect to the logits
    gradients: np.ndarray  # [samples, keys]: its estimates


@functools.cache
def readings_of(name: str, samples: int = SAMPLES) -> Readings:
    """Reads the six keys many times, by the default options of an entry of READINGS."""
    reading = READINGS[name]

    def surrogate(logits, rng):
        sample = reading(rng, jax.nn.log_softmax(logits))
        read = sample.importance_weights @ sample.rows, sample.importance_weights
        return combine(sample, loss(sample.rows)), jax.lax.stop_gradient(read)

    many = jax.jit(jax.vmap(jax.grad(surrogate, has_aux=True), (None, 0)))
    gradients, (rows, weights) = many(LOGITS, jax.random.split(RNG, samples))
    probs, losses = jax.nn.softmax(LOGITS), loss(jnp.eye(len(LOGITS)))
    exact = probs * (losses - probs @ losses)
    return Readings(np.asarray(rows), weights.shape[-1], np.asarray(exact), np.asarray(gradients))
