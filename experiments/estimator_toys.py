"""Toy problems small enough for enumeration, which gives the exact variance of estimators of the gradient of E[f].

The toy problem of Liu 2019 (arXiv 1810.04777) and Kool 2020 (arXiv 2002.06043) has three bits, so eight keys; the other
has ten keys with a logit each. experiments/estimator_variance.py describes the measurements and writes the results.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attn_jax.attention import READINGS
from attn_jax.attention.hard.estimators import combine, coordinate_moments
from tests.oracles import enumeration

CENTER = np.array([0.6, 0.51, 0.48])
ATOMS = np.array([[i >> 2 & 1, i >> 1 & 1, i & 1] for i in range(8)], float)  # in lexicographic order
DRAWS = (
    "reinforce",
    "stratified",
    "systematic",
    "sum_and_sample",
    "stochastic_sum_and_sample",
    "unordered_set",
    "optimal_resampling",
)
BUILT_IN = ("reinforce", "unordered_set")  # have a leave-one-out baseline
ADAPTIVE = "optimal_resampling"
CHOICE = (ADAPTIVE, "sum_and_sample")


class Setting(NamedTuple):
    """Sizes of the experiment."""

    etas: tuple[float, ...] = (0.0, -4.0)  # of the tables
    samples: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)  # k
    sweep: tuple[float, ...] = tuple(np.linspace(0, -6, 13))  # of eta, in the figure
    sweep_samples: int = 4
    learned: tuple[int, ...] = (100, 1_000, 10_000)  # draws from which the baseline is learned
    num_seeds: int = 20
    num_orders: int = 20  # random orders of the keys
    concentrations: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)  # standard deviations of ten logits
    rebar_steps: int = 2_000
    rebar_batch: int = 64
    rebar_samples: int = 200_000


class Parts(NamedTuple):
    """All outcomes of an estimator on the toy problem; with a constant baseline b the estimate is a - b unit."""

    probabilities: np.ndarray  # [w]
    a: np.ndarray  # [w]
    unit: np.ndarray  # [w], the estimate for f = 1
    value: np.ndarray  # [w], the estimate of E[f]
    divide: float = 1.0  # the variance by this: independent samples are enumerated one at a time

    def best(self) -> float:
        """b* = E[A B] / E[B^2]."""
        square = self.probabilities @ np.square(self.unit)
        return float(self.probabilities @ (self.a * self.unit) / square) if square > 0 else 0.0

    def variance(self, b: float = 0.0) -> float:
        each = self.a - b * self.unit
        return float(self.probabilities @ np.square(each - self.probabilities @ each)) / self.divide


def log_probs(eta, atoms):
    """Returns log q(b) of each atom [k]."""
    return jnp.sum(atoms * jax.nn.log_sigmoid(eta) + (1 - atoms) * jax.nn.log_sigmoid(-eta), axis=-1)


def losses(contexts):
    """Returns f = |b - center|^2 for each context [..., 3]."""
    return jnp.sum(jnp.square(contexts - CENTER), axis=-1)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _estimates(name, num_samples, leave_one_out, eta, atoms, outcomes):
    """Returns (A, B, estimate of E[f]), each [w], for outcomes [w, ...] of the sampler."""
    reading = READINGS[name].configure(num_samples=num_samples, **({"leave_one_out": True} if leave_one_out else {}))

    def surrogates(eta, outcome):
        sample = reading(outcome, log_probs(eta, atoms))
        value = combine(sample, losses(sample.rows @ atoms))
        return (value, combine(sample, jnp.ones_like(sample.importance_weights))), value

    def estimate(outcome):
        (a, unit), value = jax.jacrev(surrogates, has_aux=True)(eta, outcome)
        return a, unit, value

    return jax.vmap(estimate)(outcomes)


def parts(name: str, num_samples: int, eta: float, built_in: bool = False, atoms=ATOMS) -> Parts:
    """Returns all outcomes of a sampler with num_samples evaluations."""
    independent = name == "reinforce" and not built_in
    drawn = 1 if independent else num_samples
    found = enumeration.outcomes(name, np.exp(log_probs(eta, atoms)), drawn)
    if name in BUILT_IN:
        found = enumeration.regardless_of_order(found)
    stacked = np.stack([outcome for _, outcome in found])
    # As long as the next power of two: fewer programs to compile.
    repeated = np.resize(stacked, (1 << (len(found) - 1).bit_length(), *stacked.shape[1:]))
    each = _estimates(name, drawn, built_in, eta, jnp.asarray(atoms), jnp.asarray(repeated))
    probabilities = np.array([probability for probability, _ in found])
    return Parts(probabilities, *np.asarray(each)[:, : len(found)], num_samples if independent else 1)


def leave_one_out_variance(num_samples: int, eta: float) -> float:
    """Returns the variance of REINFORCE with the leave-one-out baseline, without enumeration of all tuples.

    The estimator is the U-statistic with the kernel h(x, y) = (f_x - f_y) (s_x - s_y) / 2, so (Hoeffding 1948)

        Var = 2 / (T (T - 1)) (2 (T - 2) Var E[h | x] + Var h).
    """
    single = parts("reinforce", 1, eta)
    p, f, score = single.probabilities, single.a / single.unit, single.unit
    kernel = (f[:, None] - f) * (score[:, None] - score) / 2
    mean = p @ kernel @ p
    one, both = p @ np.square(kernel @ p - mean), p @ np.square(kernel - mean) @ p
    return float(2 / (num_samples * (num_samples - 1)) * (2 * (num_samples - 2) * one + both))


def variances(num_samples: int, eta: float, atoms=ATOMS) -> dict[tuple[str, str], float]:
    """Returns {(sampler, baseline): variance}; baselines: none, mean (E f), best (b*), leave_one_out."""
    mean = float(np.exp(log_probs(eta, atoms)) @ losses(atoms))
    found = {}
    for name in DRAWS:
        of = parts(name, num_samples, eta, atoms=atoms)
        for baseline, b in {"none": 0.0, "mean": mean, "best": of.best()}.items():
            found[name, baseline] = of.variance(b)
        if name == "reinforce" and num_samples > 1:
            found[name, "leave_one_out"] = leave_one_out_variance(num_samples, eta)
        elif name in BUILT_IN and num_samples > 1:
            found[name, "leave_one_out"] = parts(name, num_samples, eta, True, atoms).variance()
    return found


class Sums(NamedTuple):
    """Running means over the samples of an estimator, each [n], after 1, 2, ..., n samples."""

    a: np.ndarray
    unit: np.ndarray
    value: np.ndarray
    a_unit: np.ndarray
    unit_unit: np.ndarray
    a_a: np.ndarray

    @classmethod
    def of(cls, drawn: Parts, count: int, rng: np.random.Generator) -> "Sums":
        """Returns the running means over `count` outcomes, sampled with their probabilities."""
        which = rng.choice(len(drawn.probabilities), count, p=drawn.probabilities / drawn.probabilities.sum())
        a, unit, value = drawn.a[which], drawn.unit[which], drawn.value[which]
        columns = np.stack([a, unit, value, a * unit, unit * unit, a * a])
        return cls(*(np.cumsum(columns, axis=1) / np.arange(1, count + 1)))

    def ratio(self) -> np.ndarray:
        """b [n] = mean A B / mean B^2."""
        return self.a_unit / np.maximum(self.unit_unit, 1e-300)

    def regression(self) -> np.ndarray:
        """b [n] = m + sum (A - m B) (B - mean B) / (sum (B - mean B)^2 + mean B^2), m the mean estimate of E[f]."""
        covariance = self.a_unit - self.a * self.unit - self.value * (self.unit_unit - self.unit**2)
        variance = np.maximum(self.unit_unit - self.unit**2, 0)
        prior = self.unit_unit / np.arange(1, len(self.a) + 1)
        return self.value + covariance / np.maximum(variance + prior, 1e-300)

    def noise(self, b: np.ndarray) -> np.ndarray:
        """Returns the variance of A - b B over the samples so far, [n]."""
        square = self.a_a - 2 * b * self.a_unit + b**2 * self.unit_unit
        return square - np.square(self.a - b * self.unit)


def learned_variances(num_samples: int, eta: float, setting: Setting, atoms=ATOMS) -> dict[str, np.ndarray]:
    """Returns {"ratio", "adaptive": [seeds, len(learned)]}: exact variances after learning from `learned` samples."""
    of = {name: parts(name, num_samples, eta, atoms=atoms) for name in CHOICE}
    rows: dict[str, list] = {"ratio": [], "adaptive": []}
    for seed in range(setting.num_seeds):
        rng, counts = np.random.default_rng([seed, num_samples]), np.array(setting.learned)
        ratio = Sums.of(of[ADAPTIVE], max(counts), rng).ratio()[counts - 1]
        rows["ratio"].append([of[ADAPTIVE].variance(b) for b in ratio])
        candidates = []
        for drawn in of.values():
            sums = Sums.of(drawn, max(counts) // 2, rng)
            b = sums.regression()
            candidates.append([(sums.noise(b)[n // 2 - 1], drawn.variance(b[n // 2 - 1])) for n in counts])
        rows["adaptive"].append([min(pair)[1] for pair in zip(*candidates, strict=True)])
    return {name: np.array(values) for name, values in rows.items()}


def best_of(found: dict[tuple[str, str], float], oracle: bool) -> tuple[tuple[str, str], float]:
    """Returns the least variance of the published estimators, without an oracle or with E f or b*."""
    allowed = ("mean", "best") if oracle else ("none", "leave_one_out")
    # The papers on these estimators do not have optimal resampling.
    own = {key: value for key, value in found.items() if key[1] in allowed and key[0] != ADAPTIVE}
    return min(own.items(), key=lambda item: item[1])


def orders(setting: Setting) -> list[np.ndarray]:
    """Returns the keys in random orders."""
    rng = np.random.default_rng(0)
    return [ATOMS[rng.permutation(len(ATOMS))] for _ in range(setting.num_orders)]


def rebar(eta: float, setting: Setting, baseline: bool) -> tuple[np.ndarray, float, float]:
    """Returns ((temperature, scale, b), variance, its standard error) of REBAR.

    Adam minimizes the square of the estimate, whose mean is the variance plus a constant. Without a baseline b is 0.
    """
    atoms = jnp.asarray(ATOMS)

    def estimate(eta, phi, rng):
        def surrogate(eta):
            reading = READINGS["rebar"].configure(temperature=jnp.exp(phi[0]), scale=phi[1])
            draw = reading(rng, log_probs(eta, atoms))
            return combine(draw, losses(draw.rows @ atoms) - (phi[2] if baseline else 0.0))

        return jax.grad(surrogate)(eta)

    def square(phi, rngs):
        return jnp.mean(jnp.square(jax.vmap(estimate, (None, None, 0))(eta, phi, rngs)))

    tx = optax.adam(optax.cosine_decay_schedule(0.02, setting.rebar_steps))
    phi = jnp.array([np.log(0.5), 1.0, 0.0])

    def step(carry, rng):
        phi, opt_state = carry
        # Near eta = -4 squares are small and noisy: Adam takes care of their size, a long batch of their noise.
        updates, opt_state = tx.update(jax.grad(square)(phi, jax.random.split(rng, setting.rebar_batch)), opt_state)
        return (optax.apply_updates(phi, updates), opt_state), None

    eta = jnp.asarray(eta)
    train_rng, test_rng = jax.random.split(jax.random.key(1))
    train = jax.jit(lambda phi, rngs: jax.lax.scan(step, (phi, tx.init(phi)), rngs)[0][0])
    phi = train(phi, jax.random.split(train_rng, setting.rebar_steps))
    rngs = jax.random.split(test_rng, setting.rebar_samples)
    each = np.asarray(jax.jit(jax.vmap(estimate, (None, None, 0)))(eta, phi, rngs))
    squares = np.square(each - each.mean())
    learned = np.array([np.exp(phi[0]), *phi[1:]])
    return learned, squares.mean(), squares.std() / len(squares) ** 0.5


# Ten keys, with a logit each: the baseline may be another one for each coordinate of the gradient.


class Ten(NamedTuple):
    """A softmax over ten logits, and a loss per key."""

    logits: np.ndarray
    f: np.ndarray

    @property
    def p(self) -> np.ndarray:
        weights = np.exp(self.logits - self.logits.max())
        return weights / weights.sum()


def tens(concentration: float, count: int = 5) -> list[Ten]:
    """Makes problems with logits N(0, concentration^2) and f = 5 + N(0, 1)."""
    rng = np.random.default_rng(0)
    return [Ten(concentration * rng.normal(size=10), 5 + rng.normal(size=10)) for _ in range(count)]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _gradients(name, num_samples, leave_one_out, logits, f, baseline, coordinates, rngs):
    """Returns estimated gradients for the logits [w, 10], and coordinate_moments, for rngs or outcomes."""
    reading = READINGS[name].configure(num_samples=num_samples, **({"leave_one_out": True} if leave_one_out else {}))

    def surrogate(logits, rng):
        log_weights = jax.nn.log_softmax(logits)
        draw = reading(rng, log_weights)
        moments = coordinate_moments(draw, log_weights, draw.rows @ f)
        return combine(draw, draw.rows @ f, baseline, log_weights, coordinates), moments

    return jax.vmap(jax.grad(surrogate, has_aux=True), (None, 0))(logits, rngs)


def total_variance(ten: Ten, name: str, num_samples: int, built_in=False, baseline=0.0, coordinates=None) -> float:
    """Returns the sum over logits of the variance of the gradient, by enumeration."""
    found = enumeration.outcomes(name, ten.p, num_samples)
    if name in BUILT_IN:
        found = enumeration.regardless_of_order(found)
    stacked = np.stack([outcome for _, outcome in found])
    repeated = np.resize(stacked, (1 << (len(found) - 1).bit_length(), *stacked.shape[1:]))
    coordinates = np.zeros(10) if coordinates is None else coordinates
    arguments = map(jnp.asarray, (ten.logits, ten.f, baseline, coordinates, repeated))
    each = np.asarray(_gradients(name, num_samples, built_in, *arguments)[0])[: len(found)]
    probabilities = np.array([probability for probability, _ in found])
    return float(np.sum(probabilities @ np.square(each - probabilities @ each)))


def learned_coordinates(ten: Ten, name: str, num_samples: int, count: int) -> np.ndarray:
    """Returns b_i [10], learned from `count` samples as sum A_i B_i / sum B_i^2."""
    rngs = jax.random.split(jax.random.key(2), count)
    arguments = map(jnp.asarray, (ten.logits, ten.f, 0.0, np.zeros(10)))
    cross, square = (np.sum(x, axis=0) for x in _gradients(name, num_samples, False, *arguments, rngs)[1])
    # A key that was never drawn has no moments of its own; it gets those of all.
    return np.where(
        square > 1e-3 * square.max() / count, cross / np.maximum(square, 1e-300), cross.sum() / square.sum()
    )


def ten_rows(ten: Ten, num_samples: int, setting: Setting) -> dict[str, float]:
    """Returns total variances by estimator and baseline."""
    mean = float(ten.p @ ten.f)
    variance = functools.partial(total_variance, ten, num_samples=num_samples)
    rows = {
        "REINFORCE": variance(name="reinforce"),
        "REINFORCE, leave-one-out": variance(name="reinforce", built_in=True),
        "unordered set, built-in": variance(name="unordered_set", built_in=True),
        "REINFORCE, E f (oracle)": variance(name="reinforce", baseline=mean),
        "sum and sample, E f (oracle)": variance(name="sum_and_sample", baseline=mean),
        "stratified, E f (oracle)": variance(name="stratified", baseline=mean),
        "unordered set, E f (oracle)": variance(name="unordered_set", baseline=mean),
        "optimal resampling, E f (oracle)": variance(name=ADAPTIVE, baseline=mean),
    }
    for name, label in (("reinforce", "REINFORCE"), (ADAPTIVE, "optimal resampling")):
        for count in setting.learned:
            coordinates = learned_coordinates(ten, name, num_samples, count)
            rows[f"{label}, per coordinate, {count:,} draws"] = variance(name=name, coordinates=coordinates)
    return rows
