"""What a task is: named splits of sentence pairs, and the vocabularies that turn them into ids."""

import dataclasses
from collections.abc import Iterable

from attn_jax.errors import UserError
from attn_jax.tasks.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Sentence pairs: source[i] and target[i] belong together.

    Where it is known what a target rests on, evidence[i] has the numbers of these statements of source[i]; the first
    statement is number 1.
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
        """The pairs at `indices`, in that order."""
        indices = list(indices)
        evidence = None if self.evidence is None else [self.evidence[i] for i in indices]
        return Pairs([self.source[i] for i in indices], [self.target[i] for i in indices], evidence)


@dataclasses.dataclass(frozen=True)
class Task:
    """Everything about the data that a model or a trainer may ask for.

    Attributes:
        name: as in TASKS.
        splits: "train" and "valid", and "test" where there is one.
        source_vocabulary, target_vocabulary: trained on the training split, or given.
        note: counts worth a line in the log, such as the number of pairs of each split.
        examples: a few inputs to show what a trained model can do.
    """

    name: str
    splits: dict[str, Pairs]
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    note: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[Vocabulary, Vocabulary]:
        """What a work directory has to keep of the data, and a model is built from."""
        return self.source_vocabulary, self.target_vocabulary
