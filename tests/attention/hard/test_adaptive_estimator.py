"""The adaptive estimator: unbiased given the past, which is all that it learns from, and of less variance in time."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import enumeration

from attn_jax.attention.hard.baselines import Adaptive, SampledLosses
from attn_jax.attention.hard.estimators import combine
from attn_jax.attention.hard.readings import READINGS
from attn_jax.training.optimizers import RUNNING_RATE

P = np.array([0.1, 0.45, 0.15, 0.3])
N, SAMPLES = len(P), 2
F = np.array([2.0, 1.4, 3.1, 0.2])
TRUTH = P * (F - P @ F)
SAMPLERS = ("optimal_resampling", "sum_and_sample")
ADAPTIVE = Adaptive()
PARAMS = {
    "nothing seen": np.zeros((2, 5)),
    "one sampler seen": np.array([[0.05, 0.08, 0.2, 0.07, 0.03], np.zeros(5)]),
    "both seen": np.array([[0.6, 1.0, 1.1, 0.4, 0.2], [0.9, 1.5, 1.9, 0.5, 0.3]]),
    "nonsense": np.array([[0.3, -2.0, 5.0, -3.0, 0.7], [1.2, 9.0, 0.1, 4.0, 0.2]]),
}


pytestmark = pytest.mark.usefixtures("double_precision")


def apply(moments, *args, method):
    return ADAPTIVE.apply({"params": {"running_moments": jnp.asarray(moments)}}, *args, method=method)


def probability_of_the_first(moments):
    reading = READINGS["adaptive"].configure(num_samples=SAMPLES)
    return float(dict(apply(moments, reading, method="configure").arguments)["probability"])


def outcomes(first):
    """All outcomes of the choice, whose first sampler has this probability, and of the chosen sampler."""
    return [
        (chosen * probability, np.array([choice, *point]))
        for name, chosen, choice in zip(SAMPLERS, (first, 1 - first), (first / 2, (1 + first) / 2), strict=True)
        for probability, point in enumeration.outcomes(name, P, SAMPLES)
    ]


@jax.jit
def step(moments, outcome):
    """(gradient of the logits, moments after a step of descent) for one outcome."""

    def surrogate(logits, moments):
        log_weights = jax.nn.log_softmax(logits)[None, None]
        reading = apply(moments, READINGS["adaptive"].configure(num_samples=SAMPLES), method="configure")
        sample = reading(outcome[None, None], log_weights)
        losses, hidden = sample.rows @ jnp.asarray(F), jnp.zeros((1, 1, 1))
        b = apply(moments, hidden, sample.sampler, method="of_sampler")
        f = jnp.sum(sample.importance_weights * losses, axis=-1)
        own = apply(moments, hidden, f, SampledLosses(sample, log_weights, losses, None), method="loss")
        return combine(sample, losses, b)[0, 0] + own[0, 0]

    into_logits, into_moments = jax.grad(surrogate, (0, 1))(jnp.log(jnp.asarray(P)), moments)
    return into_logits, moments - RUNNING_RATE * into_moments


def after(moments):
    """[(probability, gradient, moments after it)] of all outcomes."""
    found = outcomes(probability_of_the_first(moments))
    each = jax.vmap(functools.partial(step, jnp.asarray(moments)))(jnp.asarray([outcome for _, outcome in found]))
    return [(p, *both) for (p, _), both in zip(found, zip(*map(np.asarray, each), strict=True), strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMS)
def test_whatever_was_learned_the_next_estimate_is_unbiased(name):
    found = after(PARAMS[name])
    assert sum(p for p, *_ in found) == pytest.approx(1)
    np.testing.assert_allclose(sum(p * gradient for p, gradient, _ in found), TRUTH, atol=1e-12)
    assert max(np.abs(gradient - TRUTH).max() for _, gradient, _ in found) > 1e-3  # there is noise


def test_two_steps_are_unbiased_given_every_outcome_of_the_first():
    for p, _, moments in after(PARAMS["both seen"]):
        assert p > 0
        np.testing.assert_allclose(sum(q * gradient for q, gradient, _ in after(moments)), TRUTH, atol=1e-12)


def test_a_baseline_that_sees_the_sample_it_is_used_for_is_biased():
    """What the tests above would notice: the moments after the step in place of those before it."""
    found = outcomes(probability_of_the_first(PARAMS["both seen"]))
    seen = [
        np.asarray(step(step(jnp.asarray(PARAMS["both seen"]), jnp.asarray(w))[1], jnp.asarray(w))[0]) for _, w in found
    ]
    assert np.abs(sum(p * gradient for (p, _), gradient in zip(found, seen, strict=True)) - TRUTH).max() > 1e-4


@pytest.mark.slow
def test_moments_of_a_sampler_are_means_over_its_own_samples():
    moments = PARAMS["both seen"]
    for (_, outcome), (_, _, then) in zip(outcomes(probability_of_the_first(moments)), after(moments), strict=True):
        chosen = int(outcome[0] >= probability_of_the_first(moments))
        np.testing.assert_array_equal(then[1 - chosen], moments[1 - chosen])
        sample = READINGS[SAMPLERS[chosen]].configure(num_samples=SAMPLES)(jnp.asarray(outcome[1:]), jnp.log(P))
        masses = np.asarray(sample.importance_weights @ sample.rows)
        value, b = masses @ F, masses - P
        a = masses * F - P * value
        expected = np.array([1, value, a @ a, a @ b, b @ b])
        np.testing.assert_allclose(
            then[chosen], moments[chosen] + RUNNING_RATE * (expected - moments[chosen]), rtol=1e-9, atol=1e-12
        )


def exact_moments(name):
    """E of what the running means of a sampler estimate."""
    found, total = enumeration.outcomes(name, P, SAMPLES), 0
    for p, point in found:
        sample = READINGS[name].configure(num_samples=SAMPLES)(jnp.asarray(point), jnp.log(jnp.asarray(P)))
        masses = np.asarray(sample.importance_weights @ sample.rows)
        a, b = masses * F - P * (masses @ F), masses - P
        total = total + p * np.array([1, masses @ F, a @ a, a @ b, b @ b])
    return total


@pytest.mark.slow
def test_at_the_exact_moments_b_is_least_squares_and_the_better_sampler_is_chosen():
    moments = np.stack([exact_moments(name) for name in SAMPLERS])
    b = apply(moments, jnp.zeros((1, 2, 1)), jnp.array([[0, 1]]), method="of_sampler")[0]
    np.testing.assert_allclose(b, moments[:, 3] / moments[:, 4], rtol=1e-9)
    for value, (_, _, a_a, a_b, b_b) in zip(np.asarray(b), moments, strict=True):
        square = lambda x, a_a=a_a, a_b=a_b, b_b=b_b: a_a - 2 * x * a_b + x**2 * b_b  # noqa: E731
        assert square(value) < min(square(value - 0.01), square(value + 0.01))
    least = moments[:, 2] - moments[:, 3] ** 2 / moments[:, 4]
    assert probability_of_the_first(moments) == (7 / 8 if least[0] < least[1] else 1 / 8)
    assert probability_of_the_first(moments[::-1]) == (1 / 8 if least[0] < least[1] else 7 / 8)
    assert (
        probability_of_the_first(PARAMS["nothing seen"]) == probability_of_the_first(PARAMS["one sampler seen"]) == 0.5
    )


def test_after_many_steps_the_variance_is_near_that_of_the_better_sampler_with_the_best_constant():
    def go_on(moments, rng):
        return step(moments, jax.random.uniform(rng, (2,)))[1], None

    rngs = jax.random.split(jax.random.key(0), 3_000)
    moments, _ = jax.jit(lambda rngs: jax.lax.scan(go_on, jnp.zeros((2, 5)), rngs))(rngs)
    exact = np.stack([exact_moments(name) for name in SAMPLERS])
    least = (exact[:, 2] - exact[:, 3] ** 2 / exact[:, 4] - TRUTH @ TRUTH).min()
    found = after(np.asarray(moments))
    variance = sum(p * np.square(gradient - TRUTH).sum() for p, gradient, _ in found)
    untrained = sum(p * np.square(gradient - TRUTH).sum() for p, gradient, _ in after(PARAMS["nothing seen"]))
    assert variance < 1.5 * least and variance < 0.4 * untrained
