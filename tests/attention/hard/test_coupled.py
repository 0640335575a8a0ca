"""Coupled samples against the sum over all pairs that antithetic stick breaking can give."""

import collections
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from oracles import enumeration

from attn_jax.attention.hard.estimators import combine, counts
from attn_jax.attention.hard.readings import READINGS, log_of

LOGITS = np.array([0.3, -0.6, 1.1, 0.2, -1.5])
P = np.exp(LOGITS) / np.exp(LOGITS).sum()
F = np.array([2.0, 1.4, 3.1, 0.2, 2.7])
PROBLEMS = {
    "five": P,
    "two": np.array([0.3, 0.7]),
    "equal": np.full(4, 0.25),
    "peaked": np.array([1e-7, 1 - 3e-6, 9e-7, 2e-6]),
    "masked": np.array([0.2, 0.0, 0.5, 0.3, 0.0]),
    "one": np.array([0.0, 1.0, 0.0]),
}


pytestmark = pytest.mark.usefixtures("double_precision")


def estimate_of(p, f, baseline=0.0):
    """outcome -> (value, gradient of the logits, masses)."""
    logits = log_of(jnp.asarray(p))

    def estimate(outcome):
        def surrogate(logits):
            possible = jnp.asarray(p > 0)
            log_weights = jnp.where(possible, jax.nn.log_softmax(logits, where=possible), -jnp.inf)
            sample = READINGS["coupled"](outcome, log_weights)
            return combine(sample, sample.rows @ jnp.asarray(f), jnp.asarray(baseline)), counts(sample)

        (value, masses), gradient = jax.value_and_grad(surrogate, has_aux=True)(jnp.where(p > 0, logits, 0.0))
        return value, gradient, masses

    return estimate


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_mean_over_all_pairs_is_the_enumeration(name):
    p = PROBLEMS[name]
    f, found = F[: len(p)], enumeration.antithetic_pairs(p)
    assert math.fsum(probability for probability, _ in found) == pytest.approx(1, abs=1e-12)
    (value, gradient, masses), _ = enumeration.moments(estimate_of(p, f), found)
    np.testing.assert_allclose(value, p @ f, rtol=1e-9)
    np.testing.assert_allclose(gradient, p * (f - p @ f), rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(masses, p, rtol=1e-6)


def test_a_constant_in_the_loss_or_in_the_baseline_changes_nothing():
    found = enumeration.antithetic_pairs(P)
    plain, *others = (
        enumeration.values(estimate_of(P, F + shift, baseline), found)[1][1]
        for shift, baseline in ((0.0, 0.0), (10.0, 0.0), (0.0, 3.0))
    )
    for other in others:
        np.testing.assert_allclose(other, plain, atol=1e-9)


def test_sampled_pairs_have_their_probabilities():
    found = {tuple(keys.tolist()): probability for probability, keys in enumeration.antithetic_pairs(P)}
    count, log_p = 40_000, jnp.log(jnp.asarray(P))
    rows = compiled(jax.vmap(lambda rng: READINGS["coupled"](rng, log_p).rows))(
        jax.random.split(jax.random.key(0), count)
    )
    frequencies = collections.Counter(map(tuple, rows.argmax(-1).tolist()))
    assert set(frequencies) <= set(found)
    for keys, probability in found.items():
        error = (probability * (1 - probability) / count) ** 0.5
        assert abs(frequencies[keys] / count - probability) < 5 * error + 5 / count, keys


def test_equal_keys_are_rarer_than_among_independent_ones_and_the_variance_is_less_where_weights_are_equal():
    same = sum(probability for probability, keys in enumeration.antithetic_pairs(P) if keys[0] == keys[1])
    assert same < 0.6 * np.sum(P**2)
    p, f = PROBLEMS["equal"], F[:4]
    _, (_, variance, _) = enumeration.moments(estimate_of(p, f), enumeration.antithetic_pairs(p))
    leave_one_out = READINGS["reinforce"].configure(num_samples=2, leave_one_out=True)

    def independent(outcome):
        def surrogate(logits):
            sample = leave_one_out(outcome, jax.nn.log_softmax(logits))
            return combine(sample, sample.rows @ jnp.asarray(f))

        return jax.grad(surrogate)(jnp.log(jnp.asarray(p)))

    _, plain = enumeration.moments(independent, enumeration.outcomes("reinforce", p, 2))
    assert variance.sum() < 0.9 * plain.sum()
