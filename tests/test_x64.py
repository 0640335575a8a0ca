"""With jax_enable_x64: what is trained is float32 all the same, so that a run opens with and without the flag."""

import ast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_configs import CONFIGS, ROOT
from test_lowering import EACH, small
from tiny_model import optimizer
from tiny_run import tiny_config, train

import attn_jax
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.options import resolve
from attn_jax.training.loop import TrainState, make_train_step
from attn_jax.training.options import OPTIMIZERS, SCHEDULES
from attn_jax.training.pytrees import flatten

# Objectives, memory networks and output layers beside the one of `EACH` of their family.
OTHERS = "inflection_hard inflection_elbo inflection_monotonic inflection_pointer enja_bahdanau babi_universal".split()
OTHERS += "babi_memnn babi_dmn brown_sampled brown_adaptive scenes_hard language_id_selfattentive".split()


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_what_a_run_trains_has_32_bits(name, tmp_path):
    config = small(name, tmp_path)
    task = build_task(resolve(config))
    setup, tx = build_setup(resolve(config), task.kept), resolve(config).optimizer.build(2)
    batch = task.batches(**setup.batch_options, seeds=(0,), row_multiple=1).batch_at(0)
    create = lambda rng, batch: TrainState.create(setup.model.init(rng, batch), tx, rng)  # noqa: E731
    with jax.enable_x64(True):
        states = [jax.eval_shape(create, jax.random.key(0), batch)]
        if name in EACH.values():
            states.append(jax.eval_shape(make_train_step(setup.model.loss_fn, tx), states[0], batch)[0])
    for state in states:
        wide = {path: leaf.dtype for path, leaf in flatten(state.replace(rng=None)).items() if leaf.dtype.itemsize != 4}
        assert not wide


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*EACH.values(), *OTHERS}))
def test_losses_evaluation_and_decoding_have_the_type_of_the_parameters(name, tmp_path):
    """And a step of decoding returns a state of the types that it took, as a loop has to carry it."""
    config = small(name, tmp_path)
    task = build_task(resolve(config))
    setup = build_setup(resolve(config), task.kept)
    model, batch = setup.model, task.batches(**setup.batch_options, seeds=(0,), row_multiple=1).batch_at(0)

    def results(rng, batch):
        params = model.init(rng, batch)
        found = [model.loss_fn(params, batch, rng, 0)]
        if hasattr(model, "start"):
            found += [model.eval_fn(params, batch), model.attention_weights(params, batch)]
            memory, state = model.start(params, batch["source"])
            after, *best = model.step_top_k(params, memory, state, jnp.zeros(len(batch["target_in"]), jnp.int32), 3)
            assert [x.dtype for x in jax.tree.leaves(state)] == [x.dtype for x in jax.tree.leaves(after)]
            found += [best]
        return found

    with jax.enable_x64(True):
        leaves = jax.tree.leaves(jax.eval_shape(results, jax.random.key(0), batch))
    assert jnp.float64 not in {leaf.dtype for leaf in leaves}


@pytest.mark.slow
def test_every_parameter_of_a_module_names_its_type():
    """Without one flax gives a parameter JAX's default, which is float64 with 64 bits."""
    for path in (ROOT / "attn_jax").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "param":
                init = node.args[1]  # a function of the rng alone makes an array of its own type
                named = len(node.args) > 3 and ast.unparse(node.args[3]) == "jnp.float32"
                assert named or isinstance(init, ast.Lambda), f"{path}:{node.lineno}"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_an_optimizer_keeps_has_32_bits(name, schedule):
    params = {"kernel": np.ones(3, np.float32)}
    with jax.enable_x64(True):
        tx = optimizer(name=name, schedule=schedule, **({"weight_decay": 0.1} if name == "adamw" else {}))
        first = jax.eval_shape(tx.init, params)
        updates, state = jax.eval_shape(tx.update, params, first, params)
    assert {x.dtype.itemsize for x in jax.tree.leaves((first, updates, state))} == {4}


@pytest.mark.slow
@pytest.mark.parametrize("wide", [False, True])
def test_a_run_that_was_trained_with_64_bits_opens_without_them_and_the_reverse(wide, tmp_path):
    with jax.enable_x64(wide):
        train(tiny_config(train__num_steps=2), tmp_path / "run")
    with jax.enable_x64(not wide):
        assert len(attn_jax.load(tmp_path / "run").predict(["5 3 2020", "1 1 1999"])) == 2
