"""Task: named splits of sentence pairs, and the vocabularies that turn them into ids."""

import dataclasses
from collections.abc import Iterable

from attn_jax.errors import UserError
from attn_jax.tasks.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Sentence pairs: source[i] and target[i] belong together.

    evidence[i], if known, holds the numbers of the statements of source[i] that support target[i], counted from 1.
    """

    source: list[str]
    target: list[str]
    evidence: list[tuple[int, ...]] | None = None

    def __post_init__(self):
        if len(self.source) != len(self.target):
            raise UserError(f"{len(self.source)} source sentences but {len(self.target)} target sentences")
        if self.evidence is not None and len(self.evidence) != len(self.source):
            raise UserError(f"{len(self.source)} source sentences but evidence of {len(self.evidence)}")

    def __len__(self) -> int:
        return len(self.source)

    def select(self, indices: Iterable) -> "Pairs":
        """Returns the pairs at `indices`, in that order."""
        indices = list(indices)
        evidence = None if self.evidence is None else [self.evidence[i] for i in indices]
        return Pairs([self.source[i] for i in indices], [self.target[i] for i in indices], evidence)


@dataclasses.dataclass(frozen=True)
class Task:
    """The data of a run: splits, vocabularies, and what is printed about them.

    Attributes:
        name: key in TASKS.
        splits: "train", "valid" and, if there is one, "test".
        source_vocabulary, target_vocabulary: trained on the training split, or those of an earlier run.
        note: counts to print, such as the number of pairs of each split.
        examples: a few inputs to try a trained model on.
    """

    name: str
    splits: dict[str, Pairs]
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    note: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[Vocabulary, Vocabulary]:
        """The part of the data that a work directory stores: the vocabularies."""
        return self.source_vocabulary, self.target_vocabulary
