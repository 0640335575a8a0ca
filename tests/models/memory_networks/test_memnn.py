"""Strongly supervised memory networks: the tournament, the margin loss and the chain against their definitions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_stories import VOCABULARY, encode_stories

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
    source = jnp.zeros((1, 4), jnp.int32)
    shapes = jax.eval_shape(lambda rng: module.init(rng, source, method="answer"), jax.random.key(0))["params"]
    rng = np.random.default_rng(1)
    return module, jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), shapes)


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
    best = jax.jit(lambda *args: module.apply({"params": params}, *args, method="best"))(asking, keys, mask, last)
    pairwise = jax.jit(lambda *args: module.apply({"params": params}, *args, method="pairwise"))
    scores = [np.asarray(pairwise(asking, keys, jnp.full(8, slot), last)) for slot in range(N)]
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
    loss, nll = jax.jit(
        lambda: module.apply({"params": params}, *parts_of(batch), jnp.zeros((), jnp.int32), method="losses")
    )()
    layout = find_sentences(batch["source"], N)

    def run(method, *args):
        return module.apply({"params": params}, *args, method=method)

    def against_stop(x, key, slot, last):
        return x @ (key[slot] - np.asarray(params["stop"]) + order[3] * (last < slot))

    def embed(name, parts):
        """tanh(V tanh(sum of features times block)), or the sum alone."""
        total = sum(np.asarray(features) @ np.asarray(params[name]["table"][block]) for block, features in parts)
        if not module.nonlinear:
            return np.asarray(total, np.float64)
        second = params[name]["second"]
        return np.tanh(np.tanh(total) @ np.asarray(second["kernel"]) + np.asarray(second["bias"]))

    _, memory, question, keys = jax.jit(lambda: run("write", batch["source"], False))()
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
    losses = []
    for facts in ((3, 1), (3,)):
        batch = encode_stories([(STORY, "garden", facts)])
        source, answers, evidence = parts_of(batch)
        losses.append(
            module.apply({"params": params}, source, answers, evidence, jnp.zeros((), jnp.int32), method="losses")[0][0]
        )
    cut, ended = losses
    layout, _, question, keys = module.apply({"params": params}, source, True, method="write")
    _, memory, _, _ = module.apply({"params": params}, source, True, method="write")
    asking = module.apply({"params": params}, question, [memory[:, 1]], method="ask")
    gains = module.apply({"params": params}, asking, keys=keys, last=jnp.array([1]), method="stop_gains")
    np.testing.assert_allclose(ended - cut, jnp.sum(jnp.maximum(0.1 + gains, 0)), rtol=1e-5)
    assert ended > cut and layout.count[0] == 2


@pytest.mark.slow
def test_a_stop_memory_that_always_wins_leaves_one_fact_and_one_that_never_does_leaves_all(batch):
    module, params = parameters()
    answer = jax.jit(StoryModel(module).answer)
    asking = dict(params["asking"], table=params["asking"]["table"].at[..., 0].set(1.0))  # feature 0 is positive
    for stop, facts in ((1e4, 1), (-1e4, 2)):
        changed = params | {"asking": asking, "stop": jnp.zeros(D).at[0].set(stop)}
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
    """Two actors, three places: the answer is the place of the asked one's last move, in any story of four moves."""
    import optax

    rng = np.random.default_rng(0)
    rows = []
    for _ in range(200):
        moves = [(rng.choice(["mary", "john"]), rng.choice(["garden", "office", "kitchen"])) for _ in range(4)]
        who = moves[int(rng.integers(4))][0]
        last = max(i for i, (name, _) in enumerate(moves) if name == who)
        text = " ".join(f"{name} moved to the {place} ." for name, place in moves) + f" where is {who} ?"
        rows.append((text, moves[last][1], (last + 1,)))
    train, test = encode_stories(rows[:160]), encode_stories(rows[160:])
    model = StoryModel(MemNN(**OPTIONS | {"features": 12, "num_facts": 1}))
    params, tx = model.init(jax.random.key(0), train), optax.adam(0.02)

    @jax.jit
    def fitted(params):
        def step(carry, rng):
            grads = jax.grad(lambda p: model.loss_fn(p, train, rng)[0] / 160)(carry[0])
            updates, state = tx.update(grads, carry[1])
            return (optax.apply_updates(carry[0], updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, tx.init(params)), jax.random.split(jax.random.key(1), 150))
        return model.eval_fn(params, test)["accuracy"], model.answer(params, test["source"]).hops

    accuracy, hops = fitted(params)
    assert float(accuracy.compute()) > 0.9
    found = np.argmax(hops[:, 0], axis=-1) + 1 == np.asarray(test["evidence"])[:, 0]
    assert found.mean() > 0.9
