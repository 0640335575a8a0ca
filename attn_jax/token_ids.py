"""Ids that all vocabularies share: the special tokens."""

from collections.abc import Iterable
from typing import SupportsIndex

PAD, UNK, BOS, EOS = 0, 1, 2, 3
NEVER_GENERATED = (PAD, BOS)  # excluded from outputs, whatever their probability
SPECIAL = ("<pad>", "<unk>", "<bos>", "<eos>")  # tokens of the ids 0..3


def content(ids: Iterable[SupportsIndex]) -> list[int]:
    """Returns the ids before the first EOS, without PAD and BOS."""
    kept = []
    for i in map(int, ids):  # of a list, or of an array of any library
        if i == EOS:
            break
        if i not in NEVER_GENERATED:
            kept.append(i)
    return kept
