"""Readings: a sampler with its options and properties, as one object for the argument `read` of attention.

Each function here returns a Reading, for example reinforce(num_samples=4); READINGS maps names to readings with
default options. Attention can only read one row of weights. A reading of several rows is used outside of Attention:

    sample = reading(rng, log_of(weights))          rows [..., n, k]
    f = loss(sample.rows @ values)                  [..., n]
    surrogate = combine(sample, f)                  the number to minimize, see estimators.py

The gradient of a sampled reading is the gradient of this surrogate only. The context at a sampled key has a gradient
with respect to the values, but not with respect to scores, query or keys; the relaxed readings (gumbel_softmax,
straight_through, gumbel_rao, reinmax, reinmax_rao, reinmax_cv, gapped, implicit_mle) have both.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.attention.hard import relaxations, samplers
from attn_jax.attention.hard import straight_through as gradients
from attn_jax.attention.hard.coupled import coupled as antithetic
from attn_jax.attention.hard.samplers import LogWeights, Randomness, Sample
from attn_jax.errors import nearest
from attn_jax.types import Array, Float, wide


def weighted_sum(weights: Float[Array, "... q k"], values: Float[Array, "... k d"]) -> Float[Array, "... q d"]:
    """Computes the contexts sum_k weights_qk values_k."""
    return jnp.einsum("...qk,...kd->...qd", weights, values)


def log_of(weights: Float[Array, "... k"]) -> LogWeights:
    """Computes log weights; -inf, without a gradient, for a weight of 0.

    >>> log_of(jnp.array([1.0, 0.0])).tolist()
    [0.0, -inf]
    """
    positive = weights > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, weights, 1)), -jnp.inf)


ARGUMENTS = ("rng", "log_weights")  # arguments of every sampler; its other parameters are options
ABOVE_ZERO = ("num_samples", "temperature", "step")  # options that must be above 0
NOT_BELOW_ZERO = ("gap",)


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """A sampler with its options: reading(rng, log_weights [..., k]) -> Sample.

    The properties tell callers what the reading needs. Readings with equal fields are equal, so that jit with a static
    reading does not compile again.

    Attributes:
        name: its name.
        function: (rng, log_weights, **options).
        baselines: names of BASELINES with which the estimator is unbiased.
        per_step: one row for each sample, so a recurrent state can depend on the context read.
        random: needs an rng.
        distinct: never samples a key twice, so it needs as many keys as samples.
        is_soft: the row is the weights themselves.
        exact_rows: one row for each key, in order: enumeration, no sampling.
        independent: samples are independent, so one sample can be drawn several times instead.
        arguments: (name, value) of the options that are set, see `configure`.
    """

    name: str
    function: Callable[..., Sample]
    baselines: tuple[str, ...] = ("none",)
    per_step: bool = False
    random: bool = True
    distinct: bool = False
    is_soft: bool = False
    exact_rows: bool = False
    independent: bool = False
    arguments: tuple[tuple[str, Any], ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options of the sampler, which `configure` sets."""
        return tuple(name for name in inspect.signature(self.function).parameters if name not in ARGUMENTS)

    @property
    def num_samples(self) -> int:
        """Number of samples, an option of the sampler; 1 if the sampler has no such option."""
        return dict(self.arguments).get("num_samples", 1)

    @property
    def num_keys(self) -> int:
        """Least number of keys that the reading needs."""
        return self.num_samples if self.distinct else 1

    @property
    def one_row(self) -> bool:
        """Tells whether the reading uses one row of weights, as Attention needs."""
        return self.per_step and not (self.independent and self.num_samples > 1)

    def __call__(self, rng: Randomness | None, log_weights: LogWeights) -> Sample:
        """Samples in float32 or wider, and returns rows in the dtype of log_weights.

        A row without keys, or with only masked keys, gives zeros.

        Args:
            rng: a key of jax.random.key or jax.random.PRNGKey, or an outcome of the randomness (see samplers.py); None
                if the reading is not random.
            log_weights: log a, -inf for masked keys.

        Raises:
            ValueError: the options do not fit the number of keys, or the rng of a random reading is None.
        """
        if self.random and rng is None:
            raise ValueError(f"the reading {self.name} samples; expected an rng, got None")
        if log_weights.shape[-1] == 0:  # a sampler needs keys: add masked keys, and remove them from the rows
            masked = jnp.full((*log_weights.shape[:-1], self.num_keys), -jnp.inf, log_weights.dtype)
            sample = self(rng, masked)
            return sample.replace(rows=sample.rows[..., :0])
        if rng is not None and rng.dtype == jnp.uint32:  # an untyped key of jax.random.PRNGKey
            rng = jax.random.wrap_key_data(rng)
        empty = jnp.all(log_weights == -jnp.inf, axis=-1, keepdims=True)
        filled = jnp.where(empty, -math.log(log_weights.shape[-1]), wide(log_weights))
        sample = self.function(rng, filled, **dict(self.arguments))
        return sample.replace(
            rows=jnp.where(empty[..., None], 0, sample.rows).astype(log_weights.dtype),
            importance_weights=wide(sample.importance_weights),
            log_prob=wide(jnp.where(empty, 0, sample.log_prob)),
        )

    def configure(self, **options) -> "Reading":
        """Returns the reading with these options of its sampler set.

        Raises:
            ValueError: the sampler has no such option, or a number is out of range.
        """
        for name, value in options.items():
            if name not in self.options:
                known = nearest(name, self.options) if self.options else "it has none"
                raise ValueError(f"the reading {self.name} has no option {name}; {known}")
            if name in ABOVE_ZERO and isinstance(value, int | float | np.number) and not value > 0:
                raise ValueError(f"{name} of the reading {self.name} is {value}; expected a number above 0")
            if name in NOT_BELOW_ZERO and isinstance(value, int | float | np.number) and not value >= 0:
                raise ValueError(f"{name} of the reading {self.name} is {value}; expected at least 0")
        return dataclasses.replace(self, arguments=tuple(sorted({**dict(self.arguments), **options}.items())))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reading) and self._compared == other._compared

    def __hash__(self) -> int:
        return hash(self._compared)

    @property
    def _compared(self) -> tuple:
        """All fields. Arrays are compared by identity: they have no hash, and inside a jit no truth value."""
        arguments = ((name, id(x) if isinstance(x, jax.Array | np.ndarray) else x) for name, x in self.arguments)
        return tuple({**vars(self), "arguments": tuple(arguments)}.values())


# Baselines that do not depend on the sample.
CONSTANT = ("none", "running_mean", "learned", "soft", "per_coordinate", "critic")


def expectation() -> Reading:
    """Soft attention: reads the mean value under the weights. Differentiable, not random (Bahdanau 2015)."""
    return Reading("expectation", samplers.mean, per_step=True, random=False, is_soft=True)


def enumeration() -> Reading:
    """Reads every key, each with its weight: exact expectations, one evaluation of the loss per key (Deng 2018).

    >>> enumeration()(None, jnp.log(jnp.array([0.75, 0.25]))).rows.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return Reading("enumeration", samplers.every, random=False, exact_rows=True)


def reinforce(*, num_samples: int = 1, leave_one_out: bool = False) -> Reading:
    """Reads independent sampled keys (Williams 1992), optionally with the mean loss of the others as baseline."""
    reading = Reading(
        "reinforce", samplers.with_replacement, (*CONSTANT, "leave_one_out"), per_step=True, independent=True
    )
    return reading.configure(num_samples=num_samples, leave_one_out=leave_one_out)


def stratified(*, num_samples: int = 1) -> Reading:
    """Reads one sampled key from each of num_samples equal parts of the distribution (Douc 2005, cs/0507025)."""
    return Reading("stratified", samplers.stratified, CONSTANT).configure(num_samples=num_samples)


def systematic(*, num_samples: int = 1) -> Reading:
    """Reads keys sampled with one random offset for all parts of the distribution (Douc 2005, cs/0507025)."""
    return Reading("systematic", samplers.systematic, CONSTANT).configure(num_samples=num_samples)


def sum_and_sample(*, num_samples: int = 2) -> Reading:
    """Reads the most probable keys and one sample of the rest (Liu 2019, arXiv 1810.04777)."""
    return Reading("sum_and_sample", samplers.sum_and_sample, CONSTANT, distinct=True).configure(
        num_samples=num_samples
    )


def stochastic_sum_and_sample(*, num_samples: int = 2) -> Reading:
    """Reads keys sampled without replacement and one sample of the rest (Kool 2020, arXiv 2002.06043)."""
    reading = Reading("stochastic_sum_and_sample", samplers.stochastic_sum_and_sample, CONSTANT, distinct=True)
    return reading.configure(num_samples=num_samples)


def unordered_set(*, num_samples: int = 2, leave_one_out: bool = False) -> Reading:
    """Reads a set of keys sampled without replacement, averaged over their order (Kool 2020, arXiv 2002.06043)."""
    reading = Reading("unordered_set", samplers.unordered_set, (*CONSTANT, "leave_one_out"), distinct=True)
    return reading.configure(num_samples=num_samples, leave_one_out=leave_one_out)


def optimal_resampling(*, num_samples: int = 2) -> Reading:
    """Reads distinct keys with importance weights of least mean squared error (Fearnhead & Clifford 2003)."""
    reading = Reading("optimal_resampling", samplers.optimal_resampling, CONSTANT, distinct=True)
    return reading.configure(num_samples=num_samples)


def adaptive(*, num_samples: int = 2, probability: float | Float[Array, ""] = 0.5) -> Reading:
    """Reads by optimal_resampling or sum_and_sample; the baseline "adaptive" learns which one has less variance."""
    reading = Reading("adaptive", samplers.adaptive, (*CONSTANT, "adaptive"), distinct=True)
    return reading.configure(num_samples=num_samples, probability=probability)


def rebar(*, temperature: float | Float[Array, ""] = 1.0, scale: float | Float[Array, ""] = 1.0) -> Reading:
    """Reads one sampled key, with relaxed rows as a control variate (Tucker 2017, arXiv 1703.07370)."""
    reading = Reading("rebar", relaxations.rebar, ("none", "running_mean", "learned", "soft"))
    return reading.configure(temperature=temperature, scale=scale)


def gumbel_softmax(*, temperature: float = 1.0) -> Reading:
    """Reads one relaxed row, differentiable and biased (Jang 2017, arXiv 1611.01144)."""
    return Reading("gumbel_softmax", relaxations.gumbel_softmax, per_step=True).configure(temperature=temperature)


def straight_through(*, temperature: float = 1.0) -> Reading:
    """Reads one sampled key, with the gradient of gumbel_softmax (Jang 2017, arXiv 1611.01144)."""
    return Reading("straight_through", gradients.straight_through, per_step=True).configure(temperature=temperature)


def gumbel_rao(*, temperature: float = 1.0, num_samples: int = 10) -> Reading:
    """Reads one sampled key, with the straight-through gradient averaged over noise (Paulus 2021, arXiv 2010.04838)."""
    reading = Reading("gumbel_rao", gradients.gumbel_rao, per_step=True)
    return reading.configure(temperature=temperature, num_samples=num_samples)


def coupled() -> Reading:
    """Reads two antithetic keys, each the baseline of the other (Dong, Mnih & Tucker 2021, arXiv 2106.08056)."""
    return Reading("coupled", antithetic)


def reinmax(*, temperature: float = 1.0) -> Reading:
    """Reads one sampled key, with a gradient of second order (Liu 2023, arXiv 2304.08612)."""
    return Reading("reinmax", gradients.reinmax, per_step=True).configure(temperature=temperature)


def reinmax_rao(*, temperature: float = 1.0, num_samples: int = 10) -> Reading:
    """Reads one sampled key, with the gradient of reinmax averaged over noise (Wang & Bui 2026, arXiv 2603.08257)."""
    reading = Reading("reinmax_rao", gradients.reinmax_rao, per_step=True)
    return reading.configure(temperature=temperature, num_samples=num_samples)


def reinmax_cv(*, temperature: float = 1.0, scale: float = 0.5, num_samples: int = 10) -> Reading:
    """Reads one sampled key, with the gradient of reinmax and a control variate (Wang & Bui 2026, arXiv 2603.08257)."""
    reading = Reading("reinmax_cv", gradients.reinmax_cv, per_step=True)
    return reading.configure(temperature=temperature, scale=scale, num_samples=num_samples)


def gapped(*, temperature: float = 1.0, gap: float = 1.0) -> Reading:
    """Reads one sampled key, with the gradient of shifted log weights (Fan 2022, arXiv 2206.07235)."""
    return Reading("gapped", gradients.gapped, per_step=True).configure(temperature=temperature, gap=gap)


def implicit_mle(*, step: float = 10.0) -> Reading:
    """Reads one sampled key; its gradient is the difference from a better key (Niepert 2021, arXiv 2106.01798)."""
    return Reading("implicit_mle", gradients.implicit_mle, per_step=True).configure(step=step)


def top(*, num_samples: int = 1) -> Reading:
    """Reads the mean of the values of largest weight; weights get no gradient (Malinowski 2018, arXiv 1808.00300).

    >>> top(num_samples=2)(None, jnp.log(jnp.array([0.5, 0.3, 0.2]))).rows.tolist()
    [[0.5, 0.5, 0.0]]
    """
    return Reading("top", samplers.top, per_step=True, random=False).configure(num_samples=num_samples)


READINGS: dict[str, Reading] = {
    reading.name: reading
    for reading in (
        expectation(),
        enumeration(),
        reinforce(),
        stratified(),
        systematic(),
        sum_and_sample(),
        stochastic_sum_and_sample(),
        unordered_set(),
        optimal_resampling(),
        adaptive(),
        rebar(),
        gumbel_softmax(),
        straight_through(),
        gumbel_rao(),
        reinmax(),
        reinmax_rao(),
        reinmax_cv(),
        gapped(),
        implicit_mle(),
        coupled(),
        top(),
    )
}
