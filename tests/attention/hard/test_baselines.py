"""Baselines against their formulas, and what trains them: their own squared error, which reaches nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import params_of

from attn_jax.attention.hard.baselines import (
    BASELINES,
    RUNNING,
    Adaptive,
    Critic,
    LearnedBaseline,
    PerCoordinate,
    RunningMean,
    SampledLosses,
)
from attn_jax.attention.hard.estimators import coordinate_moments
from attn_jax.attention.hard.samplers import choose

B, T, S, N, D = 2, 3, 5, 4, 6  # sentences, target positions, source positions, samples, columns
RNG = np.random.default_rng(0)
TOP, VALUES, TARGETS = (
    jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in ((B, T, D), (B, S, D), (B, T, D - 1))
)
LOG_WEIGHTS = jax.nn.log_softmax(jnp.asarray(RNG.normal(size=(B, T, S)), jnp.float32))
LOSSES = jnp.asarray(RNG.normal(2, 1, size=(B, T, N)), jnp.float32)
INDEX = jnp.asarray(RNG.integers(0, S, (B, T, N)))
SAMPLE = choose(LOG_WEIGHTS, INDEX, jnp.asarray(RNG.dirichlet(np.ones(N), (B, T)), jnp.float32))
SAMPLE = SAMPLE.replace(sampler=jnp.asarray([[0, 1, 0], [1, 1, 1]]))
F = jnp.sum(SAMPLE.importance_weights * LOSSES, axis=-1)


def everything(module, top, values, targets, log_weights, losses):
    """(what is subtracted, the loss of its own) of any baseline."""
    guess = module.per_key(top, values, targets)
    found = module.value(top), module.coordinates(S), guess
    return found, module.loss(top, F, SampledLosses(SAMPLE, log_weights, losses, guess))


ARGUMENTS = TOP, VALUES, TARGETS, LOG_WEIGHTS, LOSSES
MODULES = {
    "running_mean": RunningMean(),
    "learned": LearnedBaseline(features=4),
    "per_coordinate": PerCoordinate(max_length=S + 2),
    "critic": Critic(features=4),
    "adaptive": Adaptive(),
}


def built(name):
    """(module, parameters)."""
    return MODULES[name], params_of(MODULES[name], *ARGUMENTS, method=everything)


def run(name, params):
    return MODULES[name].apply({"params": params}, *ARGUMENTS, method=everything)


def test_each_baseline_with_parameters_is_here():
    assert MODULES.keys() < BASELINES.keys() and all(built(name)[1] for name in MODULES)
    for name in BASELINES.keys() - MODULES.keys():
        assert not BASELINES[name]().init(jax.random.key(0), *ARGUMENTS, method=everything)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_its_loss_reaches_nothing_that_it_looks_at(name):
    module, params = built(name)
    arguments = TOP, VALUES, TARGETS  # the losses and weights come without gradients

    def loss(params, *seen):
        return jnp.sum(module.apply({"params": params}, *seen, LOG_WEIGHTS, LOSSES, method=everything)[1])

    own, *others = jax.grad(loss, (0, 1, 2, 3))(params, *arguments)
    assert all(np.any(leaf != 0) for leaf in jax.tree.leaves(own))
    assert not any(np.any(leaf != 0) for leaf in others)


def test_the_names_of_running_means_are_those_of_parameters():
    """The optimizer knows them by these names."""
    names = {parameter for name in MODULES for parameter in built(name)[1]}
    assert {name for name in names if "running" in name} == RUNNING


def test_a_running_mean_moves_to_the_loss():
    """Plain descent with rate r is b <- (1 - r) b + r f where the gradient is b - f, no multiple of it."""
    params = {"running_mean": jnp.asarray(0.3)}
    (value, coordinates, guess), _ = run("running_mean", params)
    np.testing.assert_allclose(value, np.full((B, T), 0.3))
    assert coordinates is None and guess is None
    gradient = jax.grad(lambda p: jnp.mean(run("running_mean", p)[1]))(params)["running_mean"]
    np.testing.assert_allclose(gradient, 0.3 - np.mean(F), rtol=1e-5)


def test_a_learned_baseline_is_its_formula():
    _, p = built("learned")
    (value, _, _), loss = run("learned", p)
    inner = np.tanh(TOP @ p["inner"]["kernel"] + p["inner"]["bias"])
    expected = (inner @ p["outer"]["kernel"] + p["outer"]["bias"])[..., 0]
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss, (expected - F) ** 2, rtol=1e-4, atol=1e-5)


def test_baselines_of_coordinates_are_quotients_of_running_means():
    numerator, denominator = RNG.normal(size=(2, S + 2)).astype(np.float32)
    params = {"running_numerator": numerator, "running_denominator": np.abs(denominator) + 0.1}
    (_, coordinates, _), _ = run("per_coordinate", params)
    expected = numerator / params["running_denominator"]
    np.testing.assert_allclose(coordinates, expected[:S], rtol=1e-5)
    longer = MODULES["per_coordinate"].apply({"params": params}, S + 4, method="coordinates")
    np.testing.assert_allclose(longer, [*expected, 0, 0], rtol=1e-5)
    params["running_denominator"] = np.zeros(S + 2, np.float32)  # before anything is seen
    assert np.all(np.isfinite(run("per_coordinate", params)[0][1]))

    gradient = jax.grad(lambda p: jnp.mean(run("per_coordinate", p)[1]))(params)
    moments = coordinate_moments(SAMPLE, LOG_WEIGHTS, LOSSES)
    for name, moment in zip(("running_numerator", "running_denominator"), moments, strict=True):
        expected = params[name][:S] - np.mean(moment, axis=(0, 1))
        np.testing.assert_allclose(gradient[name], [*expected, 0, 0], rtol=1e-4, atol=1e-6)


def test_a_critic_is_its_formula_and_learns_the_losses_that_were_seen():
    _, p = built("critic")
    (_, _, guess), loss = run("critic", p)
    dense = lambda layer, x: x @ layer["kernel"] + layer.get("bias", 0)  # noqa: E731
    u = np.tanh(dense(p["inner"], np.concatenate([TOP, TARGETS], axis=-1)))
    query, keys = dense(p["query"], u), dense(p["key"], np.asarray(VALUES))
    for b, t, s in np.ndindex(B, T, S):
        expected = dense(p["mean"], u[b, t])[0] + query[b, t] @ keys[b, s] / np.sqrt(4)
        np.testing.assert_allclose(guess[b, t, s], expected, rtol=1e-4, atol=1e-5)
    for b, t in np.ndindex(B, T):
        errors = [(guess[b, t, INDEX[b, t, n]] - LOSSES[b, t, n]) ** 2 for n in range(N)]
        np.testing.assert_allclose(loss[b, t], np.dot(SAMPLE.importance_weights[b, t], errors), rtol=1e-4)
