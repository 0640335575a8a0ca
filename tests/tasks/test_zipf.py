"""The text of known entropy: its entropy by enumeration, and its samples by their frequencies."""

import itertools

import numpy as np
import pytest
from tasks_by_name import make

from attn_jax.errors import UserError
from attn_jax.tasks.synthetic.zipf import ZipfSource

SMALL = dict(num_words=6, num_classes=2, exponent=1.0)
SIZES = dict(length=3, num_examples=30, valid_size=5)


def log_prob(source, words):
    class_of = {word: c for c, words in enumerate(source.words) for word in words}
    within = dict(zip(np.concatenate(source.words), np.concatenate(source.probs), strict=True))
    classes = [class_of[word] for word in words]
    steps = [source.stationary[classes[0]], *(source.transitions[a, b] for a, b in itertools.pairwise(classes))]
    return np.sum(np.log(steps)) + sum(np.log(within[word]) for word in words)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_entropy_is_that_of_all_texts(length):
    source = ZipfSource(**SMALL)
    logs = np.array([log_prob(source, words) for words in itertools.product(range(6), repeat=length)])
    np.testing.assert_allclose(np.sum(np.exp(logs)), 1)
    np.testing.assert_allclose(source.entropy(length), -np.sum(np.exp(logs) * logs))


def test_words_follow_zipfs_law_within_a_class():
    source = ZipfSource(num_words=10, num_classes=3, exponent=2.0)
    for words, probs in zip(source.words, source.probs, strict=True):
        np.testing.assert_allclose(probs / probs[0], ((1 + words[0]) / (1 + words)) ** 2.0)
    np.testing.assert_allclose(source.word_probs.sum(), 1)


def test_samples_have_the_probabilities_of_the_source():
    source, n = ZipfSource(**SMALL), 60_000
    samples = source.sample(n, 2, np.random.default_rng(0))
    share = np.zeros((6, 6))
    np.add.at(share, tuple(samples.T), 1 / n)
    expected = np.exp([[log_prob(source, (a, b)) for b in range(6)] for a in range(6)])
    np.testing.assert_allclose(share, expected, atol=5 * np.sqrt(0.25 / n))


def test_the_task_has_every_word_and_its_lower_bound():
    task = make("zipf", **SMALL, **SIZES)
    assert [len(task.splits[name]) for name in ("train", "valid", "test")] == [30, 5, 1000]
    assert len(task.target_vocabulary) == 6 + 4
    assert all(len(text.split()) == 3 for text in task.splits["train"].target)
    lowest = task.stats["lowest possible perplexity"]
    np.testing.assert_allclose(lowest, np.exp(ZipfSource(**SMALL).entropy(3) / 4), atol=1e-3)
    most_frequent = task.target_vocabulary.tokens([4])[0]
    assert np.argmax(ZipfSource(**SMALL).word_probs) == int(most_frequent)
    assert task.examples and all(text.split() for text in task.examples)
    assert make("zipf", **SMALL, **SIZES).splits == task.splits
    with pytest.raises(UserError, match=r"task.num_words is 6; expected at least task.num_classes, 7"):
        make("zipf", **SMALL | {"num_classes": 7}, **SIZES)
