"""Vocabularies that are a list of tokens."""

import collections
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

import numpy as np

from attn_jax.errors import UserError
from attn_jax.token_ids import SPECIAL, UNK, content


class TokenTable:
    """A vocabulary given by a list of tokens; id i is the i-th of SPECIAL + tokens. Subclasses split and join text.

    Attributes:
        kind: key in attn_jax.data.vocabulary.STORED.
        form: format of a text with tags, such as "lemma TAB TAG;TAG"; "": texts have no tags.
        has_tags: a model can find the tags, which follow the eos of the text.
        has_pieces: a text has many splits into tokens, and `sample` returns a random one.
        first: tokens that every vocabulary of the class begins with.
    """

    kind = ""
    form = ""
    has_tags = False
    has_pieces = False
    first: tuple[str, ...] = ()
    counts: np.ndarray | None = None  # of each token in the training targets, if an output layer needs counts

    def __init__(self, tokens: Sequence[str]):
        self._tokens = [*SPECIAL, *tokens]
        self._ids = {token: i for i, token in enumerate(self._tokens) if i >= len(SPECIAL)}
        if len(self._ids) != len(tokens):
            raise UserError(f"a vocabulary of {self.kind} with the same entry twice")
        if tuple(tokens[: len(self.first)]) != self.first:
            raise UserError(f"a vocabulary of {self.kind} whose first entries are not {' '.join(self.first)}")

    @classmethod
    def train(cls, lines: Iterable[str], *, vocab_size: int, min_count: int = 1, model_type: str = ""):
        """Takes the tokens seen at least `min_count` times, most frequent first, ties in order of their code points.

        The tokens of `first` come before them, even if they do not occur.

        Args:
            lines: the training text.
            vocab_size: at most this many entries, the four special ones included; 0: no limit.
            min_count: rarer tokens become UNK.
            model_type: not used; only SentencePiece has several.

        Raises:
            UserError: vocab_size has no room for a token, or no token occurs often enough.
        """
        reserved = (*SPECIAL, *cls.first)
        if 0 != vocab_size <= len(reserved):
            raise UserError(f"vocab_size {vocab_size} is too small; the smallest possible is {len(reserved) + 1}")
        counts = collections.Counter(token for line in lines for token in cls._split(line))
        for token in reserved:
            counts.pop(token, None)  # "<unk>" as a word of the text is an unknown word, not a second entry
        ranked = sorted((token for token in counts if counts[token] >= min_count), key=lambda t: (-counts[t], t))
        if not ranked:
            most = max(counts.values(), default=0)
            raise UserError(f"no token is seen {min_count} times, the commonest {most}; set a smaller min_count")
        return cls([*cls.first, *ranked[: vocab_size - len(reserved) if vocab_size else None]])

    @staticmethod
    def _split(text: str) -> list[str]:
        raise NotImplementedError

    def tokenize(self, text: str) -> list[str]:
        """Splits a text into tokens as written, one for each id of `encode`, including unknown ones."""
        return self._split(text)

    def text_places(self, text: str) -> slice:
        """Returns the slice of tokens that are no tags: all tokens."""
        return slice(None)

    def encode(self, text: str) -> list[int]:
        """Encodes a text, without BOS and EOS."""
        ids = self._ids
        return [ids.get(token, UNK) for token in self._split(text)]

    def tokens(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """Returns one string for each id, including special ones, as labels for plots."""
        return [self._tokens[i] for i in ids]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """Decodes the ids before the first EOS; PAD and BOS are skipped."""
        return self.join(self.tokens(content(ids)))

    def join(self, tokens: Iterable[str]) -> str:
        """Joins tokens to a text."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._tokens)

    def to_json(self) -> dict:
        """Returns a dict of strings and lists for `from_json`."""
        return {"kind": self.kind, "tokens": self._tokens[len(SPECIAL) :]}

    @classmethod
    def from_json(cls, data: dict):
        """Makes a vocabulary from the result of `to_json`."""
        return cls(data["tokens"])
