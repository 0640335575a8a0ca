"""Counts of the words of a vocabulary, in the training targets or from a file."""

import difflib
import pathlib
from collections.abc import Sequence

import numpy as np

from attn_jax.data.text import read_lines
from attn_jax.data.vocabulary import Vocabulary
from attn_jax.errors import UserError
from attn_jax.token_ids import EOS, SPECIAL


def count_targets(texts: Sequence[str], vocabulary: Vocabulary) -> np.ndarray:
    """Counts each token of the encoded texts; every text ends with eos."""
    counts = np.zeros(len(vocabulary), np.int64)
    for text in texts:
        np.add.at(counts, vocabulary.encode(text), 1)
    counts[EOS] += len(texts)
    return counts


def read_counts(path: pathlib.Path, vocabulary: Vocabulary) -> np.ndarray:
    """Reads counts from a file of lines with a word, a tab and its count.

    Every word of the vocabulary has to be in the file, and every word of the file in the vocabulary. <unk> and <eos>
    may have a line; <pad> and <bos> are never a target.

    Raises:
        UserError: a line has another form, or the words differ from the vocabulary.
    """
    words = {token: i for i, token in enumerate(vocabulary.tokens(range(len(vocabulary))))}
    counts = np.full(len(vocabulary), -1, np.int64)
    counts[: len(SPECIAL)] = 0
    seen = set()
    for number, line in enumerate(read_lines(path, "a word, a tab and a count in each line"), 1):
        word, tab, count = line.rpartition("\t")
        if not tab or not count.strip().isdecimal() or not count.isascii() or len(count) > 15:
            raise UserError(f"{path}, line {number}: expected a word, a tab and a count, got {line[:60]!r}")
        if word not in words:
            close = difflib.get_close_matches(word, words, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UserError(f"{path}, line {number}: {word!r} is not in the vocabulary{hint}")
        if word in seen:
            raise UserError(f"{path}, line {number}: {word!r} has a line before this one")
        seen.add(word)
        counts[words[word]] = int(count)
    if missing := np.flatnonzero(counts < 0).tolist():
        some = ", ".join(map(repr, vocabulary.tokens(missing[:3])))
        raise UserError(
            f"{path}: {len(missing)} of the {len(vocabulary)} words of the vocabulary have no line ({some}); expected "
            "a count for each"
        )
    return counts
