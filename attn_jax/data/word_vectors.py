"""Pretrained word vectors from text files: a word and its numbers in each line.

    the 0.418 0.24968 -0.41242 ...          GloVe
    400000 300                              first line of word2vec and fastText: number of words and of columns

Only the words of a vocabulary are kept, so a file may be much larger than the memory.
"""

import pathlib
from typing import NamedTuple

import numpy as np

from attn_jax.errors import UserError
from attn_jax.token_ids import SPECIAL
from attn_jax.types import Array, Bool, Float

SHOWN = 5  # number of words that a message names


class WordVectors(NamedTuple):
    """Vectors of some tokens of a vocabulary."""

    rows: Float[Array | np.ndarray, "v d"]  # zeros for tokens that the file lacks
    found: Bool[Array | np.ndarray, "v"]

    def __str__(self) -> str:
        return f"{int(np.sum(self.found))} of {len(self.found)} tokens"


def read_vectors(path: str | pathlib.Path, tokens: list[str]) -> WordVectors:
    """Reads the vectors of these tokens; if a word occurs twice, the first vector counts.

    A token that is not in the file gets the vector of its lower-case form, if there is one. Special tokens such as pad
    have none.

    Raises:
        UserError: the file cannot be read; a line is not a word and as many finite numbers as in the first line; or
            the file has none of the tokens.
    """
    path = pathlib.Path(path)
    wanted: dict[str, list[int]] = {}
    for index, token in enumerate(tokens):
        for form in dict.fromkeys([token, token.lower()] if token not in SPECIAL else []):
            wanted.setdefault(form, []).append(index)
    exact, found, width = set(), {}, 0
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, 1):
                parts = line.rstrip(" \r\n").split(" ")
                if number == 1 and len(parts) == 2 and all(map(_is_count, parts)):
                    width = int(parts[1])
                    continue
                width = width or len(parts) - 1
                word = " ".join(parts[:-width])  # words of some files have spaces; "" if numbers are missing
                if width < 1 or not word:
                    raise _wrong(path, number, line, width)
                if word not in wanted:
                    continue
                vector = _numbers(parts[-width:], path, number, line, width)
                for index in wanted[word]:
                    if tokens[index] == word and index not in exact:
                        exact.add(index)
                        found[index] = vector
                    found.setdefault(index, vector)
    except UnicodeDecodeError:
        raise UserError(f"{path}: not valid UTF-8; expected word vectors as text, not a binary file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); expected a file of word vectors") from None
    if not found:
        some = ", ".join([token for token in tokens if token not in SPECIAL][:SHOWN])
        raise UserError(
            f"{path}: has no vector of any of the {len(tokens)} tokens, such as {some}; is it the language?"
        )
    rows = np.zeros((len(tokens), width), np.float32)
    rows[list(found)] = list(found.values())
    return WordVectors(rows, np.isin(np.arange(len(tokens)), list(found)))


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) < 10  # isdigit is True for "²", which int cannot parse


def _numbers(parts: list[str], path: pathlib.Path, number: int, line: str, width: int) -> np.ndarray:
    try:
        vector = np.array([float(part) for part in parts], np.float32)
    except ValueError:
        raise _wrong(path, number, line, width) from None
    if not np.all(np.isfinite(vector)):
        raise _wrong(path, number, line, width)
    return vector


def _wrong(path: pathlib.Path, number: int, line: str, width: int) -> UserError:
    shown = line.strip()[:40] or "an empty line"
    return UserError(f"{path}, line {number}: expected a word and {max(width, 1)} finite numbers, got {shown!r}")
