"""model.objective.soft_steps: the first step is soft attention, the last is the objective, and between lies a line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_seq2seq import build, random_params, sentences

from attn_jax.errors import UserError
from attn_jax.models.seq2seq.objectives import falling
from attn_jax.runs.options import change
from configs.base import get_config

BATCH = jax.tree.map(jnp.asarray, sentences([(4, 3), (3, 2)], 4, 3))
SMALL = dict(decoder="bahdanau", encoder="gru", encoder__bidirectional=False, decoder__cell="gru")
STEPS = 8


def gradients(model, params):
    """step -> ((loss, metrics), gradients), always with the same samples."""
    run = compiled(jax.value_and_grad(model.loss_fn, has_aux=True))
    return lambda step: run(params, BATCH, jax.random.key(3), jnp.asarray(step))


def same(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-5), a, b)


@pytest.fixture(scope="module")
def soft():
    model = build(**SMALL)
    params = jax.tree.map(jnp.asarray, random_params(model, BATCH))
    return params, gradients(model, params)(0)


def pair(soft, **objective):
    """(parameters, the model, the model with soft_steps); the parameters are those of the soft model and further."""
    models = [build(**objective, **new, **SMALL) for new in ({}, {"objective__soft_steps": STEPS})]
    params = jax.tree.map(jnp.asarray, random_params(models[0], BATCH)) | soft[0]
    return params, *models


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["hard", "marginal"])
def test_the_loss_goes_on_a_line_from_soft_to_the_objective(soft, objective):
    read = {
        "hard": dict(objective__reading__num_samples=2, objective__baseline="leave_one_out"),
        "marginal": {"objective__reading": "enumeration"},
    }
    params, plain, model = pair(soft, objective=objective, **read[objective])
    found = gradients(model, params)
    (first, _), begin = found(0)
    same((first, begin), (soft[1][0][0], soft[1][1]))
    (last, metrics), end = gradients(plain, params)(0)
    for step in (STEPS, STEPS + 5):
        same(found(step), ((last, metrics), end))
    (middle, _), between = found(STEPS // 4)
    mixed = jax.tree.map(lambda a, b: 0.75 * a + 0.25 * b, (first, begin), (last, end))
    same((middle, between), mixed)
    assert abs(first - last) > 1e-3


@pytest.mark.slow
def test_all_trajectories_read_the_mean_at_first_and_the_usual_share_at_last(soft):
    options = dict(objective__baseline="none", objective__mean_probability=0.5)
    params, plain, model = pair(soft, objective="trajectory", **options)
    found = gradients(model, params)
    (first, _), begin = found(0)
    same((first, begin), (soft[1][0][0], soft[1][1]))
    same(found(STEPS), gradients(plain, params)(0))
    np.testing.assert_allclose([falling(jnp.asarray(step), 4) for step in (0, 1, 4, 9)], [1, 0.75, 0, 0])
    for step, share in ((0, 1.0), (2, 0.875), (8, 0.5), (9, 0.5)):
        np.testing.assert_allclose(model.module.objective.mean_share(step), share, rtol=1e-6)
    assert plain.module.objective.mean_share(3) == 0.5 and not plain.module.takes_step


@pytest.mark.slow
def test_a_temperature_falls_in_equal_ratios_and_the_loss_is_that_of_the_temperature(soft):
    read = dict(objective="hard", objective__reading="gumbel_softmax")
    cooling = dict(objective__reading__cooling__num_steps=4, objective__reading__cooling__final=0.125)
    geometric = dict(objective__reading__temperature=2.0, objective__reading__cooling="geometric", **cooling)
    cooled = build(**read, **geometric, **SMALL)
    np.testing.assert_allclose([cooled.module.objective.cooling(step) for step in (0, 1, 4, 9)], [2, 1, 0.125, 0.125])
    params = jax.tree.map(jnp.asarray, random_params(cooled, BATCH))
    assert cooled.module.takes_step
    found = gradients(cooled, params)
    for step, temperature in ((1, 1.0), (6, 0.125)):
        fixed = build(**read, objective__reading__temperature=temperature, **SMALL)
        same(found(step), gradients(fixed, params)(0))


HARD = {"model.objective": "hard"}
GUMBEL = HARD | {"model.objective.reading": "gumbel_softmax"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            HARD | {"model.objective.reading": "reinforce", "model.objective.reading.cooling": "geometric"},
            r"unknown config key model\.objective\.reading\.cooling",
        ),
        (
            GUMBEL | {"model.objective.reading.cooling.final": 0.2},
            r"cooling\.final; it is .*reading\.cooling geometric",
        ),
        ({"model.objective.soft_steps": 10}, r"soft_steps; it is an option of model\.objective hard, traj"),
    ],
)
def test_only_what_is_latent_or_has_a_temperature_changes(given, message):
    with pytest.raises(UserError, match=message):
        change(get_config(model="seq2seq"), given)


def test_all_latent_contexts_may_begin_soft():
    for name in ("hard", "trajectory", "marginal", "elbo"):
        given = {"model.objective.soft_steps": 10, "model.objective": name}
        assert change(get_config(model="seq2seq"), given).model.objective.soft_steps == 10
