"""The benchmark for a GPU, in tiny shapes on a CPU: what it compares is the same, and an error ends one row alone."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.benchmarks import gpu_speed as speed
from experiments.benchmarks import page

SIZES = speed.SMALL._replace(layers=1, size=16, inner=16, pairs=2, tokens=4, steps=1)


def parameters():
    batch = speed.random_batch(SIZES)
    return speed.random_params(speed.build(speed.get_config("float32", SIZES), SIZES), batch), batch


def test_all_checks_pass_and_are_on_the_page():
    progress = speed.Progress(600)
    compiler = speed.Compiler(progress)
    rows = speed.check_part(speed.start_checks(speed.SMALL, compiler, progress), speed.SMALL, compiler, progress)
    assert len(rows) == 12 and all(row["passed"] for row in rows) and not progress.notes
    times = {"32": {"a": {"median": 1.0, "low": 0.5, "high": 2.0}}, "64": {}}
    lines = page.gpu({"unit": "target tokens", "checks": rows, "groups": [], "attention": times})
    assert sum(line.endswith("| yes |") for line in lines) == 12
    assert lines[-1] == "| a | 1 [0.5-2] |  |"


def test_what_is_not_finite_or_too_far_never_passes():
    right = [np.ones(3)] * 2
    for wrong in (np.nan, np.inf, 1.1):
        for found in ([jnp.full(3, wrong), jnp.ones(3)], [jnp.ones(3), jnp.full(3, wrong)]):
            row = speed.checked(tuple(found), right, "float32")
            assert not row["passed"]
            assert (row["error"] is None or row["gradient_error"] is None) == (not np.isfinite(wrong))
    assert speed.checked((jnp.ones(3), jnp.ones(3)), right, "float32")["passed"]


def test_an_error_of_a_row_is_noted_in_one_line():
    progress = speed.Progress(600)
    with progress.row("a"):
        raise ValueError("what\nwhere")
    assert progress.notes == ["a: ValueError: what"]
    late = speed.Progress(0)
    assert not late.has_time("b") and late.notes == ["b: left out, no time was left"]


def test_our_first_state_is_that_of_training():
    params, _ = parameters()
    tx = speed.resolve(speed.get_config("float32", SIZES)).optimizer.build(1)
    expected = speed.TrainState.create(params, tx, jax.random.key(1))
    found = speed.first_state(params, tx)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(found.replace(rng=None)), jax.tree.leaves(expected.replace(rng=None)), strict=True):
        assert jnp.asarray(x).dtype == jnp.asarray(y).dtype
        np.testing.assert_array_equal(x, y)


def test_both_sides_train_in_the_same_way():
    pytest.importorskip("torch")
    progress = speed.Progress(600)
    params, batch = parameters()
    compiler = speed.Compiler(progress)
    starts = speed.start_training(params, batch, SIZES, compiler, progress)
    name = "ours, attention as written"
    step = compiler.take([f"{name}, float32"])[f"{name}, float32"]
    steps = {name: partial(speed.ours, step, starts[f"{name}, float32"], jax.device_put(batch), SIZES)}
    group = speed.training_group("float32", batch, params, SIZES, steps, 0.0, 1e9, False, progress)
    rows = {row["name"]: row for row in group["rows"]}
    assert set(rows) == {name, "PyTorch"} and all(row["same_loss"] for row in rows.values())
    np.testing.assert_allclose(rows[name]["later_loss"], rows["PyTorch"]["later_loss"], rtol=1e-4)
    assert len(page.speeds(group["rows"], "target tokens")) == 4
