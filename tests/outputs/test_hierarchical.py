"""Trees, and the hierarchical softmax as the product of decisions along a path."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax.outputs import HierarchicalSoftmax
from attn_jax.outputs import hierarchical as module
from attn_jax.outputs.frequencies import Frequencies
from attn_jax.outputs.trees import TREES, by_frequency, huffman

VOCAB, WIDTH = 11, 4
RNG = np.random.default_rng(0)
COUNTS = Frequencies(np.array([0, 3, 0, 50, 1, 20, 20, 7, 2, 90, 4]))
HIDDEN = RNG.normal(size=(2, 3, WIDTH)).astype(np.float32)
TARGETS = RNG.integers(0, VOCAB, (2, 3))


def words_below(tree, node):
    return (
        [node]
        if node < tree.vocab_size
        else [word for child in tree.children[node - tree.vocab_size] for word in words_below(tree, child)]
    )


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("size", [2, 3, 8, 11, 100])
def test_every_word_is_a_leaf(name, size):
    tree = TREES[name](Frequencies(np.random.default_rng(1).zipf(1.5, size) - 1))
    assert sorted(words_below(tree, 2 * size - 2)) == list(range(size))
    assert tree.parent[-1] == -1 and np.all(tree.parent[:-1] >= 0)


def test_the_mean_depth_of_a_huffman_tree_is_between_the_entropy_and_one_more():
    counts = np.round(1e6 / np.arange(1, 1001)).astype(int)
    probs = counts / counts.sum()
    entropy = -np.sum(probs * np.log2(probs))
    depth = {name: np.sum(probs * make(Frequencies(counts)).depths()) for name, make in TREES.items()}
    assert entropy <= depth["huffman"] < entropy + 1
    assert depth["huffman"] <= depth["frequency"] < depth["balanced"] <= 10


@pytest.mark.parametrize("counts", [(5, 1, 8, 1, 3), (3, 3, 4, 4, 5)])
def test_no_tree_is_better_than_huffmans(counts):
    """The mean depth of the best of all trees over five words, by dynamic programming over sets of words."""
    best = {(word,): 0 for word in range(5)}
    for size in range(2, 6):
        for words in itertools.combinations(range(5), size):
            splits = [some for k in range(1, size) for some in itertools.combinations(words, k)]
            rest = {some: tuple(word for word in words if word not in some) for some in splits}
            best[words] = sum(counts[w] for w in words) + min(best[some] + best[rest[some]] for some in splits)
    assert np.dot(counts, huffman(Frequencies(np.array(counts))).depths()) == best[tuple(range(5))]


def test_groups_by_frequency_have_the_most_equal_counts():
    counts = np.array([9, 8, 7, 5, 5, 5, 3, 2, 1, 1, 1, 40])
    tree, sums = by_frequency(Frequencies(counts)), []
    for left, right in tree.children:
        below = [counts[words_below(tree, child)] for child in (left, right)]
        before = np.cumsum(np.sort(np.concatenate(below))[::-1])
        sums.append(before[-1])
        assert abs(below[0].sum() - below[1].sum()) == np.min(np.abs(before[-1] - 2 * before[:-1]))
    assert max(sums) == counts.sum()


@pytest.fixture(params=TREES)
def layer(request):
    return HierarchicalSoftmax(vocab_size=VOCAB, tree=TREES[request.param](COUNTS))


def params(layer, scale=0.5):
    return {"params": params_of(layer, jnp.asarray(HIDDEN), jnp.asarray(TARGETS), method="loss", scale=scale)}


def test_probabilities_are_products_of_decisions_and_sum_to_one(layer):
    given, tree = params(layer), layer.tree
    table, bias = given["params"]["table"], given["params"]["bias"]
    expected = np.zeros((2, 3, VOCAB))
    for word in range(VOCAB):
        node = word
        while tree.parent[node] >= 0:
            score = HIDDEN @ table[tree.parent[node]] + bias[tree.parent[node]]
            expected[..., word] -= np.log1p(np.exp(-score if tree.is_right[node] else score))
            node = VOCAB + tree.parent[node]
    log_probs = compiled(lambda hidden: layer.apply(given, hidden, method="log_probs"))(HIDDEN)
    np.testing.assert_allclose(log_probs, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-5)
    loss, nll = compiled(lambda *args: layer.apply(given, *args, method="loss"))(HIDDEN, TARGETS)
    np.testing.assert_allclose(nll, -np.take_along_axis(expected, TARGETS[..., None], -1)[..., 0], rtol=1e-4)
    np.testing.assert_array_equal(loss, nll)


@pytest.mark.slow
def test_the_search_finds_the_best_words(layer):
    @compiled
    def run(given, hidden):
        call = lambda *args, method: layer.apply(given, hidden, *args, method=method)  # noqa: E731
        log_probs = call(method="log_probs")
        best = [call(k, method="top_k") for k in (1, 4, VOCAB)]
        targets = jnp.where(jnp.arange(3) == 0, jnp.argmax(log_probs, -1), jnp.argmin(log_probs, -1))
        return log_probs, best, call(targets, method="nll_and_correct")[1]

    for scale in (0.1, 3.0):
        log_probs, best, correct = run(params(layer, scale), HIDDEN)
        for values, words in best:
            expected = -np.sort(-log_probs, axis=-1)[..., : words.shape[-1]]
            np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(np.take_along_axis(log_probs, words, -1), values, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(correct, np.broadcast_to(np.arange(3) == 0, (2, 3)))


@pytest.mark.slow
def test_of_equal_words_one_is_correct(layer):
    given = jax.tree.map(np.zeros_like, params(layer, 1.0))
    hidden = np.broadcast_to(HIDDEN[0, 0], (VOCAB, WIDTH))
    call = lambda hidden, *args, method: layer.apply(given, hidden, *args, method=method)  # noqa: E731
    log_probs, (_, correct) = compiled(
        lambda x: (call(x[0], method="log_probs"), call(x, jnp.arange(VOCAB), method="nll_and_correct"))
    )(hidden)
    assert np.sum(correct) == 1 and log_probs[np.argmax(correct)] == np.max(log_probs)


@pytest.mark.slow
def test_a_search_without_enough_room_computes_all_words(layer, monkeypatch):
    given = params(layer, 0.1)
    expected = compiled(lambda hidden: layer.apply(given, hidden, 4, method="top_k"))(HIDDEN)
    monkeypatch.setattr(module, "FRONTIER", 1)
    values, words = compiled(jax.vmap(lambda hidden: layer.apply(given, hidden, 4, method="top_k")))(HIDDEN)
    np.testing.assert_array_equal(words, expected[1])
    np.testing.assert_allclose(values, expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_search_is_the_same_where_jax_has_64_bits(layer):
    given = params(layer, 0.1)
    expected = compiled(lambda hidden: layer.apply(given, hidden, 4, method="top_k"))(HIDDEN)
    with jax.enable_x64(True):
        values, words = compiled(lambda hidden: layer.apply(given, hidden, 4, method="top_k"))(HIDDEN)
    np.testing.assert_array_equal(words, expected[1])
    np.testing.assert_allclose(values, expected[0], rtol=1e-5, atol=1e-6)
