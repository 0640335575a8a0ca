"""Estimators against enumeration: of all keys, and of all outcomes of the estimator's own randomness."""

import functools
import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from oracles import enumeration
from oracles.enumeration import OUTCOMES, outcomes

from attn_jax.attention.hard.estimators import (
    combine,
    combine_marginal,
    coordinate_control,
    coordinate_moments,
    counts,
    log_prob_term,
)
from attn_jax.attention.hard.readings import READINGS, log_of
from attn_jax.attention.information import entropy, kl_divergence
from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.normalizers.entmax import sparsemax

RNG = np.random.default_rng(0)
LOGITS = np.array([0.3, -0.6, 1.1, 0.2, -1.5])
P = np.exp(LOGITS) / np.exp(LOGITS).sum()
N = len(P)
VALUES = RNG.normal(size=(N, 3))
PARAMS = np.array([0.7, -0.4, 1.2])
COORDINATES = RNG.normal(size=N) + 1
WITHOUT_REPLACEMENT = ("sum_and_sample", "stochastic_sum_and_sample", "unordered_set", "optimal_resampling")
KEYS_ONCE = (*WITHOUT_REPLACEMENT, "stratified", "systematic")


pytestmark = pytest.mark.usefixtures("double_precision")


def configured(name, num_samples=1, **options):
    return READINGS[name] if name == "enumeration" else READINGS[name].configure(num_samples=num_samples, **options)


def loss(contexts, params):
    """A loss per context [..., n, 3] -> [..., n], neither linear nor of mean zero."""
    return 2 + jnp.sin(contexts @ params) + jnp.sum(jnp.square(contexts), axis=-1) / 4


@functools.cache
def exact_losses():
    return np.asarray(loss(jnp.asarray(VALUES), jnp.asarray(PARAMS)))


@functools.cache
def truth():
    """(E f, its gradient with respect to the logits, with respect to params): written out."""

    def expected(logits, params):
        return jnp.sum(jax.nn.softmax(logits) * loss(jnp.asarray(VALUES), params))

    arguments = jnp.asarray(LOGITS), jnp.asarray(PARAMS)
    return jax.device_get((expected(*arguments), *jax.grad(expected, (0, 1))(*arguments)))


def estimate_of(reading, baselines, logits=LOGITS, f=None):
    """outcome -> {name: (value, gradient of the logits, gradient of the params)}, `baselines` {name: arguments}."""

    def surrogates(logits, params, outcome):
        log_weights = jax.nn.log_softmax(logits)
        sample = reading(outcome, log_weights)
        losses = loss(sample.rows @ VALUES, params) if f is None else sample.rows @ jnp.asarray(f)
        found = {name: combine(sample, losses, log_weights=log_weights, **each) for name, each in baselines.items()}
        return found, found

    def estimate(outcome):
        arguments = jnp.asarray(logits), jnp.asarray(PARAMS), outcome
        gradients, value = jax.jacrev(surrogates, (0, 1), has_aux=True)(*arguments)
        return {name: (value[name], *gradients[name]) for name in baselines}

    return estimate


def constant(b):
    return {"baseline": jnp.asarray(float(b))}


@functools.cache
def gradients_of_each_loss(name, num_samples, **options):
    """(P(w) [w], G [w, j, i]): the estimated gradient of logit i at each outcome, for the loss that is 1 at key j and 0
    elsewhere. An estimate is linear in the losses."""
    reading, found = configured(name, num_samples, **options), outcomes(name, P, num_samples)

    def estimate(outcome):
        def surrogates(logits):
            sample = reading(outcome, jax.nn.log_softmax(logits))
            return jax.vmap(lambda f: combine(sample, sample.rows @ f))(jnp.eye(N))

        return jax.jacrev(surrogates)(jnp.asarray(LOGITS))

    return enumeration.values(estimate, found)


def gradient_moments(name, num_samples, baseline=0.0, f=None, **options):
    """(mean, variance) [N] of the gradient with respect to the logits, over all outcomes, with a constant baseline."""
    probabilities, each = gradients_of_each_loss(name, num_samples, **options)
    each = np.einsum("wji,j->wi", each, (exact_losses() if f is None else f) - baseline)
    mean = probabilities @ each
    return mean, probabilities @ np.square(each - mean)


# One sample, several, and of samplers that take each key once as many as there are keys.
SAMPLES = {"enumeration": [1], "reinforce": [1, 3], "stratified": [3], "systematic": [3]}
EVERY_SAMPLER = [(name, k) for name in OUTCOMES for k in SAMPLES.get(name, [1, 3, N])]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "num_samples"), EVERY_SAMPLER)
def test_mean_over_all_outcomes_is_the_enumeration(name, num_samples):
    """With every baseline; a critic that knows the losses leaves the weights no noise. The masses estimate them."""
    reading, found = configured(name, num_samples), outcomes(name, P, num_samples)
    assert math.fsum(probability for probability, _ in found) == pytest.approx(1, abs=1e-12)
    arguments = {
        "none": {},
        "running_mean": constant(2.6),
        "learned": constant(-1.3),
        "soft": {"baseline": loss(jnp.asarray(P @ VALUES), jnp.asarray(PARAMS))},
        "per_coordinate": {"coordinates": jnp.asarray(COORDINATES)},
        "critic": {"per_key": jnp.asarray(COORDINATES)},
    }
    plain = {baseline: given for baseline, given in arguments.items() if baseline in reading.baselines}
    plain["per_coordinate over a constant"] = arguments["per_coordinate"] | constant(0.4)
    plain["known losses"] = {"per_key": jnp.asarray(exact_losses())}
    estimates = [estimate_of(reading, plain)]
    if "leave_one_out" in reading.baselines and num_samples > 1:
        leave_one_out = configured(name, num_samples, leave_one_out=True)
        estimates.append(estimate_of(leave_one_out, {"leave_one_out": {}, "leave_one_out and more": constant(0.4)}))

    def estimate(outcome):
        sample = reading(outcome, jnp.log(jnp.asarray(P)))
        masses = counts(sample), jnp.sum(sample.importance_weights)
        return functools.reduce(dict.__or__, (each(outcome) for each in estimates)), masses

    (mean, (masses, total)), (variance, (_, of_total)) = enumeration.moments(estimate, found)
    for baseline in mean:
        for got, expected in zip(mean[baseline], truth(), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9, err_msg=baseline)
    np.testing.assert_allclose(masses, P, atol=1e-12)
    np.testing.assert_allclose([total, of_total], [1, 0], atol=1e-12)
    exact = name == "enumeration" or (name in WITHOUT_REPLACEMENT and num_samples == N)
    # What has no noise is exact with any constant; what has some shows it.
    assert (variance["none"][0] < 1e-20) == exact and (np.max(variance["none"][1]) < 1e-20) == exact
    assert np.max(variance["known losses"][1]) < 1e-20


# What is known of the estimators.


@pytest.mark.slow
def test_leave_one_out_is_the_unbiased_covariance_of_loss_and_score(num_samples=3):
    found, f = outcomes("reinforce", P, num_samples), exact_losses()
    reading = configured("reinforce", num_samples, leave_one_out=True)
    _, each = enumeration.values(estimate_of(reading, {"": {}}, f=f), found)
    score = np.eye(N) - P
    for (_, keys), gradient in zip(found, each[""][1], strict=True):
        covariance = [np.cov(f[keys], score[keys, i], ddof=1)[0, 1] for i in range(N)]
        np.testing.assert_allclose(gradient, covariance, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reinforce", "optimal_resampling"])  # masses alike, and different ones
def test_moments_of_the_coordinates_give_the_best_baseline_of_each(name):
    reading, found, f = configured(name, 2), outcomes(name, P, 2), jnp.asarray(exact_losses())
    log_p = jnp.log(jnp.asarray(P))

    def products(outcome):
        sample = reading(outcome, log_p)
        return coordinate_moments(sample, log_p, sample.rows @ f)

    (cross, square), _ = enumeration.moments(products, found)
    best = cross / square
    if name == "reinforce":  # whether there is one sample or two, as far as the variance goes
        single = gradient_moments(name, 1, f=np.ones(N))[1]
        np.testing.assert_allclose(square, single / 2, rtol=1e-9)
    arguments = {"vector": {"coordinates": jnp.asarray(best)}, "constant": {"coordinates": jnp.full(N, 1.7)}}
    arguments["scalar"] = constant(1.7)
    _, variance = enumeration.moments(estimate_of(reading, arguments, f=f), found)
    best_each = sum(gradient_moments(name, 2, best[i], f)[1][i] for i in range(N))
    best_scalar = min(gradient_moments(name, 2, b, f)[1].sum() for b in np.linspace(f.min(), f.max(), 15))
    assert variance["vector"][1].sum() <= best_each * (1 + 1e-9) and best_each < best_scalar
    np.testing.assert_allclose(variance["constant"][1], variance["scalar"][1], rtol=1e-9)


@pytest.mark.slow
def test_control_of_the_coordinates_sums_to_zero_over_the_keys_that_are_allowed():
    logits, mask = jnp.asarray(LOGITS), np.array([True, True, False, True, True])

    def control(logits, outcome):
        log_weights = log_of(softmax(logits, jnp.asarray(mask)))
        sample = configured("reinforce", 2)(outcome, log_weights)
        return coordinate_control(sample, log_weights, jnp.asarray(COORDINATES))

    p = np.where(mask, P, 0) / P[mask].sum()
    each = np.array([[0, 0], [1, 3], [4, 1]])
    found = compiled(jax.vmap(jax.value_and_grad(control), (None, 0)))(logits, each)
    for keys, value, gradient in zip(each, *found, strict=True):
        expected = COORDINATES * (np.bincount(keys, minlength=N) / 2 - p)
        expected = np.where(mask, expected - expected[mask].mean(), 0)
        np.testing.assert_allclose(gradient, expected, atol=1e-12)
        assert value == 0


@pytest.mark.slow
@pytest.mark.parametrize("baseline", [0.0, 2.0])
def test_averaging_over_what_need_not_be_sampled_lowers_the_variance(baseline, num_samples=3):
    names = ("unordered_set", "stochastic_sum_and_sample", "sum_and_sample", "stratified")
    variance = {name: gradient_moments(name, num_samples, baseline)[1] for name in names}
    single, slack = gradient_moments("reinforce", 1, baseline)[1], 1e-12
    assert np.all(variance["unordered_set"] <= variance["stochastic_sum_and_sample"] + slack)
    assert np.all(variance["unordered_set"] <= single + slack)
    assert np.all(variance["sum_and_sample"] <= single + slack)
    assert np.all(variance["stratified"] <= single / num_samples + slack)
    assert variance["unordered_set"].sum() < 0.99 * variance["stochastic_sum_and_sample"].sum()
    assert variance["sum_and_sample"].sum() < 0.9 * single.sum()


@pytest.mark.slow
def test_masses_of_optimal_resampling_are_nearest_to_the_weights(num_samples=3):
    """Where there is a key to keep; else it is systematic sampling."""
    assert num_samples * P.max() > 1

    def error(name):
        reading, log_p = configured(name, num_samples), jnp.log(jnp.asarray(P))
        _, variance = enumeration.moments(lambda w: counts(reading(w, log_p)), outcomes(name, P, num_samples))
        return variance.sum()

    errors = {name: error(name) for name in KEYS_ONCE}
    assert errors["optimal_resampling"] <= min(errors.values()) * (1 + 1e-9)
    assert errors["optimal_resampling"] < 0.9 * errors["systematic"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["enumeration", "reinforce", "unordered_set"])
def test_a_constant_added_to_the_loss_changes_nothing_with_a_baseline_of_its_own(name):
    """Of each outcome, the gradient of the loss that is 1 at every key."""
    if name == "enumeration":
        return np.testing.assert_allclose(gradients_of_each_loss(name, 1)[1].sum(1), 0, atol=1e-10)
    own = gradients_of_each_loss(name, 3, leave_one_out=True)[1].sum(1)
    np.testing.assert_allclose(own, 0, atol=1e-10)
    assert np.max(np.abs(gradients_of_each_loss(name, 3)[1].sum(1))) > 0.1


@pytest.mark.slow
def test_one_loss_for_all_is_the_value_and_as_baseline_leaves_no_gradient():
    """With one f for all keys there is nothing to choose: the importance weights of every sampler sum to one."""

    def surrogates(logits, baseline):
        samples = {name: reading(jax.random.key(0), jax.nn.log_softmax(logits)) for name, reading in READINGS.items()}
        return {name: combine(x, jnp.full_like(x.importance_weights, 3.0), baseline) for name, x in samples.items()}

    both = jax.vmap(lambda logits, b: (surrogates(logits, b), jax.jacrev(surrogates)(logits, b)), (None, 0))
    values, gradients = compiled(both)(LOGITS, np.array([3.0, 1.0]))
    for name, reading in READINGS.items():
        np.testing.assert_allclose(values[name], 3, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(gradients[name][0], 0, atol=1e-12, err_msg=name)
        if reading.random and "critic" in reading.baselines:  # REBAR has a baseline of its own
            assert np.any(gradients[name][1] != 0), name


@pytest.mark.slow
def test_soft_is_hard_where_the_loss_is_linear_and_below_it_where_it_is_convex():
    def value(name, logits, f):
        sample = READINGS[name](None, jax.nn.log_softmax(logits))
        return combine(sample, f(sample.rows @ VALUES))

    def linear(contexts):
        return contexts @ PARAMS + 0.3

    def convex(contexts):
        return jnp.sum(jnp.square(contexts), axis=-1)

    @compiled
    def run(logits):
        names = ("expectation", "enumeration")
        of_linear = [jax.value_and_grad(value, 1)(name, logits, linear) for name in names]
        return *of_linear, *(value(name, logits, convex) for name in names)

    soft, hard, soft_convex, hard_convex = run(LOGITS)
    np.testing.assert_allclose(soft[0], hard[0], rtol=1e-12)
    np.testing.assert_allclose(soft[1], hard[1], atol=1e-12)
    assert soft_convex < hard_convex - 0.1


# The marginal likelihood.


def marginal(logits, params):
    """-log sum_x a_x p_x for p = exp(-f)."""
    return -jnp.log(jnp.sum(jax.nn.softmax(logits) * jnp.exp(-loss(jnp.asarray(VALUES), params))))


def test_marginal_of_every_key_is_exact_and_at_most_the_expected_loss():
    def surrogate(logits, params):
        sample = READINGS["enumeration"](None, jax.nn.log_softmax(logits))
        return combine_marginal(sample, loss(sample.rows @ VALUES, params))

    arguments = jnp.asarray(LOGITS), jnp.asarray(PARAMS)
    value, gradients = jax.value_and_grad(surrogate, (0, 1))(*arguments)
    expected, expected_gradients = jax.value_and_grad(marginal, (0, 1))(*arguments)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for got, want in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9)
    assert value < truth()[0] - 0.01


@pytest.mark.slow
@pytest.mark.parametrize("num_samples", [2, 3])
def test_marginal_of_samples_has_the_gradient_of_the_expected_bound(num_samples):
    keys = 3  # as many as samples, once: that does not make it the exact sum
    logits, values, params = jnp.asarray(LOGITS[:keys]), jnp.asarray(VALUES[:keys]), jnp.asarray(PARAMS)
    p = np.asarray(jax.nn.softmax(logits))

    def bound(logits, params):
        tuples = np.array(list(itertools.product(range(keys), repeat=num_samples)))
        each = jnp.exp(-loss(values, params))[tuples]
        probabilities = jnp.prod(jax.nn.softmax(logits)[tuples], axis=-1)
        return jnp.sum(probabilities * -jnp.log(jnp.mean(each, axis=-1)))

    def estimate(outcome):
        def surrogates(logits, params):
            log_weights = jax.nn.log_softmax(logits)
            samples = [
                configured("reinforce", num_samples, leave_one_out=own)(outcome, log_weights) for own in (False, True)
            ]
            losses = loss(samples[0].rows @ values, params)
            given = ((samples[0], None), (samples[0], jnp.asarray(1.4)), (samples[1], None))
            found = jnp.stack([combine_marginal(sample, losses, b) for sample, b in given])
            return found, found

        gradients, value = jax.jacrev(surrogates, (0, 1), has_aux=True)(logits, params)
        return value, *gradients

    mean, variance = enumeration.moments(estimate, outcomes("reinforce", p, num_samples))
    expected, gradients = compiled(jax.value_and_grad(bound, (0, 1)))(logits, params)
    for found, want in zip(mean, (expected, *gradients), strict=True):
        for got in found:  # without a baseline, with a constant, and with the others as the baseline of each
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    assert np.all(variance[1].sum(-1) > 1e-6)


@pytest.mark.slow
def test_leave_one_out_of_the_bound_replaces_a_likelihood_by_the_geometric_mean_of_the_others():
    keys, f = np.array([0, 3, 3, 1]), exact_losses()
    reading = configured("reinforce", 4, leave_one_out=True)

    def surrogate(log_weights):
        sample = reading(jnp.asarray(keys), log_weights)
        return combine_marginal(sample, sample.rows @ jnp.asarray(f))

    likelihood, advantage = np.exp(-f[keys]), np.zeros(N)
    for n, key in enumerate(keys):
        others = np.delete(likelihood, n)
        replaced = (others.sum() + math.prod(others) ** (1 / 3)) / 4
        advantage[key] += -np.log(likelihood.mean()) + np.log(replaced)
    np.testing.assert_allclose(jax.grad(surrogate)(jnp.log(jnp.asarray(P))), advantage, rtol=1e-9)


# Sparse weights, few keys, one key with all the weight.


@pytest.mark.slow
@pytest.mark.parametrize("num_samples", [2, 3])  # of the three keys with weight, not all and all
def test_sum_and_sample_over_sparsemax_is_sparse_marginalization(num_samples):
    scores = jnp.asarray([0.2, 1.0, -2.0, 0.9, 0.6, -0.5])
    p = np.asarray(sparsemax(scores))
    f = jnp.asarray(np.random.default_rng(1).normal(size=6))
    assert np.count_nonzero(p) == 3

    def surrogate(scores, reading, outcome):
        sample = reading(outcome, log_of(sparsemax(scores)))
        return combine(sample, sample.rows @ f)

    reading = configured("sum_and_sample", num_samples)
    shape = jax.eval_shape(lambda rng: reading(rng, scores).rows, jax.random.key(0)).shape
    assert shape == (num_samples, 6)  # evaluations of f

    def run(scores):
        whole = jax.value_and_grad(surrogate)(scores, READINGS["enumeration"], None)
        return *whole, jax.grad(lambda scores: sparsemax(scores) @ f)(scores)

    exact, exact_gradient, expected = compiled(run)(scores)
    np.testing.assert_allclose(exact, p @ f, rtol=1e-12)
    np.testing.assert_allclose(exact_gradient, expected, atol=1e-12)
    (value, gradient), (variance, _) = enumeration.moments(
        lambda outcome: jax.value_and_grad(surrogate)(scores, reading, outcome),
        outcomes("sum_and_sample", p, num_samples),
    )
    np.testing.assert_allclose(value, exact, rtol=1e-9)
    np.testing.assert_allclose(gradient, exact_gradient, atol=1e-9)
    assert (variance < 1e-20) == (num_samples >= 3)


def with_mask(reading, mask, dtype, **arguments):
    """(scores, params, rng) -> value, with masked softmax weights in front."""

    def surrogate(scores, params, rng):
        log_weights = log_of(softmax(scores, jnp.asarray(mask)))
        sample = reading(rng, log_weights)
        coordinates = jnp.asarray(COORDINATES, dtype)
        f = loss(sample.rows @ jnp.asarray(VALUES, dtype), params)
        return jnp.sum(combine(sample, f, log_weights=log_weights, coordinates=coordinates, **arguments))

    return jax.jit(jax.value_and_grad(surrogate, (0, 1)))


LEAVE_ONE_OUT = [(name, {}) for name in WITHOUT_REPLACEMENT] + [("unordered_set", {"leave_one_out": True})]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), LEAVE_ONE_OUT)
def test_no_more_keys_than_samples_is_the_enumeration(name, options, num_samples=3):
    mask = np.array([False, True, False, True, False])
    arguments = jnp.asarray(LOGITS), jnp.asarray(PARAMS)
    exact = with_mask(READINGS["enumeration"], mask, float)(*arguments, None)
    estimate = with_mask(configured(name, num_samples, **options), mask, float)
    for seed in range(5):
        got = estimate(*arguments, jax.random.key(seed))
        for leaf, expected in zip(jax.tree.leaves(got), jax.tree.leaves(exact), strict=True):
            np.testing.assert_allclose(leaf, expected, rtol=1e-9, atol=1e-9)


PEAKED = ([20.0, 0.0, -1.0, 0.5, 1.0], [-3.0, 0.0, 90.0, 0.5, 1.0], [300.0, 0.0, -300.0, 0.5, 1.0])


@pytest.mark.slow
@pytest.mark.parametrize("name", READINGS)
def test_one_key_with_all_the_weight_is_finite_and_exact(name):
    readings = [READINGS[name]]
    if name in OUTCOMES and name != "enumeration":
        readings = [configured(name, 3)]
    if "leave_one_out" in READINGS[name].baselines:
        readings.append(configured(name, 3, leave_one_out=True))
    with jax.enable_x64(False):
        logits, params = jnp.asarray(PEAKED, jnp.float32), jnp.asarray(PARAMS, jnp.float32)
        for reading in readings:
            estimate = jax.vmap(with_mask(reading, np.ones(N, bool), np.float32), (0, None, None))
            value, gradients = compiled(estimate)(logits, params, jax.random.key(0))
            assert all(np.all(np.isfinite(x)) for x in (value, *gradients))
            np.testing.assert_allclose(value, exact_losses()[np.argmax(PEAKED, axis=-1)], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OUTCOMES if name != "enumeration"])
def test_unbiased_where_one_key_has_nearly_all_the_weight(name):
    logits = np.array([17.0, 0.0, -1.0, 0.5, 1.0])
    p = np.exp(logits) / np.exp(logits).sum()
    assert p.max() > 1 - 1e-6
    f = exact_losses()
    baselines = {"none": {}, "constant": constant(2.0)}
    found, estimate = outcomes(name, p, 3), estimate_of(configured(name, 3), baselines, logits, f)
    for _, gradient, _ in enumeration.moments(estimate, found)[0].values():
        # The tail, too: relative to its own size.
        np.testing.assert_allclose(gradient, p * (f - p @ f), rtol=1e-5 if name in KEYS_ONCE else 1e-6)


def can_be_marginal(sample):
    return sample.complete or sample.independent


@pytest.mark.slow
@pytest.mark.parametrize("name", ["expectation", "enumeration", "reinforce", "unordered_set", "stratified", "rebar"])
def test_leading_axes_are_one_by_one(name):
    """One sample of each kind; those of test_readings.py say that the samples are."""
    rng = np.random.default_rng(3)
    log_weights = jax.nn.log_softmax(jnp.asarray(rng.normal(size=(2, 3, N))))
    baseline, coordinates = jnp.asarray(rng.normal(size=(2, 3))), jnp.asarray(rng.normal(size=(2, 3, N)))
    leave_one_out = "leave_one_out" in READINGS[name].baselines
    reading = configured(name, 3, leave_one_out=True) if leave_one_out else READINGS[name]

    def everything(sample, log_weights, baseline, coordinates):
        f = loss(sample.rows @ VALUES, jnp.asarray(PARAMS))
        return {
            "combine": combine(sample, f, baseline, log_weights, coordinates),
            "marginal": combine_marginal(sample, f, baseline) if can_be_marginal(sample) else jnp.zeros(f.shape[:-1]),
            "moments": coordinate_moments(sample, log_weights, f),
            "score": log_prob_term(sample, f, baseline),
            "kl": kl_divergence(log_weights, jnp.roll(log_weights, 1, axis=-1)),
            "entropy": entropy(jnp.exp(log_weights)),
        }

    sample = jax.jit(reading)(jax.random.key(0), log_weights)
    both = compiled(lambda *x: (everything(*x), jax.vmap(jax.vmap(everything))(*x)))
    together, alone = both(sample, log_weights, baseline, coordinates)
    assert together["combine"].shape == together["marginal"].shape == (2, 3)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12), together, alone)


# Relaxed samples, by sampling.


def sampled(reading, arguments, count, seed=0, f=None):
    """`count` samples of the gradients with respect to (logits, params), flat [count, N + 3]."""

    def gradient(logits, params, rng):
        def surrogate(logits, params):
            sample = reading(rng, jax.nn.log_softmax(logits))
            return combine(sample, loss(sample.rows @ VALUES.astype(logits.dtype), params), **arguments)

        return jnp.concatenate(jax.grad(surrogate, (0, 1))(logits, params))

    with jax.enable_x64(False):
        rngs = jax.random.split(jax.random.key(seed), count)
        run = jax.jit(jax.vmap(gradient, (None, None, 0)))
        return np.asarray(run(jnp.asarray(LOGITS, jnp.float32), jnp.asarray(PARAMS, jnp.float32), rngs), float)


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "scale", "baseline"), [(0.5, 1.0, None), (2.0, 0.6, 2.0)])
def test_rebar_is_unbiased_for_every_temperature_and_scale(temperature, scale, baseline):
    reading = READINGS["rebar"].configure(temperature=temperature, scale=scale)
    with jax.enable_x64(False):
        arguments = {} if baseline is None else {"baseline": jnp.asarray(baseline)}
        gradients = sampled(reading, arguments, 100_000)
    error = gradients.std(0) / len(gradients) ** 0.5
    assert np.all(np.abs(gradients.mean(0) - np.concatenate(truth()[1:])) < 4 * error)
    assert error.max() < 0.01
    if (temperature, scale) == (0.5, 1.0):
        assert gradients.var(0)[:N].sum() < 0.5 * gradient_moments("reinforce", 1)[1].sum()


@pytest.mark.slow
def test_the_square_of_the_rebar_gradient_has_the_derivative_of_its_temperature_and_scale():
    def square(temperature, scale):
        def surrogate(logits):
            reading = READINGS["rebar"].configure(temperature=temperature, scale=scale)
            sample = reading(jax.random.key(5), jax.nn.log_softmax(logits))
            return combine(sample, loss(sample.rows @ VALUES, jnp.asarray(PARAMS)))

        return jnp.sum(jnp.square(jax.grad(surrogate)(jnp.asarray(LOGITS))))

    square, at, step = jax.jit(square), np.array([0.7, 0.9]), 1e-5
    differences = [(square(*(at + nudge)) - square(*(at - nudge))) / (2 * step) for nudge in step * np.eye(2)]
    np.testing.assert_allclose(jax.jit(jax.grad(square, (0, 1)))(*at), differences, rtol=1e-6)


@pytest.mark.slow
def test_gumbel_rao_has_the_mean_of_straight_through_and_less_variance():
    temperature, count = 0.7, 100_000
    few = sampled(READINGS["straight_through"].configure(temperature=temperature), {}, count)
    variances, mean, error = [few.var(0)[:N].sum()], few.mean(0), few.var(0) / count
    for num_samples in (1, 4, 16):
        reading = READINGS["gumbel_rao"].configure(temperature=temperature, num_samples=num_samples)
        gradients = sampled(reading, {}, count // 4, seed=num_samples)
        variances.append(gradients.var(0)[:N].sum())
        allowed = 4.5 * np.sqrt(error + gradients.var(0) / len(gradients))
        assert np.all(np.abs(gradients.mean(0) - mean) < allowed) and np.max(allowed[:N]) < 0.1
    assert variances[1] == pytest.approx(variances[0], rel=0.05)  # one sample of the noise is as good as another
    assert variances[3] < 0.97 * variances[2] < 0.97**2 * variances[1]
    np.testing.assert_array_less(np.abs(few.mean(0)[:N].sum()), 0.01)  # of the logits, as their gradient must
    biased = np.abs(mean - np.concatenate(truth()[1:]))[:N]
    assert np.max(biased / np.sqrt(error[:N])) > 10  # which is why they are no unbiased samplers


@pytest.mark.slow
@pytest.mark.parametrize("surrogate", [combine, combine_marginal])
def test_losses_of_another_shape_and_baselines_of_each_row_are_refused(surrogate):
    sample_of = jax.jit(READINGS["reinforce"].configure(num_samples=3))
    log_p = jnp.log(jnp.asarray(P))
    for lead, shape in (((), (3,)), ((3,), (3, 3)), ((2,), (3,))):
        sample = sample_of(jax.random.key(0), jnp.broadcast_to(log_p, (*lead, N)))
        for wrong in ((*lead, 1), (*lead, 3, 1), (*lead, 4)):
            with pytest.raises(ValueError, match=rf"{surrogate.__name__}: f has the shape .*; expected \[..., 3\]"):
                surrogate(sample, jnp.ones(wrong))
        one = rf"{surrogate.__name__}: the baseline has the shape .*; expected {re.escape(str(lead))}, one number for"
        with pytest.raises(ValueError, match=one):
            surrogate(sample, jnp.ones((*lead, 3)), jnp.ones(shape))
        assert jax.eval_shape(surrogate, sample, jnp.ones((*lead, 3)), jnp.ones(())).shape == lead


@pytest.mark.parametrize("control", ["per_key", "coordinates"])
def test_a_control_of_keys_needs_the_log_weights(control):
    sample = jax.jit(READINGS["reinforce"])(jax.random.key(0), jnp.log(jnp.asarray(P)))
    with pytest.raises(ValueError, match="coordinates or per_key: expected log_weights"):
        combine(sample, jnp.ones(1), **{control: jnp.ones(N)})
