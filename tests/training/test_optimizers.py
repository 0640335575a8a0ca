"""Schedules against their closed forms, clipping, the plateau, and the errors."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_model import optimizer

from attn_jax.attention.hard.baselines import RUNNING
from attn_jax.errors import UserError
from attn_jax.training.optimizers import LEAST_EPS, RUNNING_RATE, PlateauState, SinceBest, adam, halve
from attn_jax.training.options import SCHEDULES

PARAMS = {"matrix": np.full((2, 3), 0.5, np.float32), "bias": np.array([3.0, -4.0], np.float32)}
RATE, WARMUP, STEPS = 0.1, 4, 20


def updates_of(tx, grads, count=1, params=PARAMS):
    state, updates = tx.init(params), None
    for _ in range(count):
        updates, state = tx.update(grads, state, params)
    return updates


@pytest.mark.parametrize(
    ("name", "decay"),
    [
        ("constant", lambda t: 1.0),
        ("plateau", lambda t: 1.0),
        ("inverse_sqrt", lambda t: (WARMUP / t) ** 0.5),
        ("cosine", lambda t: 0.5 * (1 + np.cos(np.pi * (t - 1 - WARMUP) / (STEPS - WARMUP)))),
    ],
)
def test_schedule_is_its_closed_form(name, decay):
    rate = SCHEDULES[name]().build(RATE, WARMUP, STEPS)
    expected = [RATE * (t / WARMUP if t <= WARMUP else decay(t)) for t in range(1, STEPS + 1)]
    np.testing.assert_allclose([rate(count) for count in range(STEPS)], expected, rtol=1e-4)


def test_cosine_ends_at_zero_and_without_warmup_the_first_rate_is_the_full_one():
    rate = SCHEDULES["cosine"]().build(RATE, WARMUP, STEPS)
    np.testing.assert_allclose([rate(STEPS), rate(STEPS + 5)], 0.0, atol=1e-9)
    for name in ("constant", "inverse_sqrt", "cosine", "plateau"):
        assert float(SCHEDULES[name]().build(RATE, 0, STEPS)(0)) == pytest.approx(RATE)


def test_gradient_is_clipped_by_its_global_norm_or_array_by_array():
    plain = {"learning_rate": 1.0, "momentum": 0.0}
    grads = {"matrix": np.full((2, 3), 2.0, np.float32), "bias": np.array([3.0, 4.0], np.float32)}  # norm 7
    clipped = updates_of(optimizer(clip__norm=1.0, **plain), grads)
    jax.tree.map(lambda u, g: np.testing.assert_allclose(u, -g / 7, rtol=1e-6), clipped, grads)
    assert float(optax.tree.norm(clipped)) == pytest.approx(1.0, rel=1e-6)
    each = updates_of(optimizer(clip="each", clip__norm=4.5, **plain), grads)  # the norms are 24^(1/2) and 5
    np.testing.assert_allclose(each["matrix"], -grads["matrix"] * 4.5 / 24**0.5, rtol=1e-6)
    np.testing.assert_allclose(each["bias"], -grads["bias"] * 4.5 / 5, rtol=1e-6)
    for clip in ({"clip__norm": 100.0}, {"clip": "none"}):
        same = updates_of(optimizer(**clip, **plain), grads)
        jax.tree.map(lambda u, g: np.testing.assert_allclose(u, -g, rtol=1e-6), same, grads)


WITH_BASELINE = {
    "cell": {"kernel": np.full((2, 3), 2.0, np.float32), "bias": np.array([3.0, 4.0], np.float32)},  # norm 7
    "objective": {"baseline": {"inner": {"kernel": np.full(4, 60.0, np.float32)}, "running_mean": np.float32(500.0)}},
}


@pytest.mark.parametrize(
    ("clip", "norm", "of_cell"), [("global", 3.5, 0.5), ("global", 14.0, 1.0), ("each", 4.5, 4.5 / 5)]
)
def test_the_gradient_of_a_baseline_is_clipped_by_itself(clip, norm, of_cell):
    """Its norm is 120, that of all others 7, of the bias alone 5; running means move by their own rate."""
    tx = optimizer(clip=clip, clip__norm=norm, learning_rate=1.0, momentum=0.0)
    found = updates_of(tx, WITH_BASELINE, params=WITH_BASELINE)
    np.testing.assert_allclose(found["cell"]["bias"], -of_cell * WITH_BASELINE["cell"]["bias"], rtol=1e-6)
    of_baseline = found["objective"]["baseline"]
    np.testing.assert_allclose(of_baseline["inner"]["kernel"], -60 * norm / 120, rtol=1e-6)
    np.testing.assert_allclose(of_baseline["running_mean"], -RUNNING_RATE * 500, rtol=1e-6)


def test_running_means_are_those_of_the_baselines_by_their_exact_names():
    tx = optimizer(learning_rate=0.5, clip="none", momentum=0.0)
    found = updates_of(tx, {name: np.ones(2, np.float32) for name in (*RUNNING, "running_shoes", "running")})
    rates = {name: float(-update[0]) for name, update in found.items()}
    assert rates == {name: pytest.approx(RUNNING_RATE if name in RUNNING else 0.5) for name in rates}


def test_a_parameter_may_be_an_array_without_a_name():
    tx = optimizer(learning_rate=0.5, clip="none", momentum=0.0)
    np.testing.assert_array_equal(updates_of(tx, np.ones(2, np.float32)), [-0.5, -0.5])


@pytest.mark.parametrize("clip", ["global", "each"])
def test_clipping_keeps_no_state(clip):
    """So that a training with a baseline goes on from the checkpoints of any version."""
    clipped, plain = (optimizer(clip=name).init(WITH_BASELINE) for name in (clip, "none"))
    assert jax.tree.structure(clipped) == jax.tree.structure(plain)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sgd", lambda g, p: -RATE * 1.9 * g),  # the second update with momentum 0.9
        ("adam", lambda g, p: -RATE * np.sign(g)),  # constant gradient: m / sqrt(v) = 1
        ("adamw", lambda g, p: -RATE * (np.sign(g) + (0.1 * p if p.ndim > 1 else 0.0))),
    ],
)
def test_optimizer_is_its_closed_form(name, expected):
    more = {"weight_decay": 0.1} if name == "adamw" else {}
    tx = optimizer(name=name, learning_rate=RATE, clip="none", **more)
    grads = {"matrix": np.full((2, 3), 2.0, np.float32), "bias": np.array([3.0, -4.0], np.float32)}
    updates = updates_of(tx, grads, count=2)
    jax.tree.map(lambda u, g, p: np.testing.assert_allclose(u, expected(g, p), rtol=1e-4), updates, grads, PARAMS)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-17, 1e-10])
def test_the_smallest_eps_keeps_adam_finite_where_the_square_of_a_gradient_is_zero(size):
    tx = optimizer(name="adam", learning_rate=1.0, clip="none", b2=0.999999, eps=LEAST_EPS)
    updates = updates_of(tx, jax.tree.map(lambda p: np.full_like(p, size), PARAMS), count=2)
    assert all(np.all(np.abs(u) <= 1.01) for u in jax.tree.leaves(updates))


def test_the_rate_is_halved_each_period():
    halving = {"schedule": "halving", "schedule__after": 2, "schedule__every": 3}
    tx = optimizer(name="sgd", learning_rate=1.0, clip="none", momentum=0.0, **halving)
    state, rates = tx.init(PARAMS), []
    for _ in range(9):
        updates, state = tx.update(PARAMS, state)
        rates.append(float((updates["matrix"] / PARAMS["matrix"]).ravel()[0]))
    np.testing.assert_allclose(rates, [-1, -1, -1, -1, -1, -0.5, -0.5, -0.5, -0.25])


def test_halve_halves_the_update_of_the_seeds_that_are_named():
    tx = optimizer(schedule="plateau", learning_rate=1.0, clip="none", momentum=0.0)
    state = halve(tx.init(PARAMS))
    for halved, factor in ((state, 0.5), (halve(state), 0.25)):
        updates, _ = tx.update(PARAMS, halved)
        jax.tree.map(lambda u, p, f=factor: np.testing.assert_allclose(u, -f * p), updates, PARAMS)
    state = jax.vmap(tx.init)(jax.tree.map(lambda p: jnp.stack([p, p, p]), PARAMS))
    halved = halve(state, np.array([True, False, True]))
    (plateau,) = [s for s in halved if isinstance(s, PlateauState)]
    np.testing.assert_array_equal(plateau.scale, np.array([0.5, 1.0, 0.5], np.float32))
    assert jax.tree.structure(halved) == jax.tree.structure(state) and plateau.scale.dtype == np.float32
    state = optimizer(schedule="constant").init(PARAMS)
    assert jax.tree.structure(halve(state)) == jax.tree.structure(state)


def test_since_best_counts_and_is_spent_every_patience():
    since = SinceBest("min")
    counts = [(int(since.update(v)), bool(since.spent(2))) for v in [3.0, 2.0, 2.5, 2.0, float("nan"), 4.0, 1.0]]
    assert counts == [(0, False), (0, False), (1, False), (2, True), (3, False), (4, True), (0, False)]


def test_since_best_counts_on_where_there_never_was_a_number():
    since = SinceBest("min")
    counts = [(int(since.update(v)), bool(since.spent(2))) for v in [float("nan")] * 3 + [7.0, float("nan")]]
    assert counts == [(1, False), (2, True), (3, False), (0, False), (1, False)]


def test_since_best_of_several_seeds_and_through_json():
    since = SinceBest("max")
    since.update([1.0, float("nan")])
    again = SinceBest("max")
    again.state = json.loads(json.dumps(since.state))
    for one in (since, again):
        np.testing.assert_array_equal(one.update([0.5, 0.1]), [1, 0])
        np.testing.assert_array_equal(one.spent(1), [True, False])
    fresh = SinceBest("max")
    fresh.state = {}
    assert fresh.state == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "adm"}, "did you mean adam"),
        ({"schedule": "inverse_sqr"}, "did you mean inverse_sqrt"),
        ({"schedule": "halving", "schedule__evry": 1}, "schedule.evry; did you mean optimizer.schedule.every"),
        ({"learning_rate": float("nan")}, "optimizer.learning_rate is nan; expected a finite number"),
        ({"clip__norm": 0.0}, "optimizer.clip.norm is 0.0; expected at least 1e-30"),
        ({"clip": "none", "clip__norm": 1.0}, "clip.norm; it is an option of optimizer.clip global or each"),
        ({"schedule": "plateau", "schedule__patience": 0}, "optimizer.schedule.patience is 0; expected at least 1"),
        ({"schedule": "halving", "schedule__every": 0}, "optimizer.schedule.every is 0; expected at least 1"),
        ({"name": "adamw", "weight_decay": -0.1}, "optimizer.weight_decay is -0.1; expected at least 0"),
        ({"name": "sgd", "momentum": 1.0}, "optimizer.momentum is 1.0; expected 0 to 0.999999"),
        ({"name": "sgd", "weight_decay": 0.1}, "weight_decay; it is an option of optimizer adamw"),
        ({"name": "adam", "momentum": 0.9}, "momentum; it is an option of optimizer sgd"),
        ({"name": "adam", "eps": 0.0}, "optimizer.eps is 0.0; expected at least 1e-16"),
    ],
)
def test_wrong_values_are_user_errors(changes, words):
    with pytest.raises(UserError, match=words) as error:
        optimizer(**changes)
    assert "\n" not in str(error.value)


def test_in_code_adam_takes_no_smaller_eps():
    with pytest.raises(UserError, match="eps must be at least 1e-16, got 1e-30"):
        adam(b1=0.9, b2=0.999, eps=1e-30)
