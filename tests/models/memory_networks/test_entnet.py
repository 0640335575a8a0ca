"""Entity networks: weights set by hand follow two people, slots may change places, a closed gate writes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, fill
from tiny_stories import ID, VOCAB, WORDS, batch_of, random_batch

from attn_jax.attention import build_attention
from attn_jax.attention.scores import Dot
from attn_jax.models.memory_networks.base import StoryModel
from attn_jax.models.memory_networks.entnet import entity_network

MEMORY = 4
ENTITIES = (ID["mary"], ID["john"])


def answers(module):
    @compiled
    def run(params, source):
        answer = module.apply({"params": params}, source, method="answer")
        slots, gates, _ = module.apply({"params": params}, source, method="slots")
        return answer.log_probs, gates, slots

    return run


def by_hand(shapes):
    """Dimensions 0, 1 are the people, 2 to 4 the places. A slot whose person is named forgets its place for the new."""
    params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    place = np.diag([0.0, 0, 1, 1, 1]).astype(np.float32)
    for i, word in enumerate(WORDS[:5]):
        params["reader"]["words"]["embedding"][ID[word], i] = 8.0 if i < 2 else 1.0
        if i >= 2:
            params["out"]["kernel"][i, ID[word]] = 8.0
    params["gate_bias"][:] = -32.0  # s . (h + w) is at least 64 where the person is named, else at most 1
    params["cell"]["old"]["kernel"][:] = -place
    params["statement"]["kernel"][:] = place
    params["hop"]["kernel"][:] = place
    for slope in (params["cell"]["activation"], params["activation"]):
        slope["slope"][:] = 1.0
    return params


@pytest.mark.slow
def test_weights_of_the_slots_are_dropped_in_training():
    batch = jax.tree.map(jnp.asarray, random_batch(0, 4))
    sizes = dict(vocab_size=VOCAB, memory_size=MEMORY, features=5, num_slots=3)
    reads = [build_attention(score=Dot(), dropout=rate) for rate in (0.0, 0.5)]
    models = [StoryModel(entity_network(**sizes, read=read)) for read in reads]
    params = fill(jax.eval_shape(models[0].init, jax.random.key(0), batch))
    losses = compiled(lambda rng: [model.loss_fn(params, batch, rng, 0)[0] for model in models])
    (plain, dropped), (again, other) = (losses(jax.random.key(seed)) for seed in (1, 2))
    assert plain == again and len({float(plain), float(dropped), float(other)}) == 3


@pytest.mark.slow
def test_weights_set_by_hand_answer_with_the_last_place():
    batch = jax.tree.map(jnp.asarray, random_batch(3, 64))
    module = entity_network(vocab_size=VOCAB, memory_size=MEMORY, features=5, num_slots=2, entities=ENTITIES)
    shapes = jax.eval_shape(StoryModel(module).init, jax.random.key(0), batch)
    log_probs, gates, _ = answers(module)(by_hand(shapes), batch["source"])
    assert np.all(log_probs.argmax(-1) == batch["target_out"][:, 0])
    named = np.stack([np.isin(np.asarray(batch["source"])[:, :24:6], [person]) for person in ENTITIES], axis=1)
    np.testing.assert_allclose(gates, named, atol=1e-6)


STORIES = [
    ("mary moved to the garden . john went to the kitchen . where is mary ?", "garden", [1]),
    ("john went to the bathroom . where is john ?", "bathroom", [1]),
]
SMALL = dict(vocab_size=VOCAB, memory_size=MEMORY, features=5, num_slots=3, sentence_size=4)


def test_slots_are_a_set_of_unit_vectors_and_a_closed_gate_writes_nothing():
    source = jnp.asarray(batch_of(STORIES, 18)["source"])
    module = entity_network(**SMALL)
    params = fill(jax.eval_shape(lambda: module.init(jax.random.key(0), source, method="answer"))["params"])
    run = answers(module)
    log_probs, gates, slots = run(params, source)
    np.testing.assert_allclose(np.square(slots).sum(-1), 1, rtol=1e-5)

    order = np.array([2, 0, 1])
    shuffled = params | {"keys": params["keys"][order], "gate_bias": params["gate_bias"][order]}
    same, other_gates, other_slots = run(shuffled, source)
    np.testing.assert_allclose(same, log_probs, atol=1e-5)
    np.testing.assert_allclose(other_gates, gates[:, order], atol=1e-5)
    np.testing.assert_allclose(other_slots, slots[:, order], atol=1e-5)

    _, closed, slots = run(params | {"gate_bias": np.full(3, -100.0, np.float32)}, source)
    keys = params["keys"] / np.linalg.norm(params["keys"], axis=-1, keepdims=True)
    assert np.all(closed < 1e-20)
    np.testing.assert_allclose(slots, np.broadcast_to(keys, slots.shape), atol=1e-6)


@pytest.mark.slow
def test_keys_can_be_words():
    """Tied to words, a network is the same as with those vectors for keys."""
    source = jnp.asarray(batch_of(STORIES, 18)["source"])
    tied, free = entity_network(**SMALL, entities=ENTITIES), entity_network(**SMALL)
    params = fill(jax.eval_shape(lambda: tied.init(jax.random.key(0), source, method="answer"))["params"])
    assert params["keys"].shape == (1, 5)
    vectors = params["reader"]["words"]["embedding"][list(ENTITIES)]
    explicit = params | {"keys": np.concatenate([vectors, params["keys"]])}
    for a, b in zip(answers(tied)(params, source), answers(free)(explicit, source), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
