"""Which estimator of the gradient of E[f] has the least variance, and can its baseline be learned on the way?

    python experiments/estimator_variance.py

The toy problem of Liu 2019 (arXiv 1810.04777) and Kool 2020 (arXiv 2002.06043): three bits b_i, independent and 1 with
probability sigmoid(eta), so eight keys; f = |b - (.6, .51, .48)|^2; the derivative of E[f] with respect to eta. There
is no sampling error in the tables: the variances are sums over all outcomes of the randomness of the package's own
draws (attn_jax/attention/enumeration.py), but for those of REBAR. k is the number of evaluations of f.

An estimate is A - b B for a constant baseline b, with A the estimate for f and B the same for f = 1. The variance is
least at b* = E[A B] / E[B^2]. This needs no oracle: both are means over draws, which a run can keep. Two estimators
here learn in this way, from draws before the present one, which leaves them unbiased:

    learned ratio    optimal resampling, b = (sum A B) / (sum B^2)
    adaptive         the better of optimal resampling and sum and sample, by the variance of A - b B over half of the
                     draws each, with b = m + sum (A - m B) (B - mean B) / (sum (B - mean B)^2 + mean B^2), m the mean
                     estimate of E[f]: a regression that falls back on m while one outcome is all it has seen

Answer (experiments/results/estimator_variance.md): of the published estimators none is best everywhere. With 1,000
draws to learn from, `adaptive` is below all of them that need no oracle, at every k from 1 to 7 and at both eta of the
table, flat and peaked, in lexicographic order of the keys as well as in the mean over orders: at k = 4 by a factor of
four at eta = 0 in that mean (in lexicographic order its variance is 0 there, which is luck: the errors of every other
corner cancel), and by a fifth at eta = -4. It is about a fifth above the best of those that know E f or b* at worst,
where that is not 0. The plain ratio needs more draws the more peaked the weights are: until the rare outcomes were seen
it fits the frequent ones alone. REBAR, with its temperature and scale trained, is no better here than one sample with
a baseline. With ten keys and a logit each, a baseline per coordinate makes more of a difference than the draw: 6 to 40
times less variance than leave-one-out with the same REINFORCE samples; with optimal resampling 9 to 50 times less than
the unordered set with its built-in baseline.
"""

import argparse
import datetime
import functools
import os
import pathlib
import platform
import re
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax import figures  # noqa: E402
from attn_jax.attention import READINGS, enumeration  # noqa: E402
from attn_jax.attention.estimators import combine, coordinate_moments  # noqa: E402

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
COLORS = dict(
    zip(DRAWS, ("0.5", "tab:olive", "tab:brown", "tab:blue", "tab:cyan", "tab:green", "tab:red"), strict=True)
)


class Setting(NamedTuple):
    """How much of everything."""

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
    """An estimator on the toy problem, over all its outcomes: the estimate with a constant baseline b is a - b unit."""

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
    """log q(b) of each atom [k]."""
    return jnp.sum(atoms * jax.nn.log_sigmoid(eta) + (1 - atoms) * jax.nn.log_sigmoid(-eta), axis=-1)


def losses(contexts):
    """f = |b - center|^2 for each context [..., 3]."""
    return jnp.sum(jnp.square(contexts - CENTER), axis=-1)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _estimates(name, num_samples, leave_one_out, eta, atoms, outcomes):
    """(A, B, estimate of E[f]), each [w], for outcomes [w, ...] of the draw."""
    reading = READINGS[name].configure(num_samples=num_samples, **({"leave_one_out": True} if leave_one_out else {}))

    def surrogates(eta, outcome):
        draw = reading(outcome, log_probs(eta, atoms))
        value = combine(draw, losses(draw.rows @ atoms))
        return (value, combine(draw, jnp.ones_like(draw.mass))), value

    def estimate(outcome):
        (a, unit), value = jax.jacrev(surrogates, has_aux=True)(eta, outcome)
        return a, unit, value

    return jax.vmap(estimate)(outcomes)


def parts(name: str, num_samples: int, eta: float, built_in: bool = False, atoms=ATOMS) -> Parts:
    """All outcomes of a draw with num_samples evaluations."""
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
    """Of REINFORCE with the leave-one-out baseline, without going through all tuples: it is the U-statistic with the
    kernel h(x, y) = (f_x - f_y) (s_x - s_y) / 2, so (Hoeffding 1948)

        Var = 2 / (T (T - 1)) (2 (T - 2) Var E[h | x] + Var h).
    """
    single = parts("reinforce", 1, eta)
    p, f, score = single.probabilities, single.a / single.unit, single.unit
    kernel = (f[:, None] - f) * (score[:, None] - score) / 2
    mean = p @ kernel @ p
    one, both = p @ np.square(kernel @ p - mean), p @ np.square(kernel - mean) @ p
    return float(2 / (num_samples * (num_samples - 1)) * (2 * (num_samples - 2) * one + both))


def variances(num_samples: int, eta: float, atoms=ATOMS) -> dict[tuple[str, str], float]:
    """{(draw, baseline): variance}, baseline one of none, mean (E f), best (b*), leave_one_out."""
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
    """Running means over the draws of an estimator so far, each [n] after 1, 2, ..., n of them."""

    a: np.ndarray
    unit: np.ndarray
    value: np.ndarray
    a_unit: np.ndarray
    unit_unit: np.ndarray
    a_a: np.ndarray

    @classmethod
    def of(cls, drawn: Parts, count: int, rng: np.random.Generator) -> "Sums":
        """Of `count` outcomes, drawn with their probabilities."""
        which = rng.choice(len(drawn.probabilities), count, p=drawn.probabilities / drawn.probabilities.sum())
        a, unit, value = drawn.a[which], drawn.unit[which], drawn.value[which]
        columns = np.stack([a, unit, value, a * unit, unit * unit, a * a])
        return cls(*(np.cumsum(columns, axis=1) / np.arange(1, count + 1)))

    def ratio(self) -> np.ndarray:
        """b [n] = mean A B / mean B^2."""
        return self.a_unit / np.maximum(self.unit_unit, 1e-300)

    def regression(self) -> np.ndarray:
        """b [n] as in the docstring of this file."""
        covariance = self.a_unit - self.a * self.unit - self.value * (self.unit_unit - self.unit**2)
        variance = np.maximum(self.unit_unit - self.unit**2, 0)
        prior = self.unit_unit / np.arange(1, len(self.a) + 1)
        return self.value + covariance / np.maximum(variance + prior, 1e-300)

    def noise(self, b: np.ndarray) -> np.ndarray:
        """The variance of A - b B over the draws so far, [n]."""
        square = self.a_a - 2 * b * self.a_unit + b**2 * self.unit_unit
        return square - np.square(self.a - b * self.unit)


def learned_variances(num_samples: int, eta: float, setting: Setting, atoms=ATOMS) -> dict[str, np.ndarray]:
    """{"ratio", "adaptive": [seeds, len(learned)]}: the exact variance with what was learned from so many draws."""
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
    """The least variance among the published estimators that need nothing but their own samples, or with E f or b*."""
    allowed = ("mean", "best") if oracle else ("none", "leave_one_out")
    # The papers on these estimators do not have optimal resampling.
    own = {key: value for key, value in found.items() if key[1] in allowed and key[0] != ADAPTIVE}
    return min(own.items(), key=lambda item: item[1])


def orders(setting: Setting) -> list[np.ndarray]:
    """The keys in random orders."""
    rng = np.random.default_rng(0)
    return [ATOMS[rng.permutation(len(ATOMS))] for _ in range(setting.num_orders)]


def rebar(eta: float, setting: Setting, baseline: bool) -> tuple[np.ndarray, float, float]:
    """((temperature, scale, b), variance, its standard error): trained by Adam on the square of the estimate, whose
    mean is the variance plus a constant. Without a baseline b stays 0."""
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
    """Logits N(0, concentration^2), f = 5 + N(0, 1)."""
    rng = np.random.default_rng(0)
    return [Ten(concentration * rng.normal(size=10), 5 + rng.normal(size=10)) for _ in range(count)]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _gradients(name, num_samples, leave_one_out, logits, f, baseline, coordinates, rngs):
    """Estimated gradients with respect to the logits [w, 10], and coordinate_moments, for rngs or outcomes."""
    reading = READINGS[name].configure(num_samples=num_samples, **({"leave_one_out": True} if leave_one_out else {}))

    def surrogate(logits, rng):
        log_weights = jax.nn.log_softmax(logits)
        draw = reading(rng, log_weights)
        moments = coordinate_moments(draw, log_weights, draw.rows @ f)
        return combine(draw, draw.rows @ f, baseline, log_weights, coordinates), moments

    return jax.vmap(jax.grad(surrogate, has_aux=True), (None, 0))(logits, rngs)


def total_variance(ten: Ten, name: str, num_samples: int, built_in=False, baseline=0.0, coordinates=None) -> float:
    """The sum over logits of the variance of the gradient, by enumeration."""
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
    """b_i [10], learned from `count` draws as sum A_i B_i / sum B_i^2."""
    rngs = jax.random.split(jax.random.key(2), count)
    arguments = map(jnp.asarray, (ten.logits, ten.f, 0.0, np.zeros(10)))
    cross, square = (np.sum(x, axis=0) for x in _gradients(name, num_samples, False, *arguments, rngs)[1])
    # A key that was never drawn has no moments of its own; it gets those of all.
    return np.where(
        square > 1e-3 * square.max() / count, cross / np.maximum(square, 1e-300), cross.sum() / square.sum()
    )


def ten_rows(ten: Ten, num_samples: int, setting: Setting) -> dict[str, float]:
    """Total variances by estimator and baseline."""
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


# What is written.


class Results(NamedTuple):
    exact: dict[tuple[float, int], dict]  # (eta, k) -> variances
    learned: dict[tuple[float, int], dict[str, np.ndarray]]  # (eta, k) -> what learned_variances returns
    shuffled: dict[tuple[float, int], dict]  # (eta, k) -> what measure_orders returns
    sweep: dict[float, tuple[dict, dict]]  # eta -> as exact and learned, at sweep_samples
    ten: dict[float, dict[str, float]]  # concentration -> mean over problems, "entropy" among them
    rebar: dict[tuple[float, bool], tuple]  # (eta, with a baseline) -> what `rebar` returns


ORDERED = ("stratified", "systematic", "sum_and_sample", ADAPTIVE)  # to these the order of the keys matters


def measure_orders(num_samples: int, eta: float, setting: Setting) -> dict[tuple[str, str], float]:
    """Means over random orders of the keys, of the estimators to which the order matters, and of what was learned from
    the middle number of draws, with one seed for each order."""
    rows: dict[tuple[str, str], list] = {}
    one = setting._replace(num_seeds=1, learned=(setting.learned[len(setting.learned) // 2],))
    for atoms in orders(setting):
        for name in ORDERED:
            of = parts(name, num_samples, eta, atoms=atoms)
            rows.setdefault((name, "none"), []).append(of.variance())
            rows.setdefault((name, "best"), []).append(of.variance(of.best()))
        for which, learned in learned_variances(num_samples, eta, one, atoms).items():
            rows.setdefault((which, ""), []).append(learned[0, 0])
    return {key: float(np.mean(values)) for key, values in rows.items()}


def run(setting: Setting) -> Results:
    """Everything, in float64."""
    cases = [(eta, k) for eta in setting.etas for k in setting.samples]
    with jax.enable_x64(True):
        ten = {}
        for concentration in setting.concentrations:
            problems = tens(concentration)
            rows = [ten_rows(one, 4, setting) | {"entropy": -one.p @ np.log(one.p)} for one in problems]
            ten[concentration] = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
        return Results(
            {(eta, k): variances(k, eta) for eta, k in cases},
            {(eta, k): learned_variances(k, eta, setting) for eta, k in cases},
            {(eta, k): measure_orders(k, eta, setting) for eta, k in cases},
            {
                eta: (variances(setting.sweep_samples, eta), learned_variances(setting.sweep_samples, eta, setting))
                for eta in setting.sweep
            },
            ten,
            {(eta, baseline): rebar(eta, setting, baseline) for eta in setting.etas for baseline in (False, True)},
        )


NAMES = {
    "reinforce": "REINFORCE",
    "stratified": "stratified",
    "systematic": "systematic",
    "sum_and_sample": "sum and sample",
    "stochastic_sum_and_sample": "stochastic sum and sample",
    "unordered_set": "unordered set",
    "optimal_resampling": "optimal resampling",
}
BASELINES = {"none": "none", "mean": "E f", "best": "b*", "leave_one_out": "leave-one-out"}


def number(value: float) -> str:
    """Three digits."""
    if value < 1e-12:  # of rounding, or of a baseline that is nearly b* where b* leaves nothing
        return "0"
    return f"{value:.3g}" if value >= 1e-3 else f"{value:.2e}".replace("e-0", "e-")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def exact_table(results: Results, eta: float, setting: Setting) -> str:
    """Draws and baselines down, k across."""
    keys = list(dict.fromkeys(key for k in setting.samples for key in results.exact[eta, k]))
    keys.sort(key=lambda key: (DRAWS.index(key[0]), list(BASELINES).index(key[1])))
    rows = []
    for name, baseline in keys:
        found = [results.exact[eta, k].get((name, baseline)) for k in setting.samples]
        cells = ["" if x is None else number(x) for x in found]
        rows.append([f"{NAMES[name]}, {BASELINES[baseline]}", *cells])
    return markdown(["draw, baseline", *(f"k = {k}" for k in setting.samples)], rows)


def named(item: tuple[tuple[str, str], float]) -> str:
    (name, baseline), value = item
    return f"{number(value)} ({NAMES[name]}, {BASELINES[baseline]})"


def adaptive_table(results: Results, eta: float, setting: Setting) -> str:
    """The adaptive estimator next to the best of the others."""
    head = [f"{name}, {count:,} draws" for name in ("adaptive", "learned ratio") for count in setting.learned]
    rows = []
    for k in setting.samples:
        exact, learned = results.exact[eta, k], results.learned[eta, k]
        columns = np.concatenate([learned["adaptive"], learned["ratio"]], axis=1).T
        cells = [f"{number(x.mean())} ± {number(x.std())}" for x in columns]
        rows.append([str(k), *cells, *(named(best_of(exact, oracle)) for oracle in (False, True))])
    return markdown(["k", *head, "best published without an oracle", "best published with E f or b* as oracle"], rows)


def order_table(results: Results, eta: float, setting: Setting) -> str:
    """Means over random orders."""
    keys = list(results.shuffled[eta, setting.samples[0]])
    count = setting.learned[len(setting.learned) // 2]
    learned = {"ratio": f"learned ratio, {count:,} draws", "adaptive": f"adaptive, {count:,} draws"}
    rows = [
        [
            learned.get(key[0]) or f"{NAMES[key[0]]}, {BASELINES[key[1]]}",
            *(number(results.shuffled[eta, k][key]) for k in setting.samples),
        ]
        for key in keys
    ]
    return markdown(["draw, baseline", *(f"k = {k}" for k in setting.samples)], rows)


def ten_table(results: Results) -> str:
    names = [name for name in next(iter(results.ten.values())) if name != "entropy"]
    head = [f"{row['entropy']:.2f} nats" for row in results.ten.values()]
    return markdown(
        ["estimator", *head], [[name, *(number(row[name]) for row in results.ten.values())] for name in names]
    )


def rebar_table(results: Results) -> str:
    rows = []
    for (eta, baseline), (learned, variance, error) in results.rebar.items():
        cells = [f"{x:.3g}" for x in learned] if baseline else [*(f"{x:.3g}" for x in learned[:2]), "none"]
        rows.append([f"{eta:g}", *cells, f"{number(variance)} ± {number(error)}"])
    return markdown(["eta", "temperature", "scale", "baseline", "variance, k = 3"], rows)


LINES = (
    ("reinforce", "none", ":"),
    ("reinforce", "leave_one_out", "-"),
    ("stratified", "none", "-"),
    ("sum_and_sample", "none", "-"),
    ("stochastic_sum_and_sample", "none", "-"),
    ("unordered_set", "none", ":"),
    ("unordered_set", "leave_one_out", "-"),
    ("unordered_set", "best", "--"),
)


def draw(results: Results, setting: Setting) -> Figure:
    """Variance over k for each eta, and over eta for one k. Dashed: with an oracle."""
    figure = Figure(figsize=(4.4 * (len(setting.etas) + 1) + 2.6, 4.4), layout="constrained")
    *by_samples, by_eta = figure.subplots(1, len(setting.etas) + 1)
    middle = len(setting.learned) // 2
    panels = [
        (axes, setting.samples, [results.exact[eta, k] for k in setting.samples],
         [results.learned[eta, k] for k in setting.samples], f"eta = {eta:g}", "k, evaluations of f")
        for axes, eta in zip(by_samples, setting.etas, strict=True)
    ]  # fmt: skip
    sweep = list(results.sweep.values())
    panels.append(
        (by_eta, setting.sweep, [x for x, _ in sweep], [x for _, x in sweep], f"k = {setting.sweep_samples}", "eta")
    )
    for axes, across, exact, learned, title, label in panels:
        for name, baseline, line in LINES:
            values = [max(x.get((name, baseline), np.nan), 1e-18) for x in exact]
            text = f"{NAMES[name]}, {BASELINES[baseline]}"
            axes.plot(across, values, line, color=COLORS[name], label=text, linewidth=1.2)
        chosen = np.stack([x["adaptive"][:, middle] for x in learned], axis=1)
        text = f"adaptive, {setting.learned[middle]:,} draws"
        axes.plot(
            across,
            np.maximum(chosen.mean(0), 1e-18),
            "o-",
            color=COLORS[ADAPTIVE],
            label=text,
            markersize=4,
            linewidth=2,
        )
        axes.fill_between(
            across, np.maximum(chosen.min(0), 1e-18), chosen.max(0), color=COLORS[ADAPTIVE], alpha=0.2, linewidth=0
        )
        axes.set_yscale("log")
        axes.set(title=title, xlabel=label)
        axes.grid(color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=max(axes.get_ylim()[0], 1e-11))
    for axes, eta in zip(by_samples, setting.etas, strict=True):
        values = [results.shuffled[eta, k]["adaptive", ""] for k in setting.samples]
        text = f"the same, mean over {setting.num_orders} orders of the keys"
        axes.plot(setting.samples, values, ":", color=COLORS[ADAPTIVE], label=text, linewidth=2)
    by_eta.invert_xaxis()
    by_samples[0].set_ylabel("variance")
    figure.legend(*by_samples[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    return figure


def hardware() -> str:
    """What ran this, in words."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return f"{jax.device_count()} {device.device_kind}"
    info = pathlib.Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return f"{os.cpu_count()} CPU cores ({model[1] if model else platform.machine()})"


def page_of(results: Results, setting: Setting) -> str:
    """The tables, with what is in them."""
    sections = []
    for eta in setting.etas:
        sections.append(f"""## eta = {eta:g}

What learns on the way, after so many draws (mean and standard deviation of the exact variance over {setting.num_seeds}
seeds), next to the best of all others:

{adaptive_table(results, eta, setting)}

All of them, the keys in lexicographic order:

{exact_table(results, eta, setting)}

Stratified and systematic sampling look the keys up in their order, and so does optimal resampling among the keys that
it does not sum; of keys with the same weight the first are summed, by sum and sample too. Means over
{setting.num_orders} random orders of the keys:

{order_table(results, eta, setting)}
""")
    return f"""# {__doc__.splitlines()[0]}

Variance of the estimated derivative for k evaluations of f. What is measured and how, and the answer:
[experiments/estimator_variance.py](../estimator_variance.py).

![variance against k and eta](estimator_variance.png)

The band of the adaptive estimator goes from the least to the greatest of {setting.num_seeds} seeds; dashed is what
needs an oracle. b* is the best constant baseline of the estimator at hand, E f the mean loss: neither is known in
practice.

{chr(10).join(sections)}
## REBAR

Temperature and scale trained on the square of the estimate ({setting.rebar_steps:,} steps), and a constant baseline
with them; f is evaluated at two relaxed points besides the sample. Variance of {setting.rebar_samples:,} samples, with
its standard error:

{rebar_table(results)}

## Ten keys, one logit each

f = 5 + N(0, 1), logits N(0, s^2) for s of {", ".join(f"{x:g}" for x in setting.concentrations)}; the variance of the
gradient with respect to the logits, summed over them, k = 4. Mean over five problems; on top their mean entropy. Per
coordinate: a baseline for each logit, learned from so many draws.

{ten_table(results)}
"""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "experiments" / "results", help="directory")
    out = parser.parse_args(argv).out
    setting, begin = Setting(), time.monotonic()
    results = run(setting)
    page = page_of(results, setting)
    print(page)
    figures.save(draw(results, setting), out / "estimator_variance.png")
    last = f"""
`python experiments/estimator_variance.py`, {datetime.date.today()}, {hardware()}, {time.monotonic() - begin:.0f} s
({time.process_time():.0f} s of processor time), Python {platform.python_version()}, jax {jax.__version__}, numpy
{np.__version__}.
"""
    (out / "estimator_variance.md").write_text(page + last, encoding="utf-8")


if __name__ == "__main__":
    main()
