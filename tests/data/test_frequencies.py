"""Counts of words among the targets, and from files; every wrong file is one line."""

import numpy as np
import pytest

from attn_jax.data.frequencies import count_targets, read_counts
from attn_jax.data.vocabulary import Words
from attn_jax.errors import UserError
from attn_jax.tasks import Pairs, Task
from attn_jax.token_ids import EOS, UNK

VOCABULARY = Words(["a", "b", "c"])


def test_targets_are_counted_with_their_ends():
    counts = count_targets(["a b a", "c d", ""], VOCABULARY)
    np.testing.assert_array_equal(counts, [0, 1, 0, 3, 2, 1, 1])
    assert counts[UNK] == 1 and counts[EOS] == 3


def written(tmp_path, text):
    path = tmp_path / "counts.tsv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_gives_the_counts_of_all_words(tmp_path):
    counts = read_counts(written(tmp_path, "b\t2\n<eos>\t9\na\t7\nc\t0\n"), VOCABULARY)
    np.testing.assert_array_equal(counts, [0, 0, 0, 9, 7, 2, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\t7\nb\t2\n", "1 of the 7 words of the vocabulary have no line ('c')"),
        ("a\t7\nb\t2\nc\t1\nd\t1\n", "line 4: 'd' is not in the vocabulary"),
        ("a\t7\nb\tx\nc\t1\n", "line 2: expected a word, a tab and a count, got 'b\\tx'"),
        ("a\t7\nb\t-2\nc\t1\n", "line 2: expected a word, a tab and a count"),
        ("a 7\n", "line 1: expected a word, a tab and a count"),
        ("a\t7\na\t7\n", "line 2: 'a' has a line before this one"),
    ],
)
def test_a_wrong_file_is_an_error(tmp_path, text, message):
    with pytest.raises(UserError) as error:
        read_counts(written(tmp_path, text), VOCABULARY)
    assert message in str(error.value) and "counts.tsv" in str(error.value)


def test_counts_are_stored_with_the_vocabulary(tmp_path):
    pairs = Pairs(["", ""], ["a b", "c"])
    task = Task("plain_text", {"train": pairs, "valid": pairs}, VOCABULARY, VOCABULARY).with_counts()
    assert task.source_vocabulary.counts is None
    task.save(tmp_path)
    source, target, _ = Task.load(tmp_path)
    assert source.counts is None
    np.testing.assert_array_equal(target.counts, [0, 0, 0, 2, 1, 1, 1])


def test_damaged_counts_are_an_error(tmp_path):
    tokens = '{"kind": "words", "tokens": ["a", "b", "c"]'
    for counts in ("[1]", '"x"', "[1, 2, 3, 4, 5, 6, -1]", "[1, 2, 3, 4, 5, 6, 0.5]"):
        text = f'{{"source": {tokens}}}, "target": {tokens}, "counts": {counts}}}}}'
        (tmp_path / "vocabularies.json").write_text(text)
        with pytest.raises(UserError, match=r"target.counts is .*; expected 7 integers"):
            Task.load(tmp_path)
