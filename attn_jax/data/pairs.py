"""Sentence pairs."""

import dataclasses
from collections.abc import Iterable

from attn_jax.data.files import text_checksum
from attn_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Sentence pairs: source[i] and target[i] belong together.

    evidence[i], if known, holds the numbers of the statements of source[i] that support target[i], counted from 1.
    boxes[i], if known, holds for each word of target[i] the boxes of the objects that it names in the image source[i]:
    (left, top, right, bottom) in pixels, right and bottom exclusive.
    target_ids[i], if not None, are the ids that target[i] was decoded from, without eos: a text can have several.
    """

    source: list[str]
    target: list[str]
    evidence: list[tuple[int, ...]] | None = None
    boxes: list[tuple[tuple[tuple[int, int, int, int], ...], ...]] | None = None
    target_ids: list[tuple[int, ...] | None] | None = None

    def __post_init__(self):
        if len(self.source) != len(self.target):
            raise UserError(f"{len(self.source)} source sentences but {len(self.target)} target sentences")
        if self.evidence is not None and len(self.evidence) != len(self.source):
            raise UserError(f"{len(self.source)} source sentences but evidence of {len(self.evidence)}")
        if self.boxes is not None and len(self.boxes) != len(self.source):
            raise UserError(f"{len(self.source)} source images but boxes of {len(self.boxes)}")
        if self.target_ids is not None and len(self.target_ids) != len(self.source):
            raise UserError(f"{len(self.source)} source sentences but target ids of {len(self.target_ids)}")

    def __len__(self) -> int:
        return len(self.source)

    @property
    def checksum(self) -> int:
        """Returns the checksum of the texts."""
        return text_checksum([self.source, self.target])

    def select(self, indices: Iterable) -> "Pairs":
        """Returns the pairs at `indices`, in that order."""
        indices = list(indices)
        evidence = None if self.evidence is None else [self.evidence[i] for i in indices]
        boxes = None if self.boxes is None else [self.boxes[i] for i in indices]
        ids = None if self.target_ids is None else [self.target_ids[i] for i in indices]
        return Pairs([self.source[i] for i in indices], [self.target[i] for i in indices], evidence, boxes, ids)
