"""Sorted is sorted and a permutation, reversing twice is nothing, and what is tested was never trained on."""

import collections
import itertools
from functools import partial

import numpy as np
import pytest
from tasks_by_name import make

from attn_jax.data.vocabulary import from_json
from attn_jax.errors import UserError
from attn_jax.runs.options import change, resolve
from attn_jax.tasks import Pairs
from attn_jax.tasks.synthetic import generated
from attn_jax.tasks.synthetic.generated import NUM_EXAMPLES, SCARCE, TEST_SIZE, owner
from attn_jax.tasks.synthetic.sequences import make_pairs
from attn_jax.token_ids import UNK
from configs.base import get_config

DEFAULTS = {"lengths": (1, 8), "num_examples": 2000, "valid_size": 200}
build = partial(make, "sequences", **DEFAULTS)


def numbers(text):
    return [int(word) for word in text.split(" ")]


def items(pairs):
    return [(numbers(source), numbers(target)) for source, target in zip(pairs.source, pairs.target, strict=True)]


@pytest.fixture(scope="module")
def task():
    return build()


def test_each_operation_is_the_one_of_its_name(task):
    for split in task.splits.values():
        for source, target in items(split):
            assert all(a <= b for a, b in itertools.pairwise(target))
            assert collections.Counter(source) == collections.Counter(target)
    other = {name: build(operation=name).splits["train"] for name in ("copy", "reverse")}
    assert other["copy"].source == other["copy"].target == other["reverse"].source == task.splits["train"].source
    assert all(target[::-1] == source for source, target in items(other["reverse"]))


def test_symbols_and_lengths_are_equally_frequent(task):
    sources = [source for source, _ in items(task.splits["train"])]
    lengths = collections.Counter(map(len, sources))
    assert lengths == dict.fromkeys(range(1, 9), len(sources) // 8)
    symbols = collections.Counter(symbol for source in sources for symbol in source)
    assert sorted(symbols) == list(range(32))
    assert max(abs(count / symbols.total() * 32 - 1) for count in symbols.values()) < 0.25


@pytest.mark.parametrize("lengths", [(32,), (16, 32, 64, 128)])
def test_the_test_split_has_equal_shares_of_its_lengths(lengths):
    task = build(test_lengths=lengths)
    counts = collections.Counter(len(numbers(text)) for text in task.splits["test"].source)
    assert counts == dict.fromkeys(lengths, TEST_SIZE // len(lengths))
    assert {len(numbers(text)) for text in task.splits["valid"].source} == set(range(1, 9))
    assert "test sequences that training has too" not in task.stats


def test_splits_share_no_sequence_but_short_ones(task):
    seen = {name: set(split.source) for name, split in task.splits.items()}
    shared = (seen["train"] & (seen["valid"] | seen["test"])) | (seen["valid"] & seen["test"])
    assert shared and all(32 ** len(numbers(text)) < SCARCE for text in shared)
    for name in ("valid", "test"):
        count = sum(text in seen["train"] for text in task.splits[name].source)
        assert task.stats[f"{name} sequences that training has too"] == count


@pytest.mark.slow
def test_splits_of_any_seeds_and_sizes_share_no_sequence(monkeypatch):
    monkeypatch.setattr(generated, "SEED", 1)
    trained = build(lengths=(4, 6), num_examples=3000).splits["train"]
    monkeypatch.setattr(generated, "SEED", 2)
    held_out = build(lengths=(4, 6), valid_size=400)
    assert held_out.stats == {"train": 2000, "valid": 400, "test": TEST_SIZE}
    assert not set(trained.source) & {*held_out.splits["valid"].source, *held_out.splits["test"].source}


def test_a_hash_gives_each_split_its_share():
    rng = np.random.default_rng(0)
    counts = collections.Counter(owner(rng.integers(32, size=5)) for _ in range(4000))
    for name, share in (("train", 0.8), ("valid", 0.1), ("test", 0.1)):
        assert abs(counts[name] / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5


@pytest.mark.slow
def test_a_smaller_split_is_the_beginning_of_a_larger_one(task):
    few = build(num_examples=50, valid_size=20)
    for name, split in few.splits.items():
        assert split == task.splits[name].select(range(len(split)))
    assert few.splits["test"] == task.splits["test"]
    assert len(build(num_examples=0, lengths=(1, 2)).splits["train"]) == NUM_EXAMPLES


def test_pairs_of_any_length():
    pairs = make_pairs("reverse", 10, (100, 200), 6, np.random.default_rng(0))
    assert [len(source) for source, _ in items(pairs)] == [100, 200] * 3
    assert all(target == source[::-1] for source, target in items(pairs))
    assert make_pairs("reverse", 10, (100, 200), 2, np.random.default_rng(0)) == pairs.select([0, 1])
    assert make_pairs("sort", 10, (3,), 0, np.random.default_rng(0)) == Pairs([], [])
    chosen = make_pairs("copy", 5, (2,), 30, np.random.default_rng(0), accept=lambda symbols: symbols[0] == 3)
    assert {source[0] for source, _ in items(chosen)} == {3} and {source[1] for source, _ in items(chosen)} == {
        *range(5)
    }
    for lengths in ((), (3, 0)):
        with pytest.raises(UserError, match="expected one or more lengths of at least 1"):
            make_pairs("copy", 5, lengths, 3, np.random.default_rng(0))


def test_one_vocabulary_knows_all_symbols():
    task = build(num_examples=1, num_symbols=100, lengths=(1, 2))
    assert task.source_vocabulary is task.target_vocabulary and len(task.source_vocabulary) == 104
    saved = from_json(task.source_vocabulary.to_json())
    for text in [*task.splits["test"].source, *task.examples]:
        assert UNK not in saved.encode(text) and saved.decode(saved.encode(text)) == text
    again = build(kept=(saved, saved), lengths=(1, 2))
    assert again.source_vocabulary is saved


@pytest.mark.parametrize(
    "options, message",
    [
        ({"operation": "srt"}, r"unknown task.operation 'srt'; did you mean sort\?$"),
        ({"num_symbols": 1}, "task.num_symbols 1: expected at least 2$"),
        *(
            ({"lengths": wrong}, "expected the shortest and the longest length, such")
            for wrong in [(0, 4), (5, 4), (5,)]
        ),
        ({"test_lengths": (8.5,)}, r"task.test_lengths \(8.5,\): expected lengths of at least 1"),
        ({"test_lengths": (8, 0)}, r"task.test_lengths \(8, 0\): expected lengths of at least 1, such as \(32, 64\)$"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(UserError, match=message):
        build(**options)
    for number in (1, 1_000_000_000):  # refused before an alphabet of so many is made
        with pytest.raises(UserError, match=rf"^task.num_symbols is {number}; expected 2 to 100000$"):
            resolve(change(get_config(task="sequences"), {"task.num_symbols": number}))
