"""Options of the vocabularies in TEXT_VOCABULARIES, for text tasks."""

import dataclasses
from collections.abc import Iterable
from typing import ClassVar

from attn_jax.data.pieces import MODEL_TYPES
from attn_jax.data.vocabulary import TEXT_VOCABULARIES, Vocabulary
from attn_jax.parts import Options, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyChoice(Options):
    """Base of the options of a vocabulary; the defaults of options that a vocabulary lacks are never read.

    Attributes:
        name: key in TEXT_VOCABULARIES.
        min_count, model, sample: see the options of the same name below.
    """

    name: ClassVar[str]
    min_count: ClassVar[int] = 1
    model: ClassVar[str] = MODEL_TYPES[0]
    sample: ClassVar[float] = 0.0

    def train(self, texts: Iterable[str], vocab_size: int) -> Vocabulary:
        """Makes the vocabulary of training texts; raises a UserError if it cannot have this size."""
        kind = TEXT_VOCABULARIES[self.name]
        return kind.train(texts, vocab_size=vocab_size, min_count=self.min_count, model_type=self.model)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordsOptions(VocabularyChoice):
    """Options of a vocabulary of words."""

    name: ClassVar[str] = "words"

    min_count: int = option(2, "words seen less often than this in training become unk", at_least=0, afterwards=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CharactersOptions(VocabularyChoice):
    """Options of a vocabulary of code points."""

    name: ClassVar[str] = "characters"

    min_count: int = option(
        2, "characters seen less often than this in training become unk", at_least=0, afterwards=False
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PiecesOptions(VocabularyChoice):
    """Options of a vocabulary of subword pieces."""

    name: ClassVar[str] = "sentencepiece"

    model: str = option(MODEL_TYPES[0], "type of sentencepiece model", choices=MODEL_TYPES, afterwards=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledPiecesOptions(PiecesOptions):
    """Options of a vocabulary of subword pieces, with random splits in training."""

    sample: float = option(
        0.0,
        "training splits texts at random: bpe leaves out a merge with this probability, unigram takes one of the best "
        "splits with its probability to this power; 0: the best split",
        at_least=0,
        at_most=1,
        afterwards=False,
    )


VOCABULARY_OPTIONS = {kind.name: kind for kind in (WordsOptions, CharactersOptions, PiecesOptions)}
SAMPLED_OPTIONS = VOCABULARY_OPTIONS | {"sentencepiece": SampledPiecesOptions}
