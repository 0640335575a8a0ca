"""Bias and variance of estimators that read one sampled key and use the gradient of f there, on the toy problem.

Three bits and eight keys as in experiments/estimator_toys.py, with f = sum_i |b_i - c_i|^2, which is quadratic in the
one-hot row that is read, and with f = sum_i (b_i - c_i)^4, which is not. Where the sampled keys are all that is random,
bias and variance are sums over them; else they come from many samples, and the bias has a standard error.
experiments/estimator_variance.py writes the table.

Answer: ReinMax has no bias for the first f, and 2.5 to 5 times the variance of gapped straight-through, which itself is
far above that of two samples with leave-one-out. For the second f its bias is the least where the weights are peaked,
and larger than that of straight-through where they are flat. ReinMax-Rao has less variance, and nearly the bias of
Gumbel-Rao; ReinMax-CV has more variance than ReinMax, which has no noise given the sampled key.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.attention import READINGS
from attn_jax.attention.hard.estimators import combine
from experiments.estimator_toys import ATOMS, CENTER, log_probs
from tests.oracles import enumeration

POWERS = (2, 4)


class Entry(NamedTuple):
    """An estimator of the table."""

    label: str
    reading: str
    options: tuple[tuple[str, float], ...] = ()
    evaluations: int = 1  # of f
    exact: str = ""  # what is enumerated: "keys", "pairs", "coupled"; "" where the noise is continuous


ENTRIES = (
    Entry("leave-one-out", "reinforce", (("num_samples", 2), ("leave_one_out", True)), 2, "pairs"),
    Entry("coupled", "coupled", (), 2, "coupled"),
    Entry("Gumbel-softmax", "gumbel_softmax"),
    Entry("straight-through (Gumbel)", "straight_through"),
    Entry("Gumbel-Rao, 10", "gumbel_rao"),
    Entry("gapped straight-through", "gapped", (), 1, "keys"),
    Entry("implicit MLE, step 1", "implicit_mle", (("step", 1.0),)),
    Entry("implicit MLE, step 10", "implicit_mle", (("step", 10.0),)),
    Entry("ReinMax", "reinmax", (), 1, "keys"),
    Entry("ReinMax-Rao, 10", "reinmax_rao"),
    Entry("ReinMax-CV, 10", "reinmax_cv"),
)
OUTCOMES = {
    "keys": lambda p: [(probability, keys[0]) for probability, keys in enumeration.outcomes("reinforce", p)],
    "pairs": lambda p: enumeration.outcomes("reinforce", p, 2),
    "coupled": enumeration.antithetic_pairs,
}


class Moments(NamedTuple):
    """Bias of an estimate, its standard error (0: exact), and the variance."""

    bias: float
    error: float
    variance: float


def loss(contexts, power):
    return jnp.sum((contexts - CENTER) ** power, axis=-1)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _estimates(entry: Entry, power: int, eta, outcomes):
    """Returns the estimated derivatives with respect to eta, [w]."""
    reading, atoms = READINGS[entry.reading].configure(**dict(entry.options)), jnp.asarray(ATOMS)

    def surrogate(eta, outcome):
        sample = reading(outcome, log_probs(eta, atoms))
        return combine(sample, loss(sample.rows @ atoms, power))

    return jax.vmap(jax.grad(surrogate), (None, 0))(eta, outcomes)


def truth(eta: float, power: int) -> float:
    """Returns the derivative of E[f] with respect to eta."""
    atoms = jnp.asarray(ATOMS)
    return float(jax.grad(lambda eta: jnp.exp(log_probs(eta, atoms)) @ loss(atoms, power))(eta))


def moments(entry: Entry, eta: float, power: int, num_samples: int) -> Moments:
    """Computes bias and variance, exactly or from `num_samples` samples."""
    if entry.exact:
        found = OUTCOMES[entry.exact](np.exp(log_probs(eta, ATOMS)))
        each = np.asarray(_estimates(entry, power, eta, jnp.asarray(np.stack([outcome for _, outcome in found]))))
        probabilities = np.array([probability for probability, _ in found])
    else:
        each = np.asarray(_estimates(entry, power, eta, jax.random.split(jax.random.key(3), num_samples)))
        probabilities = np.full(num_samples, 1 / num_samples)
    mean = probabilities @ each
    variance = float(probabilities @ np.square(each - mean))
    error = 0.0 if entry.exact else (variance / num_samples) ** 0.5
    return Moments(float(mean - truth(eta, power)), error, variance)


def measure(etas: tuple[float, ...], num_samples: int) -> dict[tuple[str, int, float], Moments]:
    """Returns {(label, power, eta): moments}."""
    return {
        (entry.label, power, eta): moments(entry, eta, power, num_samples)
        for entry in ENTRIES
        for power in POWERS
        for eta in etas
    }


def bias_rows(
    measured: dict[tuple[str, int, float], Moments], power: int, etas: tuple[float, ...], number: Callable[[float], str]
) -> tuple[list[str], list[list[str]]]:
    """Returns (head, rows) of the table of one f: an estimator in each row, its bias and variance for each eta."""

    def cells(found: Moments) -> list[str]:
        sign = "-" if found.bias < -1e-12 else ""
        error = f" (SE {number(found.error)})" if found.error else ""
        return [f"{sign}{number(abs(found.bias))}{error}", number(found.variance)]

    rows = []
    for entry in ENTRIES:
        found = [measured.get((entry.label, power, eta)) for eta in etas]
        if all(found):
            rows.append([entry.label, str(entry.evaluations), *(cell for one in found for cell in cells(one))])
    head = [f"{what}, eta = {eta:g}" for eta in etas for what in ("bias", "variance")]
    return ["estimator", "evaluations of f", *head], rows
