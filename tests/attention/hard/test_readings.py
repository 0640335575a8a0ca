"""Readings against sums written out, and samplers against the outcomes that they should have."""

import collections
import functools
import itertools
import pickle
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from oracles.enumeration import OUTCOMES, outcomes

from attn_jax.attention.build import build_attention
from attn_jax.attention.hard import readings
from attn_jax.attention.hard.estimators import combine, combine_marginal
from attn_jax.attention.hard.readings import READINGS, log_of, weighted_sum
from attn_jax.attention.hard.relaxations import perturbed, perturbed_given
from attn_jax.attention.normalizers.base import softmax

LOGITS = np.array([0.3, -0.6, 1.1, 0.2, -1.5], np.float32)
P = np.exp(LOGITS) / np.exp(LOGITS).sum()
N = len(P)
RELAXED = ("gumbel_softmax", "straight_through", "gumbel_rao", "rebar")
RANDOM = [name for name in OUTCOMES if name != "enumeration"]
LIMITED = ("sum_and_sample", "stochastic_sum_and_sample", "unordered_set", "optimal_resampling")


@pytest.mark.parametrize("name", READINGS)
def test_readings_with_the_same_options_are_equal(name):
    reading, again = (getattr(readings, name)() for _ in range(2))
    assert reading == again == READINGS[name] == pickle.loads(pickle.dumps(reading))
    assert hash(reading) == hash(again)
    assert sum(reading == other for other in READINGS.values()) == 1


def test_the_options_of_a_reading_tell_it_from_others():
    assert readings.top(num_samples=2) == READINGS["top"].configure(num_samples=2) != readings.top()
    temperature = jnp.float32(0.5)  # an array is compared by what it is, not by its value, which a jit may not know
    cold = readings.rebar(temperature=temperature)
    assert cold == readings.rebar(temperature=temperature) != readings.rebar(temperature=jnp.float32(0.5))
    assert len({cold, readings.rebar(temperature=temperature)}) == 1


def test_a_jit_compiles_once_for_equal_readings():
    traced = []

    @functools.partial(jax.jit, static_argnums=0)
    def rows(attention, log_weights):
        traced.append(attention)
        return attention.read.reading(None, log_weights).rows

    for _ in range(2):
        rows(build_attention(score="dot", read=readings.top(num_samples=2)), jnp.log(P))
    assert len(traced) == 1


def test_expectation_is_the_mean_value_and_leading_axes_broadcast():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(5), (3, 1, 2)).astype(np.float32)  # head, batch, query, key
    values = rng.normal(size=(4, 5, 6)).astype(np.float32)  # batch, key, width
    context = compiled(weighted_sum)(weights, values)
    assert context.shape == (3, 4, 2, 6)
    for head, batch, query in np.ndindex(3, 4, 2):
        expected = sum(weights[head, 0, query, k] * values[batch, k] for k in range(5))
        np.testing.assert_allclose(context[head, batch, query], expected, rtol=1e-5, atol=1e-6)


class Plain(NamedTuple):
    """A Sample whose arrays may be numpy's."""

    rows: np.ndarray
    importance_weights: np.ndarray
    log_prob: np.ndarray
    leave_one_out: np.ndarray | None


def sampling(reading):
    return lambda rng, log_weights: plain(reading(rng, log_weights))


def plain(sample):
    return Plain(sample.rows, sample.importance_weights, sample.log_prob, sample.leave_one_out)


def many_samples(reading, log_weights, count, seed=0):
    """`count` samples, with a leading axis."""
    rngs = jax.random.split(jax.random.key(seed), count)
    return compiled(jax.vmap(lambda rng: plain(reading(rng, jnp.asarray(log_weights)))))(rngs)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "num_samples"), [*((name, 3) for name in RANDOM), ("reinforce", 1)])
def test_sampled_keys_have_the_probabilities_of_the_outcomes(name, num_samples):
    reading, found = READINGS[name].configure(num_samples=num_samples), outcomes(name, P.astype(float), num_samples)
    each, count = np.stack([outcome for _, outcome in found]), 40_000
    rows = lambda outcome: reading(outcome, jnp.log(P)).rows.argmax(-1)  # noqa: E731
    of_outcomes, sampled = compiled(lambda *x: [jax.vmap(rows)(given) for given in x])(
        each.astype(np.float32 if each.dtype == float else int), jax.random.split(jax.random.key(0), count)
    )
    probabilities = collections.Counter()
    for (probability, _), keys in zip(found, of_outcomes, strict=True):
        probabilities[tuple(keys.tolist())] += probability
    frequencies = collections.Counter(map(tuple, sampled.tolist()))
    assert set(frequencies) <= set(probabilities)
    for keys, probability in probabilities.items():
        error = (probability * (1 - probability) / count) ** 0.5
        assert abs(frequencies[keys] / count - probability) < 5 * error + 5 / count, keys


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTCOMES)
def test_leading_axes_are_one_by_one(name):
    num_samples = 1 if name == "enumeration" else 3
    options = {} if name == "enumeration" else {"num_samples": num_samples}
    if name == "unordered_set":
        options["leave_one_out"] = True
    reading, rng = READINGS[name].configure(**options), np.random.default_rng(1)
    logits = rng.normal(size=(2, 3, N)).astype(np.float32)
    logits[0, 1, 2:] = -np.inf  # fewer keys than samples
    log_weights = np.asarray(jax.nn.log_softmax(logits))
    found = []
    for i in np.ndindex(2, 3):
        p = np.where(np.isinf(logits[i]), 0, np.exp(log_weights[i])).astype(float)
        choices = outcomes(name, p, num_samples)
        found.append(choices[rng.integers(len(choices))][1])
    outcome = np.stack(found).reshape(2, 3, -1)
    outcome = outcome.astype(np.float32 if outcome.dtype == float else np.int32)
    both = compiled(lambda *x: (sampling(reading)(*x), jax.vmap(jax.vmap(sampling(reading)))(*x)))
    together, alone = both(outcome, log_weights)
    assert together.rows.shape == (2, 3, N if name == "enumeration" else num_samples, N)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), together, alone)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RANDOM, *RELAXED])
def test_rows_of_a_batch_are_sampled_independently(name):
    sample = compiled(sampling(READINGS[name]))(jax.random.key(0), np.broadcast_to(np.log(P), (64, 3, N)))
    if name in RELAXED:
        same = np.all(sample.rows[1:] == sample.rows[:-1], axis=(1, 2, 3))
        assert not np.any(same) or name in ("straight_through", "gumbel_rao")
    first = sample.rows[:, :, 0 if name == "rebar" else -1].argmax(-1)  # [64, 3]
    assert len(np.unique(first)) > 2
    for a, b in itertools.combinations(first.T, 2):
        assert 0.05 < np.mean(a == b) < 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", READINGS)
def test_rows_without_keys_read_zeros_and_masked_keys_are_not_read(name):
    scores = np.stack([LOGITS, LOGITS, LOGITS[::-1]])
    mask = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 1, 0, 1]], bool)
    values = np.random.default_rng(0).normal(size=(N, 2)).astype(np.float32)
    options = {"num_samples": 3} if name in RANDOM else {}
    reading = READINGS[name].configure(**options)

    def surrogate(scores, rng):
        sample = reading(rng, log_of(softmax(scores, jnp.asarray(mask))))
        contexts = sample.rows @ values
        f = jnp.sum(jnp.square(contexts - 1), axis=-1)
        marginal = combine_marginal(sample, f) if sample.complete or sample.independent else None
        return jnp.sum(combine(sample, f)), (plain(sample), contexts, combine(sample, f), marginal)

    run = compiled(jax.vmap(jax.value_and_grad(surrogate, has_aux=True), (None, 0)))
    (_, (sample, contexts, value, marginal)), gradient = run(scores, jax.random.split(jax.random.key(1), 200))
    assert np.all(contexts[:, 1] == 0) and np.all(sample.rows[:, 1] == 0) and np.all(sample.log_prob[:, 1] == 0)
    np.testing.assert_allclose(value[:, 1], 2, rtol=1e-5)  # f where zeros are read
    if name in ("enumeration", "reinforce", "expectation"):
        np.testing.assert_allclose(marginal[:, 1], 2, rtol=1e-5)
    for x in (sample.rows, sample.importance_weights, sample.log_prob, contexts, value, gradient):
        assert np.all(np.isfinite(x))
    assert np.all(gradient[:, 1] == 0) and np.all(gradient[:, ~mask] == 0)
    read = np.any((sample.rows != 0) & (sample.importance_weights != 0)[..., None], axis=-2)
    assert not np.any(read[:, ~mask])
    if name != "top":
        assert np.all(np.any(read, axis=0)[[0, 2]] == mask[[0, 2]]) and np.any(gradient != 0)


@pytest.mark.parametrize("name", LIMITED)
def test_more_samples_than_keys_are_refused(name):
    for num_samples in (N, N + 1):
        reading = READINGS[name].configure(num_samples=num_samples)
        call = lambda reading=reading: jax.eval_shape(sampling(reading), jax.random.key(0), jnp.log(P))  # noqa: E731
        if num_samples == N:
            call()
        else:
            with pytest.raises(ValueError, match=f"num_samples is {N + 1}, but there are {N} keys .*at most {N}"):
                call()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reinforce", "unordered_set"])
def test_one_sample_cannot_be_left_out(name):
    reading = READINGS[name].configure(num_samples=1, leave_one_out=True)
    with pytest.raises(ValueError, match="at least 2"):
        jax.eval_shape(sampling(reading), jax.random.key(0), jnp.log(P))


def test_a_gap_is_not_negative():
    with pytest.raises(ValueError, match="gap of the reading gapped is -1; expected at least 0"):
        READINGS["gapped"].configure(gap=-1)


@pytest.mark.parametrize(
    ("name", "option"),
    [("reinforce", "num_samples"), ("top", "num_samples"), ("gumbel_softmax", "temperature"), ("implicit_mle", "step")],
)
def test_a_number_that_must_be_above_zero_is(name, option):
    for value in (0, -1):
        with pytest.raises(ValueError, match=f"{option} of the reading {name} is {value}; expected a number above 0"):
            READINGS[name].configure(**{option: value})


def test_a_random_reading_needs_an_rng():
    with pytest.raises(ValueError, match="the reading reinforce samples; expected an rng"):
        readings.reinforce()(None, jnp.log(P))


@pytest.mark.slow
def test_without_any_key_the_context_is_zero():
    def context(reading, values):
        sample = reading(jax.random.key(0) if reading.random else None, jnp.zeros((2, 0)))
        return combine(sample, jnp.sum(sample.rows @ values, axis=-1) + 1)

    found = compiled(lambda values: {name: context(reading, values) for name, reading in READINGS.items()})
    for name, value in found(jnp.zeros((0, 3))).items():
        np.testing.assert_array_equal(value, 1, err_msg=name)  # the loss where zeros are read


@pytest.mark.slow
@pytest.mark.parametrize("num_samples", [1, 3, 9])
def test_top_is_the_mean_of_the_best_values_and_no_gradient_goes_into_the_weights(num_samples):
    values = np.random.default_rng(0).normal(size=(N, 2)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1, 1], [0, 1, 0, 1, 0]], bool)
    reading = READINGS["top"].configure(num_samples=num_samples)

    def contexts(logits, values):
        sample = reading(None, log_of(softmax(logits, jnp.asarray(mask))))
        return (sample.rows @ values)[:, 0]

    @compiled
    def run(logits, values):
        got, pull = jax.vjp(contexts, logits, values)
        return got, *pull(jnp.ones_like(got))

    got, into_logits, into_values = run(np.stack([LOGITS, LOGITS]), values)
    # All five are read where nine are asked for; only two are allowed in the second row.
    order = sorted(range(N), key=lambda key: -LOGITS[key])
    best = [order[:num_samples], [3, 1][:num_samples]]
    np.testing.assert_allclose(got, [values[keys].mean(0) for keys in best], atol=1e-6)
    assert np.all(into_logits == 0)
    expected = sum(np.isin(np.arange(N), keys) / len(keys) for keys in best)
    np.testing.assert_allclose(into_values, expected[:, None] * np.ones(2), rtol=1e-6)


# Relaxed samples.


def frequencies_are(index, expected):
    frequencies = np.bincount(index, minlength=len(expected)) / len(index)
    np.testing.assert_array_less(np.abs(frequencies - expected), 4.5 * np.sqrt(expected * (1 - expected) / len(index)))


@pytest.mark.slow
@pytest.mark.parametrize("name", RELAXED)
def test_the_largest_perturbed_weight_is_a_sample(name):
    reading = READINGS[name].configure(temperature=0.4)
    sample = many_samples(reading, np.log(P), 50_000)
    frequencies_are(sample.rows[:, 0].argmax(-1), P)
    np.testing.assert_allclose(sample.rows.sum(-1), 1, rtol=1e-4)
    one_hot = np.max(sample.rows[:, 0], axis=-1) > 1 - 1e-5
    assert np.all(one_hot) if name != "gumbel_softmax" else not np.all(one_hot)


def logistic_distance(samples, location):
    """The largest difference between the empirical distribution function and the logistic one, times sqrt(n)."""
    samples = np.sort(samples)
    cdf = 1 / (1 + np.exp(location - samples))
    steps = np.arange(len(samples) + 1) / len(samples)
    return max(np.max(np.abs(cdf - steps[1:])), np.max(np.abs(cdf - steps[:-1]))) * len(samples) ** 0.5


def test_noise_given_the_sample_is_in_the_mean_over_samples_the_noise():
    temperature = 2.0
    sample = many_samples(READINGS["rebar"].configure(temperature=temperature), np.log(P), 20_000)
    hard, *relaxed = np.moveaxis(sample.rows, 1, 0)
    for rows in relaxed:  # z, and z given the sample
        np.testing.assert_array_equal(rows.argmax(-1), hard.argmax(-1))
        z = temperature * np.log(rows)
        for i, j in itertools.combinations(range(N), 2):
            # The difference of two Gumbels is logistic; 1.95 is exceeded with probability 0.001.
            assert logistic_distance(z[:, i] - z[:, j], np.log(P[i] / P[j])) < 1.95
    # Given the sample they are independent, so they are not the same numbers.
    assert np.mean(np.abs(relaxed[0] - relaxed[1])) > 0.01


@pytest.mark.slow
def test_no_noise_is_infinite_however_many_are_sampled():
    @compiled
    def finite(rng):
        log_weights = jnp.full((2**22, 2), -jnp.log(2.0))
        given = perturbed_given(rng, log_weights, jnp.zeros(2**22, int))
        return jnp.all(jnp.isfinite(given)) & jnp.all(jnp.isfinite(perturbed(rng, log_weights)[0]))

    assert finite(jax.random.key(0))


def test_a_key_without_its_type_is_a_key():
    """jax.random.PRNGKey gives two integers, which are no sampled keys."""
    read = compiled(lambda rng: READINGS["reinforce"](rng, jnp.log(jnp.asarray(P))).rows)
    np.testing.assert_array_equal(read(jax.random.key(3)), read(jax.random.PRNGKey(3)))


@pytest.mark.parametrize("name", ["stratified", "unordered_set", "rebar"])
def test_the_marginal_loss_is_of_all_keys_or_of_independent_samples(name):
    sample = jax.jit(READINGS[name])(jax.random.key(0), jnp.log(jnp.asarray(P)))
    with pytest.raises(ValueError, match="independent"):
        combine_marginal(sample, jnp.ones(sample.rows.shape[-2]))
