"""Strongly supervised memory networks: the tournament, the margin loss and the chain against their definitions."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from arrays import compiled, fill
from tiny_stories import VOCABULARY, encode_stories, random_batch

from attn_jax.models.memory_networks.base import StoryModel, find_sentences
from attn_jax.models.memory_networks.memnn import MemNN, three_grams

V, N, D = len(VOCABULARY), 5, 3
OPTIONS = dict(vocab_size=V, features=D, num_facts=2, memory_size=N)
STORY = "mary moved to the garden . john moved to the office . mary got the milk . where is mary ?"
SHORT = "john moved to the garden . where is john ?"


@pytest.fixture(scope="module")
def batch():
    return encode_stories([(STORY, "garden", (1, 3)), (SHORT, "garden", (1,)), ("where is mary ?", "office", ())])


def parameters(**options):
    module = MemNN(**OPTIONS | options)
    init = lambda rng: module.init(rng, jnp.zeros((1, 4), jnp.int32), method="answer")  # noqa: E731
    return module, fill(jax.eval_shape(init, jax.random.key(0))["params"], seed=1, scale=1.0)


def beats(x, order, one, other, age_x):
    """By how much `one` wins, by s(x, y, y') of the older y; both are (embedded, slot), a larger slot is younger."""
    if one[1] > other[1]:
        return -beats(x, order, other, one, age_x)
    flags = [age_x < one[1], age_x < other[1], one[1] < other[1]]
    return x @ (one[0] - other[0] + sum((t for t, flag in zip(order[:3], flags, strict=True) if flag), np.zeros(D)))


def test_the_best_statement_is_left_after_every_meeting():
    module, params = parameters()
    rng = np.random.default_rng(2)
    asking, keys = rng.normal(size=(8, D)).astype(np.float32), rng.normal(size=(8, N, D)).astype(np.float32)
    count, last = np.array([1, 2, 3, 4, 5, 5, 5, 5]), np.array([0, 1, 2, 0, 4, 5, 5, 2])
    mask = np.arange(N) < count[:, None]

    @compiled
    def run(asking, keys, mask, last):
        apply = functools.partial(module.apply, {"params": params})
        pairwise = [apply(asking, keys, jnp.full(8, slot), last, method="pairwise") for slot in range(N)]
        return apply(asking, keys, mask, last, method="best"), pairwise

    best, scores = run(asking, keys, mask, last)
    order = np.asarray(params["order"])
    for row in range(8):
        winner = 0
        for slot in range(1, count[row]):
            y, other = (keys[row, slot], slot), (keys[row, winner], winner)
            expected = beats(asking[row], order, y, other, last[row])
            assert scores[slot][row, winner] == pytest.approx(expected, abs=1e-5)
            winner = slot if expected > 0 else winner
        assert best[row] == winner
        for slot, other in itertools.permutations(range(count[row]), 2):
            expected = beats(asking[row], order, (keys[row, slot], slot), (keys[row, other], other), last[row])
            assert scores[slot][row, other] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"num_grams": 7, "nonlinear": True}, {"block_per_fact": False}],
    ids=["words", "three grams, tanh", "a list of facts"],
)
def test_the_loss_is_the_margin_ranking_loss_of_the_true_chain(batch, options):
    """Equation 6 of arXiv 1410.3916, statement by statement, with the stop memory against which facts have to win."""
    module, params = parameters(**options)
    layout = find_sentences(batch["source"], N)

    @compiled
    def run(params):
        losses = module.apply({"params": params}, *parts_of(batch), jnp.zeros((), jnp.int32), method="losses")
        return *losses, module.apply({"params": params}, batch["source"], False, method="write")[1:]

    def against_stop(x, key, slot, last):
        return x @ (key[slot] - np.asarray(params["stop"]) + order[3] * (last < slot))

    def embed(name, parts):
        """tanh(V tanh(sum of features times block)), or the sum alone."""
        total = sum(np.asarray(features) @ np.asarray(params[name]["table"][block]) for block, features in parts)
        if not module.nonlinear:
            return np.asarray(total, np.float64)
        second = params[name]["second"]
        return np.tanh(np.tanh(total) @ np.asarray(second["kernel"]) + np.asarray(second["bias"]))

    loss, nll, (memory, question, keys) = run(params)
    margin, order = module.margin, np.asarray(params["order"])
    evidence = [[0, 2], [0], []]
    for row in range(3):
        last, expected = N, 0.0
        facts = []
        for hop in range(2):
            # With a block per fact, fact i has block i; a list has block 1 for its last fact and 2 for those before it.
            blocks = [1, 2] if module.block_per_fact or len(facts) < 2 else [2, 1]
            x = embed("asking", [(0, question[row]), *zip(blocks, facts, strict=False)])
            gold = evidence[row][hop] if hop < len(evidence[row]) else None
            others = [i for i in range(int(layout.count[row])) if i != gold]
            ended = hop == len(evidence[row])
            key = np.asarray(keys[row], np.float64)
            if gold is not None:
                for i in others:
                    gain = beats(x, order, (key[gold], gold), (key[i], i), last)
                    expected += max(0, margin - gain)
                if hop:
                    expected += max(0, margin - against_stop(x, key, gold, last))
                facts.append(memory[row, gold])
                last = gold
            elif hop and ended:
                expected += sum(max(0, margin + against_stop(x, key, i, last)) for i in others)
        parts = [(0, question[row]), *[(i + 1 if module.block_per_fact else 1, fact) for i, fact in enumerate(facts)]]
        scores = np.asarray(embed("answering", parts) @ np.asarray(params["words"]).T, np.float64)
        right = int(batch["target_out"][row, 0])
        expected += sum(max(0, margin - scores[right] + scores[w]) for w in range(V) if w != right)
        assert loss[row] == pytest.approx(expected, rel=1e-4)
        assert nll[row] == pytest.approx(np.log(np.sum(np.exp(scores))) - scores[right], rel=1e-4)


def parts_of(batch):
    return batch["source"], batch["target_out"][:, 0], batch["evidence"]


@pytest.mark.slow
def test_a_fact_that_is_no_longer_in_the_memory_does_not_train_the_stop_memory():
    """Of the story two statements fit; with the third as first fact, the second is the first statement, or none."""
    module, params = parameters(memory_size=2)
    batches = [encode_stories([(STORY, "garden", facts)]) for facts in ((3, 1), (3,))]
    source = batches[0]["source"]

    @compiled
    def run(params):
        apply = functools.partial(module.apply, {"params": params})
        losses = [apply(*parts_of(batch), jnp.zeros((), jnp.int32), method="losses")[0][0] for batch in batches]
        layout, memory, question, keys = apply(source, True, method="write")
        asking = apply(question, [memory[:, 1]], method="ask")
        gains = apply(asking, keys=keys, last=jnp.array([1]), method="stop_gains")
        return *losses, jnp.sum(jnp.maximum(0.1 + gains, 0)), layout.count

    cut, ended, gains, count = run(params)
    np.testing.assert_allclose(ended - cut, gains, rtol=1e-5)
    assert ended > cut and count[0] == 2


@pytest.mark.slow
def test_a_stop_memory_that_always_wins_leaves_one_fact_and_one_that_never_does_leaves_all(batch):
    module, params = parameters()
    answer = jax.jit(StoryModel(module).answer)
    params["asking"]["table"][..., 0] = 1.0  # feature 0 is positive
    for stop, facts in ((1e4, 1), (-1e4, 2)):
        changed = params | {"stop": np.eye(1, D, dtype=np.float32)[0] * stop}
        hops = answer(changed, batch["source"]).hops
        np.testing.assert_array_equal(hops[:2].sum((1, 2)), [facts, facts])
        assert not np.any(hops[2])  # a story without statements


def test_without_time_features_the_largest_score_is_read(batch):
    module, params = parameters(time_features=False)
    assert "order" not in params
    rng = np.random.default_rng(2)
    asking, keys = rng.normal(size=(6, D)).astype(np.float32), rng.normal(size=(6, N, D)).astype(np.float32)
    mask = np.arange(N) < np.array([1, 2, 3, 4, 5, 5])[:, None]
    run = jax.jit(lambda *args: module.apply({"params": params}, *args, method="best"))
    best = run(asking, keys, mask, np.full(6, N))
    expected = np.where(mask, np.einsum("bd,bnd->bn", asking, keys), -np.inf).argmax(axis=1)
    np.testing.assert_array_equal(best, expected)


def test_a_larger_memory_and_longer_padding_change_nothing(batch):
    module, params = parameters(num_grams=5)
    large = StoryModel(MemNN(**OPTIONS | {"memory_size": N + 2, "num_grams": 5})).answer
    longer = jnp.pad(batch["source"], ((0, 0), (0, 4)))
    first, second = jax.jit(lambda: (StoryModel(module).answer(params, batch["source"]), large(params, longer)))()
    np.testing.assert_allclose(first.log_probs, second.log_probs, atol=1e-5)
    np.testing.assert_array_equal(first.hops, second.hops[..., :N])


@pytest.mark.slow
def test_three_grams_tell_the_order_of_words_and_nothing_else():
    def grams(text):
        source = encode_stories([(text, "garden", ())])["source"]
        return np.asarray(three_grams(source, find_sentences(source, N), 10_007))[0, :3]

    same = grams("mary got milk . where is mary ?"), grams("mary got milk . how many ?")
    np.testing.assert_array_equal(*same)
    other = grams("milk got mary . where is mary ?")
    assert not np.any(other == same[0])


@pytest.mark.slow
def test_training_finds_the_facts_and_the_answers():
    """Two people, three places: the answer is the place of the asked one's last move, in any story of four moves."""
    train, test = (jax.tree.map(jnp.asarray, random_batch(seed, rows)) for seed, rows in ((0, 160), (1, 40)))
    model = StoryModel(MemNN(**OPTIONS | {"features": 12, "num_facts": 1}))
    tx = optax.adam(0.02)

    @compiled
    def fitted(rng):
        def step(carry, rng):
            grads = jax.grad(lambda p: model.loss_fn(p, train, rng)[0] / 160)(carry[0])
            updates, state = tx.update(grads, carry[1])
            return (optax.apply_updates(carry[0], updates), state), None

        params = model.init(rng, train)
        (params, _), _ = jax.lax.scan(step, (params, tx.init(params)), jax.random.split(rng, 150))
        return model.eval_fn(params, test)["accuracy"], model.answer(params, test["source"]).hops

    accuracy, hops = fitted(jax.random.key(0))
    assert float(accuracy.compute()) > 0.9
    found = np.argmax(hops[:, 0], axis=-1) + 1 == np.asarray(test["evidence"])[:, 0]
    assert found.mean() > 0.9
