"""Tests of all networks for stories: padding, empty slots, other rows and other seeds change nothing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from arrays import compiled, fill
from tiny_stories import ID, VOCAB, batch_of, random_batch

from attn_jax.attention import build_attention
from attn_jax.models.memory_networks.base import StoryModel
from attn_jax.models.memory_networks.dmn import dmn, dmn_plus
from attn_jax.models.memory_networks.entnet import entity_network
from attn_jax.models.memory_networks.episodes import GateNetwork
from attn_jax.models.memory_networks.universal import universal_transformer

DMN = dict(features=5, gate_size=4, num_passes=2, gate_weight=0.5)
TRANSFORMER = dict(features=8, num_heads=2, feed_forward_size=6, num_steps=3, sentence_size=4)
NETWORKS = {
    "dmn": functools.partial(dmn, embedding_size=3, **DMN),
    "dmn+": functools.partial(dmn_plus, **DMN),
    "entnet": functools.partial(entity_network, features=5, num_slots=3, sentence_size=4, entities=(ID["mary"],)),
    "universal": functools.partial(universal_transformer, halting=True, threshold=0.6, **TRANSFORMER),
}
MEMORY = 3
STORIES = [
    ("mary moved to the garden . john went to the kitchen . where is mary ?", "garden", [1]),
    ("john went to the bathroom . where is john ?", "bathroom", [1]),
    # more than the memory holds: the first statement is cut, and is half of the evidence
    ("mary is the . john moved to . mary went to the garden . john went . is mary ?", "garden", [1, 3]),
    None,
]
NAMES = {  # of parameters in checkpoints
    "dmn": {"reader", "attention", "episode", "update", "out"},
    "dmn+": {"reader", "attention", "episode", "update", "out"},
    "entnet": {"reader", "keys", "gate_bias", "cell", "key", "statement", "hop", "activation", "out"},
    "universal": {"reader", "stack", "out"},
}
BATCH = jax.tree.map(jnp.asarray, batch_of(STORIES, 30))


def parts(answered):
    return answered.log_probs, answered.hops


def params_of_seeds(model):
    shapes = jax.eval_shape(model.init, jax.random.key(0), BATCH)
    return jax.tree.map(lambda *x: jnp.stack(x), *[fill(shapes, seed) for seed in (0, 1)])


@functools.cache
def measured(name):
    model = StoryModel(NETWORKS[name](vocab_size=VOCAB, memory_size=MEMORY))
    # Sources of 35 tokens have room for three statements of eleven, one less than the memory.
    fitted = StoryModel(NETWORKS[name](vocab_size=VOCAB, memory_size=MEMORY + 1, shortest=11))
    larger = StoryModel(NETWORKS[name](vocab_size=VOCAB, memory_size=MEMORY + 2))

    @compiled
    def run(params, batch):
        first = jax.tree.map(lambda x: x[0], params)
        longer = jnp.pad(batch["source"][:2], ((0, 0), (0, 5)))
        alone = lambda source: jax.tree.map(lambda x: x[0], parts(larger.answer(first, source[None])))  # noqa: E731
        loss = lambda p: model.loss_fn(p, batch, jax.random.key(0))  # noqa: E731
        return {
            "answer": parts(model.answer(first, batch["source"])),
            "one by one": jax.lax.map(alone, longer),
            "fitted": parts(fitted.answer(first, longer)),
            "train": jax.vmap(jax.value_and_grad(loss, has_aux=True))(params),
            "align": model.attention_weights(first, batch),
            "eval": model.eval_fn(first, batch),
        }

    return run(params_of_seeds(model), BATCH)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_padding_empty_slots_and_other_rows_change_nothing(name):
    """Slots that a batch has no room for are not even worked on."""
    result = measured(name)
    all_log_probs, all_hops = result["answer"]
    np.testing.assert_allclose(np.exp(all_log_probs).sum(-1), 1, rtol=1e-5)
    for kind, slots in (("one by one", MEMORY + 2), ("fitted", 3)):
        log_probs, hops = result[kind]
        np.testing.assert_allclose(log_probs, all_log_probs[:2], atol=2e-5)
        np.testing.assert_allclose(hops[..., :MEMORY], all_hops[:2], atol=2e-5)
        assert hops.shape[-1] == slots and np.all(hops[..., MEMORY:] == 0)
    for row, count in enumerate((2, 1, 3, 0)):
        assert np.all(all_hops[row, :, :count] > 0) and np.all(all_hops[row, :, count:] == 0)
    assert np.std(all_log_probs[:3], axis=0).max() > 1e-3  # the answer depends on the story
    # The picture shows the words of the statements that were read.
    np.testing.assert_allclose(result["align"][1, 0, :5], all_hops[1, :, 0].mean(), rtol=1e-5)
    assert np.all(result["align"][1, 0, 5:] == 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_the_loss_of_several_seeds_is_that_of_the_answers(name):
    result = measured(name)
    (total, metrics), gradient = result["train"]
    nll = -result["answer"][0][np.arange(3), BATCH["target_out"][:3, 0]].sum()
    np.testing.assert_allclose([metrics["nll"].total[0], result["eval"]["loss"].total], nll, rtol=1e-4)
    assert np.all(metrics["nll"].count == 3) and metrics["nll"].total[0] != metrics["nll"].total[1]
    more = name != "entnet"  # the gates, the ponder cost
    assert np.all(total > metrics["nll"].total) if more else np.all(total == metrics["nll"].total)
    for path, leaf in jax.tree.leaves_with_path(gradient):
        assert np.all(np.isfinite(leaf)) and np.any(leaf != 0), path
    assert set(gradient) == NAMES[name] and ("asked" in gradient["reader"] or name != "dmn+")


GATES = build_attention(score=GateNetwork(features=16, all_terms=True))
ONE_PASS = dict(features=16, embedding_size=16, num_passes=1, attention=GATES, gate_weight=1.0)
LEARNED = {  # network, learning rate; entity networks with weights set by hand answer in test_entnet.py
    "dmn": (functools.partial(dmn, **ONE_PASS), 1e-2),
    "universal": (functools.partial(universal_transformer, features=32, feed_forward_size=64, num_steps=2), 3e-3),
}
TRAINING, UNSEEN = (jax.tree.map(jnp.asarray, random_batch(seed, rows)) for seed, rows in ((0, 1024), (1, 256)))


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_one_supporting_fact_is_learned(name):
    build, learning_rate = LEARNED[name]
    model = StoryModel(build(vocab_size=VOCAB, memory_size=4))
    tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(learning_rate))

    def step(carry, index):
        params, opt_state = carry
        rng = jax.random.fold_in(jax.random.key(1), index)
        rows = jax.random.randint(rng, (32,), 0, 1024)
        batch = jax.tree.map(lambda x: x[rows], TRAINING)
        gradient = jax.grad(lambda p: model.loss_fn(p, batch, rng, index)[0] / 32)(params)
        updates, opt_state = tx.update(gradient, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    @compiled
    def run(batch):
        params = model.init(jax.random.key(0), batch)
        (params, _), _ = jax.lax.scan(step, (params, tx.init(params)), jnp.arange(150))
        return model.eval_fn(params, UNSEEN)["accuracy"]

    accuracy = run(jax.tree.map(lambda x: x[:2], TRAINING))
    assert accuracy.count == 256
    assert accuracy.compute() > 0.9
