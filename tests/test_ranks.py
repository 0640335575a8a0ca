"""Axes are added explicitly: each model also where JAX refuses arrays of different ranks, its training included."""

import jax
import jax.numpy as jnp
import pytest
from test_lowering import EACH, small
from test_x64 import OTHERS
from tiny_model import optimizer
from tiny_seq2seq import build, sentences

from attn_jax.attention.hard.baselines import BASELINES
from attn_jax.layers.positions import POSITIONS
from attn_jax.layers.rnn import CELLS
from attn_jax.outputs import OUTPUTS
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.options import resolve
from attn_jax.training.loop import TrainState, make_train_step


def options_of(name):
    return {"name": name} | ({"num_samples": 4} if hasattr(OUTPUTS[name], "num_samples") else {})


# With parts that no model above has: positions that are learned, a width for each column.
PARTS = "enja_luong images_folder kernel_csv".split()
LAYERS = dict(num_heads=2, feed_forward_size=6)
SMALL = {
    f"transformer, {name}": dict(name="transformer", hidden_size=8, decoder=dict(positions=name, **LAYERS))
    for name in POSITIONS
}
SMALL |= {
    f"language model, {name}": dict(name="language_model", hidden_size=8, output=options_of(name), **LAYERS)
    for name in OUTPUTS
}
SMALL |= {
    f"baseline {name}": dict(
        objective=dict(name="hard", baseline=name),
        objective__reading=dict(name="adaptive") if name == "adaptive" else dict(name="reinforce", num_samples=2),
        decoder__input_feeding=False,
    )
    for name in BASELINES
}
CHAINS = {"monotonic": (True, 0), "first order": (False, 5), "monotonic, first order": (True, 5)}
SMALL |= {
    f"chain {name}": dict(
        objective=dict(name="markov", monotonic=monotonic, jump_size=size), decoder__input_feeding=False
    )
    for name, (monotonic, size) in CHAINS.items()
}
SMALL |= {"marginal": dict(objective="marginal", decoder__input_feeding=False)}
SMALL |= {f"attended tags, {name}": dict(encoder=name, decoder__cell=name, tags="attended") for name in CELLS}


def check(model, tx, batch):
    """Traces initialization, a training step, evaluation and decoding, and compiles none of them."""

    def trained(rng, batch):
        state = TrainState.create(model.init(rng, batch), tx, rng)
        return make_train_step(model.loss_fn, tx)(state, batch)

    def decoded(params, batch):
        found = [model.eval_fn(params, batch), model.attention_weights(params, batch)]
        memory, state = model.start(params, batch["source"])
        first = jnp.zeros(len(batch["target_in"]), jnp.int32)
        return jax.tree.leaves((found, model.step_top_k(params, memory, state, first, 3)))

    with jax.numpy_rank_promotion("raise"):
        state, metrics = jax.eval_shape(trained, jax.random.key(0), batch)
        assert metrics
        if hasattr(model, "start"):
            jax.eval_shape(decoded, state.params, batch)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*EACH.values(), *OTHERS, *PARTS}))
def test_axes_in_every_family_are_added_explicitly(name, tmp_path):
    config = small(name, tmp_path)
    task = build_task(resolve(config))
    setup = build_setup(resolve(config), task.kept)
    batch = task.batches(**setup.batch_options, seeds=(0,), row_multiple=1).batch_at(0)
    check(setup.model, resolve(config).optimizer.build(2), batch)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_axes_of_every_choice_are_added_explicitly(name):
    check(build(**SMALL[name]), optimizer(name="adam"), sentences([(5, 4), (3, 2)], 6, 5))
