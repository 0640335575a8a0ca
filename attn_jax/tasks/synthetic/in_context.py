"""In-context regression: learn a line from a few pairs (x, y), and evaluate it at a query (Garg 2022, 2208.01066).

    w ~ N(0, I / d)      x ~ N(0, I)      y = w . x + noise,  noise ~ N(0, s^2)

No predictor is better on average than the mean of y given the pairs. With n pairs X [n, d] the posterior is normal,

    C = (d I + X'X / s^2)^-1        E[w] = C X'y / s^2        Bayes error at x = s^2 + x' C x

so each sequence has an exact Bayes error, and any other prediction p has a larger expected error, by (p - E[y])^2. The
mean is ridge regression with the ridge d s^2. Examples are arrays, not texts; experiments/matrix/regression.py trains
on them.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attn_jax.parts import Options, option


class Regressions(NamedTuple):
    """Sequences of pairs, each with a query."""

    inputs: Float[np.ndarray, "b n d"]
    outputs: Float[np.ndarray, "b n"]
    counts: Int[np.ndarray, " b"]  # number of given pairs; the others are padding
    query: Float[np.ndarray, "b d"]
    answer: Float[np.ndarray, " b"]  # y of the query, with noise


class Bayes(NamedTuple):
    """The best prediction of each query, and its expected squared error."""

    mean: Float[np.ndarray, " b"]
    error: Float[np.ndarray, " b"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class InContextOptions(Options):
    """Options of in-context regression."""

    features: int = option(4, "columns of an input", at_least=1, at_most=1000)
    num_pairs: int = option(16, "most pairs that are given", at_least=1, at_most=100_000)
    noise: float = option(0.25, "standard deviation of the noise; outputs without it have variance 1", at_least=1e-6)

    def sample(self, count: int, rng: np.random.Generator, num_pairs: int = 0) -> Regressions:
        """Samples sequences with `num_pairs` pairs; 0: 1 to self.num_pairs, equally often."""
        size = num_pairs or self.num_pairs
        slope = rng.normal(0, self.features**-0.5, (count, self.features))
        inputs = rng.normal(size=(count, size + 1, self.features))
        outputs = np.einsum("bnd,bd->bn", inputs, slope) + rng.normal(0, self.noise, (count, size + 1))
        counts = np.full(count, size) if num_pairs else rng.integers(1, size + 1, count)
        given = np.arange(size) < counts[:, None]
        x, y = np.where(given[..., None], inputs[:, :-1], 0), np.where(given, outputs[:, :-1], 0)
        return Regressions(x, y, counts, inputs[:, -1], outputs[:, -1])

    def bayes(self, examples: Regressions) -> Bayes:
        """Computes the posterior mean of each answer, and the Bayes error; zeros of padding add no information."""
        x, variance = examples.inputs, self.noise**2
        precision = self.features * np.eye(self.features) + np.einsum("bni,bnj->bij", x, x) / variance
        moment = np.einsum("bnd,bn->bd", x, examples.outputs) / variance
        solved = np.linalg.solve(precision, np.stack([moment, examples.query], axis=-1))
        mean, spread = np.einsum("bd,bds->sb", examples.query, solved)
        return Bayes(mean, variance + spread)
