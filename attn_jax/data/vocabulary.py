"""Vocabularies, which map text to ids and back: words, characters, tags and characters, or SentencePiece pieces.

All vocabularies have the same four special ids. `encode` returns none of them except UNK, so that the real positions
of a batch are those that are not PAD.
"""

import collections
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

from attn_jax.data.pieces import SentencePiece
from attn_jax.data.token_table import TokenTable
from attn_jax.errors import UserError, lookup
from attn_jax.token_ids import BOS, EOS, PAD, SPECIAL, UNK

PERIOD_ID, QUESTION_ID = 4, 5  # ids of "." and "?" in StoryWords


class Words(TokenTable):
    """Tokens are words separated by white space."""

    kind = "words"

    @staticmethod
    def _split(text: str) -> list[str]:
        return text.split()

    def join(self, tokens: Iterable[str]) -> str:
        """Joins the tokens with spaces."""
        return " ".join(tokens)


class StoryWords(Words):
    """Words in lower case; "." and "?" have the ids PERIOD_ID and QUESTION_ID, so that models can find sentences."""

    kind = "stories"
    first = (".", "?")

    @staticmethod
    def _split(text: str) -> list[str]:
        return text.lower().split()


class Characters(TokenTable):
    """Tokens are the code points, including spaces.

    The text "<unk>", which `decode` writes for an unknown token, is encoded as one unknown token; but as its letters if
    the vocabulary has all of them, as after training on a text with "<unk>".
    """

    kind = "characters"

    def __init__(self, tokens: Sequence[str]):
        super().__init__(tokens)
        self._has_letters_of_unk = self._ids.keys() >= set(SPECIAL[UNK])

    def tokenize(self, text: str) -> list[str]:
        """Splits a text into code points and "<unk>", one for each id of `encode`."""
        return self._split(text) if self._has_letters_of_unk else split_letters(text)

    def encode(self, text: str) -> list[int]:
        """Encodes a text, without BOS and EOS."""
        return [self._ids.get(token, UNK) for token in self.tokenize(text)]

    @staticmethod
    def _split(text: str) -> list[str]:
        return list(text)

    def join(self, tokens: Iterable[str]) -> str:
        """Concatenates the tokens."""
        return "".join(tokens)


def split_letters(text: str) -> list[str]:
    """Splits a text into code points; keeps "<unk>", which stands for an unknown one in outputs, as one token."""
    first, *others = text.split(SPECIAL[UNK])
    return [*first, *(token for other in others for token in (SPECIAL[UNK], *other))]


class Inflections(TokenTable):
    """Tokens of `lemma TAB tags`: first each tag, written as <V>, then each code point of the lemma.

    Tags are joined by ";". They come first so that their positions do not depend on the lemma. A text without a tab is
    a lemma.
    """

    kind = "inflection"
    form = "lemma TAB TAG;TAG"

    @staticmethod
    def _split(text: str) -> list[str]:
        lemma, tab, tags = text.partition("\t")
        return [*(f"<{tag}>" for tag in tags.split(";") if tab), *lemma]

    def text_places(self, text: str) -> slice:
        """Returns the slice of the tokens of `lemma TAB tags` that belong to the lemma."""
        return slice(len(tags_of(text)), None)

    def join(self, tokens: Iterable[str]) -> str:
        """Joins tokens to `lemma TAB tags`, or to the lemma if there is no tag. An unk before a tag is a tag."""
        tokens = list(tokens)
        places = [i for i, token in enumerate(tokens) if len(token) > 1 and token not in SPECIAL]
        if not places:
            return "".join(tokens)
        tags, lemma = tokens[: places[-1] + 1], tokens[places[-1] + 1 :]
        written = [tag if tag in SPECIAL else tag.removeprefix("<").removesuffix(">") for tag in tags]
        return f"{''.join(lemma)}\t{';'.join(written)}"


class TaggedLemmas(TokenTable):
    """Tokens of `lemma TAB tags`: each code point of the lemma, <eos>, then each tag, written as <V>.

    Tags are joined by ";". A model can separate lemma and tags at the first eos; a second one ends the source. A text
    without a tab is a lemma without tags.
    """

    kind = "tagged_lemmas"
    form = "lemma TAB TAG;TAG"
    has_tags = True

    @staticmethod
    def _split(text: str) -> list[str]:
        lemma, tab, tags = text.partition("\t")
        return [*lemma, SPECIAL[EOS], *(f"<{tag}>" for tag in tags.split(";") if tab)]

    def text_places(self, text: str) -> slice:
        """Returns the slice of the tokens of `lemma TAB tags` that belong to the lemma."""
        return slice(len(text.partition("\t")[0]))

    def encode(self, text: str) -> list[int]:
        """Encodes a text, without BOS; EOS is between lemma and tags."""
        return [EOS if token == SPECIAL[EOS] else self._ids.get(token, UNK) for token in self._split(text)]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """Decodes the ids before the second EOS; PAD and BOS are skipped."""
        lemma, tags = split_at_eos(ids)
        return _with_tags("".join(self.tokens(lemma)), self.tokens(tags))

    def join(self, tokens: Iterable[str]) -> str:
        """Joins tokens to `lemma TAB tags`, or to the lemma if there is no tag."""
        tokens = list(tokens)
        end = tokens.index(SPECIAL[EOS]) if SPECIAL[EOS] in tokens else len(tokens)
        return _with_tags("".join(tokens[:end]), tokens[end + 1 :])


class TaggedTexts:
    """Tokens of `text TAB tags`: tokens of the text by another vocabulary, <eos>, then each tag, written as <V>.

    Tags are joined by ";"; spaces around them are ignored. Ids of tags follow the ids of the vocabulary of texts. A
    model can separate text and tags at the first eos; a second one ends the source. A text without a tab has no tags.
    """

    kind = "tagged_texts"
    form = "text TAB TAG;TAG"
    has_tags = True
    counts = None

    def __init__(self, texts: "Vocabulary", tags: Sequence[str]):
        """
        Args:
            texts: vocabulary of the texts.
            tags: all tags.

        Raises:
            UserError: a tag occurs twice.
        """
        if len(set(tags)) != len(tags):
            raise UserError(f"a vocabulary of {self.kind} with the same tag twice")
        self.texts, self._tags = texts, list(tags)
        self._ids = {tag: len(texts) + i for i, tag in enumerate(tags)}
        # The tags of earlier runs, and those that a user writes, may have spaces around them.
        self._stripped = {tag.strip(): i for tag, i in self._ids.items()}

    @property
    def has_pieces(self) -> bool:
        """Tells whether a text has many splits into tokens, so that `sample` returns a random one."""
        return self.texts.has_pieces

    @classmethod
    def of_lines(cls, texts: "Vocabulary", lines: Iterable[str]) -> "TaggedTexts":
        """Takes all tags of lines `text TAB tags`, most frequent first, ties in order of their code points."""
        counts = collections.Counter(tag for line in lines for tag in tags_of(line))
        return cls(texts, sorted(counts, key=lambda tag: (-counts[tag], tag)))

    def tokenize(self, text: str) -> list[str]:
        """Splits `text TAB tags` into tokens, one for each id of `encode`."""
        return [*self.texts.tokenize(text.partition("\t")[0]), SPECIAL[EOS], *map(_written, tags_of(text))]

    def text_places(self, text: str) -> slice:
        """Returns the slice of the tokens of `text TAB tags` that belong to the text."""
        return slice(len(self.texts.tokenize(text.partition("\t")[0])))

    def encode(self, text: str) -> list[int]:
        """Encodes `text TAB tags`, without BOS; EOS is between text and tags."""
        return [*self.texts.encode(text.partition("\t")[0]), EOS, *self._tag_ids(text)]

    def sample(self, texts: Sequence[str], *, alpha: float, seed: int) -> list[list[int]]:
        """Encodes `text TAB tags`, with the texts split into pieces at random, see SentencePiece.sample."""
        rows = self.texts.sample([text.partition("\t")[0] for text in texts], alpha=alpha, seed=seed)
        return [[*row, EOS, *self._tag_ids(text)] for row, text in zip(rows, texts, strict=True)]

    def _tag_ids(self, text: str) -> list[int]:
        return [self._ids.get(tag, self._stripped.get(tag.strip(), UNK)) for tag in tags_of(text)]

    def tokens(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """Returns one string for each id, including special ones, as labels for plots."""
        size = len(self.texts)
        return [self.texts.tokens([i])[0] if int(i) < size else _written(self._tags[int(i) - size]) for i in ids]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """Decodes the ids before the second EOS; PAD and BOS are skipped."""
        text, tags = split_at_eos(ids)
        return _with_tags(self.texts.decode(text), self.tokens(tags))

    def join(self, tokens: Iterable[str]) -> str:
        """Joins tokens to `text TAB tags`, or to the text if there is no tag."""
        tokens = list(tokens)
        end = tokens.index(SPECIAL[EOS]) if SPECIAL[EOS] in tokens else len(tokens)
        return _with_tags(self.texts.join(tokens[:end]), tokens[end + 1 :])

    def __len__(self) -> int:
        return len(self.texts) + len(self._tags)

    def to_json(self) -> dict:
        """Returns a dict of strings, lists and dicts for `from_json`."""
        return {"kind": self.kind, "texts": self.texts.to_json(), "tags": self._tags}

    @classmethod
    def from_json(cls, data: dict) -> "TaggedTexts":
        """Makes a vocabulary from the result of `to_json`."""
        return cls(from_json(data["texts"]), data["tags"])


def tags_of(text: str) -> list[str]:
    """Returns the tags of `text TAB tags`."""
    _, tab, tags = text.partition("\t")
    return tags.split(";") if tab else []


def split_at_eos(ids: Iterable[SupportsIndex]) -> tuple[list[int], list[int]]:
    """Returns (ids before the first EOS, ids between it and the second), without PAD and BOS."""
    ids = list(map(int, ids))
    ends = [i for i, token in enumerate(ids) if token == EOS]
    first = ends[0] if ends else len(ids)
    second = ends[1] if len(ends) > 1 else len(ids)
    kept = ([i for i in part if i not in (PAD, BOS)] for part in (ids[:first], ids[first + 1 : second]))
    return tuple(kept)


def _written(tag: str) -> str:
    return f"<{tag}>"


def _with_tags(text: str, tags: Sequence[str]) -> str:
    written = [tag if tag in SPECIAL else tag.removeprefix("<").removesuffix(">") for tag in tags]
    return f"{text}\t{';'.join(written)}" if written else text


class Questions(Words):
    """Tokens are the words of the question in `image` or `image TAB question`; `image` is the name of an image."""

    kind = "questions"

    @staticmethod
    def _split(text: str) -> list[str]:
        return text.partition("\t")[2].split()


def from_json(data: dict) -> "Vocabulary":
    """Makes a vocabulary from the result of its `to_json`.

    Raises:
        UserError: the dict describes no vocabulary.
    """
    if "kind" not in data:
        raise UserError("not a saved vocabulary: it has no 'kind'")
    return lookup(STORED, data["kind"], "vocabulary").from_json(data)


Vocabulary = Words | StoryWords | Characters | Inflections | TaggedLemmas | TaggedTexts | SentencePiece

TEXT_VOCABULARIES = {"words": Words, "characters": Characters, "sentencepiece": SentencePiece}  # for any text
VOCABULARIES = TEXT_VOCABULARIES | {
    "stories": StoryWords,
    "inflection": Inflections,
    "tagged_lemmas": TaggedLemmas,
}
STORED = VOCABULARIES | {"questions": Questions, "tagged_texts": TaggedTexts}
