"""Factors of the learning rate of groups of parameters, and parameters that are not trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_model as tiny
from tiny_model import optimizer
from tiny_run import tiny_config, train

from attn_jax.attention.hard.baselines import RUNNING
from attn_jax.errors import UserError
from attn_jax.runs.options import change
from attn_jax.training.loop import TrainState, make_train_step
from attn_jax.training.optimizers import RUNNING_RATE, check_groups

PARAMS = {
    "encoder": {
        "forward_0": {"kernel": np.full((2, 3), 0.5, np.float32), "bias": np.array([3.0, -4.0], np.float32)},
        "backward_0": {"kernel": np.full((2, 3), -0.25, np.float32)},
    },
    "decoder": {"kernel": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)},
    "table": np.linspace(-2, 2, 4, dtype=np.float32),
}
NAMES = [
    {"name": "adam"},
    {"name": "adamw", "weight_decay": 0.1},
    {"name": "sgd", "momentum": 0.9},
    {"name": "sgd", "momentum": 0.0},
]


def gradient(step):
    rng = np.random.default_rng(step)
    return jax.tree.map(lambda p: rng.normal(size=p.shape).astype(np.float32), PARAMS)


def updates_of(tx, steps=3, gradient=gradient):
    """The updates of each step, by path, of parameters that stay as they are."""
    state, found = tx.init(PARAMS), []
    for step in range(steps):
        updates, state = tx.update(gradient(step), state, PARAMS)
        found.append(by_path(updates))
    return found


def by_path(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(key.key for key in path): np.asarray(leaf) for path, leaf in leaves}


def assert_factors(changes, factors, groups):
    """The updates of these paths are multiplied by these factors to the bit, and those of others are as they were."""
    plain, found = updates_of(optimizer(**changes)), updates_of(optimizer(**changes, groups=groups))
    for before, after in zip(plain, found, strict=True):
        for path, update in before.items():
            expected = update * np.float32(factors.get(path, 1))
            np.testing.assert_array_equal(after[path], expected, err_msg=path)
            assert np.any(update)


@pytest.mark.parametrize("changes", NAMES, ids=str)
def test_a_factor_multiplies_the_update_to_the_bit(changes):
    for factor in (0.1, 1, 3.0):
        assert_factors(changes, {"decoder/kernel": factor}, (("decoder/kernel", factor),))


def test_a_factor_multiplies_what_schedule_plateau_and_clipping_leave():
    for changes in (
        {"schedule": "cosine", "warmup_steps": 2},
        {"schedule": "plateau", "clip": "each", "clip__norm": 0.3},
        {"clip__norm": 0.5},
    ):
        assert_factors(changes | {"num_steps": 4}, {"table": 0.25}, (("table", 0.25),))


def test_the_first_pattern_that_matches_decides():
    encoder = [path for path in by_path(PARAMS) if path.startswith("encoder/")]
    narrow, wide = (r"encoder/.*/bias", 2.0), (r"encoder/.*", 0.5)
    factors = dict.fromkeys(encoder, 0.5)
    assert_factors({"name": "adam"}, factors | {"encoder/forward_0/bias": 2.0}, (narrow, wide))
    assert_factors({"name": "adam"}, factors, (wide, narrow))


def test_a_pattern_matches_the_whole_path():
    first = ("encoder", "forward_0/kernel", "encoder/forward_0", "able", "tabl", "kernel", "decoder/kerne")
    groups = (*((pattern, 0.0) for pattern in first), (".*/kernel|x", 0.5))
    kernels = [path for path in by_path(PARAMS) if path.endswith("/kernel")]
    assert len(kernels) == 3
    assert_factors({"name": "adam"}, dict.fromkeys(kernels, 0.5), groups)


def loss(params, batch, rng, step=0):
    """That of tiny_model, of which the table and a part that it does not know are parameters."""
    total, metrics = tiny.loss_fn({key: params[key] for key in ("table", "matrix")}, batch, rng)
    return total + jnp.sum(params["more"]["frozen"] ** 2) * total, metrics


def trained(tx, seeds, steps=5):
    """(parameters before, after)."""

    def create(rng):
        params = tiny.init(rng) | {"more": {"frozen": jnp.array([1.5, -0.25, 3e-5])}}
        return TrainState.create(params, tx, rng)

    state = jax.vmap(create)(jax.vmap(jax.random.key)(jnp.array(seeds)))
    first, step = by_path(state.params), jax.jit(jax.vmap(make_train_step(loss, tx)))
    for i in range(steps):
        state, _ = step(state, tiny.batches_of(seeds)(i))
    return first, by_path(state.params)


@pytest.mark.parametrize("changes", NAMES, ids=str)
def test_a_factor_of_zero_leaves_parameters_as_they_were_to_the_bit(changes):
    """Those of several seeds alike."""
    before, after = trained(optimizer(**changes, groups=(("table|more/.*", 0),)), seeds=(0, 3))
    for path in ("table", "more/frozen"):
        np.testing.assert_array_equal(after[path].view(np.uint32), before[path].view(np.uint32))
    assert np.all(after["matrix"] != before["matrix"]) and after["matrix"].shape == (2, tiny.WIDTH, tiny.VOCAB)
    before, after = trained(optimizer(**changes), seeds=(0, 3))
    assert np.any(after["table"] != before["table"]) and np.any(after["more/frozen"] != before["more/frozen"])


def test_a_gradient_that_is_not_finite_moves_no_frozen_parameter_and_no_other():
    def broken(step):
        return gradient(step) | {"table": np.full(4, np.nan, np.float32)}

    tx = optimizer(name="adam", groups=(("table", 0.0),))
    for found, expected in zip(updates_of(tx, gradient=broken), updates_of(tx), strict=True):
        assert not np.any(found["table"])
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_frozen_gradients_do_not_count_in_the_norm_that_clips():
    grads = jax.tree.map(np.zeros_like, PARAMS)
    grads["table"] = np.array([3.0, 0.0, 0.0, 0.0], np.float32)
    grads["decoder"]["kernel"] = np.array([[4.0, 0.0, 0.0], [0.0, 0.0, 0.0]], np.float32)
    plain = {"learning_rate": 1.0, "momentum": 0.0, "clip__norm": 1.0}
    for groups, expected in (((), 0.8), ((("table", 0.5),), 0.8), ((("table", 0.0),), 1.0)):
        (found,) = updates_of(optimizer(**plain, groups=groups), 1, lambda step: grads)
        np.testing.assert_allclose(found["decoder/kernel"][0, 0], -expected, rtol=1e-6)
        np.testing.assert_allclose(found["table"][0], -dict(groups).get("table", 1.0) * 0.6, rtol=1e-6)


def test_running_means_keep_their_own_rate():
    params = {"baseline": {name: np.ones(2, np.float32) for name in (*RUNNING, "kernel")}}
    tx = optimizer(learning_rate=0.5, momentum=0.0, clip="none", groups=((".*", 0.5),))
    updates, _ = tx.update(params, tx.init(params), params)
    for name, update in updates["baseline"].items():
        np.testing.assert_allclose(update, -RUNNING_RATE if name in RUNNING else -0.25, rtol=1e-6)


def test_without_groups_the_state_is_that_of_any_version():
    plain, grouped = (optimizer(name="adam", groups=groups).init(PARAMS) for groups in ((), (("table", 0.0),)))
    assert [x.shape for x in jax.tree.leaves(plain)] == [x.shape for x in jax.tree.leaves(grouped)]


def test_a_pattern_that_matches_nothing_is_refused_in_one_line():
    check_groups((("encoder/.*", 0.1), ("table", 0)), PARAMS)
    with pytest.raises(UserError, match=r"groups 'encoder/forwrd.\*' matches no parameter; paths are such as") as error:
        check_groups((("table", 0.1), ("encoder/forwrd.*", 0.1)), PARAMS)
    assert "decoder/kernel, encoder/backward_0/kernel" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("table", "optimizer.groups is 'table'; expected a tuple"),
        (("table", 0.1), "optimizer.groups has 'table'; expected pairs of a pattern of paths and a factor"),
        ((("table",),), "expected pairs of a pattern of paths and a factor of at least 0, such as"),
        *[
            ((pair,), "expected pairs")
            for pair in (("table", 0.1, 2), (0.1, "table"), ("table", True), ("table", -0.1))
        ],
        *[((("table", x),), "expected a finite number") for x in (float("nan"), float("inf"))],
        ((("encoder/(", 0.1),), r"optimizer.groups 'encoder/\(' is no regular expression"),
    ],
    ids=str,
)
def test_malformed_groups_are_refused_in_one_line(groups, words):
    with pytest.raises(UserError, match=words) as error:
        optimizer(groups=groups)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_run_trains_all_parameters_but_the_frozen_ones(tmp_path):
    groups = ((".*_embedding/.*", 0.0), ("output/.*", 0.5))
    config = tiny_config(train__num_steps=3, parallel="single", optimizer__groups=groups)
    _, fitted = train(config, tmp_path / "a")
    _, start = train(change(config, {"train.num_steps": 1, "optimizer.learning_rate": 0.0}), tmp_path / "b")
    before, after = by_path(start.state.params), by_path(fitted.state.params)
    frozen = {path for path in before if np.array_equal(before[path], after[path])}
    assert frozen == {"source_embedding/embedding", "target_embedding/embedding"}
    with pytest.raises(UserError, match=r"optimizer.groups 'decodr/.*' matches no parameter; paths are such as"):
        train(change(config, {"optimizer.groups": (("decodr/.*", 0.1),)}), tmp_path / "c")
