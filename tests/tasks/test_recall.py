"""Associative recall: the entropy by enumeration, and texts in which every key has one value."""

import collections
import tracemalloc

import numpy as np
import pytest
from tasks_by_name import make

from attn_jax.errors import UserError
from attn_jax.runs.options import default_config, resolve
from attn_jax.tasks.synthetic.recall import RecallOptions, choose, entropy, is_value

SMALL = dict(num_pairs=2, num_keys=5, num_values=6, num_fillers=2, length=7)


def test_the_entropy_is_that_of_all_targets_of_a_source():
    """As many keys and values as pairs, so that only their order and partners differ: 4 sources, 160 targets each."""
    tiny = RecallOptions(num_pairs=2, num_keys=2, num_values=2, num_fillers=2, length=7)
    pairs = tiny.sample(20_000, np.random.default_rng(0))
    targets = collections.defaultdict(collections.Counter)
    for source, target in zip(pairs.source, pairs.target, strict=True):
        targets[source][target] += 1
    assert len(targets) == 4
    for counts in targets.values():
        assert np.log(len(counts)) == pytest.approx(entropy(2, 7, 2))
        expected = sum(counts.values()) / len(counts)
        assert max(counts.values()) < 2.2 * expected


def test_every_key_is_followed_by_its_value_and_no_filler_is_a_key_or_a_value():
    task = make("recall", **SMALL, num_examples=50, valid_size=5)
    assert [len(task.splits[name]) for name in ("train", "valid", "test")] == [50, 5, 1000]
    for source, target in zip(task.splits["train"].source, task.splits["train"].target, strict=True):
        words, given = target.split(), source.split()
        value_of = dict(zip(given[::2], given[1::2], strict=True))
        assert len(words) == 7 and len(value_of) == len(set(value_of.values())) == 2
        asked = [i for i, word in enumerate(words) if word in value_of]
        assert sorted(words[i] for i in asked) == sorted(value_of)
        assert all(words[i + 1] == value_of[words[i]] for i in asked)
        rest = [word for i, word in enumerate(words) if i not in asked and i - 1 not in asked]
        assert len(rest) == 3 and all(word[0] == "." for word in rest)
    tokens = np.array(task.target_vocabulary.encode(task.splits["train"].target[0]))
    assert is_value(tokens, task.target_vocabulary).sum() == 2
    assert len(task.target_vocabulary) == 5 + 6 + 2 + 4
    assert make("recall", **SMALL, num_examples=50, valid_size=5).splits == task.splits
    lowest = np.exp(entropy(2, 7, 2) / 8)
    assert task.stats["lowest possible perplexity"] == pytest.approx(lowest, abs=1e-4)


@pytest.mark.parametrize(("count", "size"), [(20_000, 128), (3, 5), (64, 100_000)])
def test_numbers_are_chosen_in_parts_that_are_those_of_one_matrix(count, size):
    """Measured pages depend on them; the matrix itself would be larger than the memory for many keys."""
    whole = np.random.default_rng(3)
    expected = np.argsort(whole.random((count, size)), axis=1)[:, :4]
    rng = np.random.default_rng(3)
    tracemalloc.start()
    try:
        found = choose(count, size, 4, rng)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000  # bytes; a matrix of 64 x 100,000 and its order: 102 MB
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, expected)
    assert rng.random() == whole.random()


def test_sizes_that_do_not_fit_are_told():
    for changes, message in (
        (dict(num_keys=1), "task.num_keys is 1; expected at least task.num_pairs, 2"),
        (dict(num_values=1), "task.num_values is 1; expected at least task.num_pairs, 2"),
        (dict(length=3), "task.length is 3; expected at least 4, for task.num_pairs 2"),
    ):
        with pytest.raises(UserError, match=message):
            make("recall", **SMALL | changes, num_examples=5, valid_size=5)
    for name in ("num_keys", "num_values"):  # more words than can be sorted for each text
        config = default_config("recall", "seq2seq")
        config.task[name] = 1_000_000
        with pytest.raises(UserError, match=rf"^task.{name} is 1000000; expected 1 to 10000$"):
            resolve(config)
