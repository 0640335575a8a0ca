"""Model sizes that the data determines."""

from typing import Any, NamedTuple

import numpy as np

from attn_jax.token_ids import UNK


class TextSizes(NamedTuple):
    """Sizes of texts."""

    source_vocab_size: int
    target_vocab_size: int
    longest_story: int | None = None  # statements; None: the texts are no stories
    shortest_statement: int = 1  # tokens, the period included
    target_counts: np.ndarray | None = None  # of each word in the training targets; None: not counted
    has_tags: bool = False  # sources are "text eos tags"
    # Height, width and channels of sources that are images, with the question as source text; None: only texts.
    image: tuple[int, int, int] | None = None
    copies: tuple[int, ...] = ()  # target id of each source id, for a pointer; (): the same ids


class PointSizes(NamedTuple):
    """Sizes of a regression."""

    features: int  # input columns
    count: int  # training points


def text_sizes(source_vocabulary: Any, target_vocabulary: Any, **facts: Any) -> TextSizes:
    """Returns the sizes that two vocabularies and the `facts` of stories or images determine."""
    return TextSizes(
        source_vocab_size=len(source_vocabulary),
        target_vocab_size=len(target_vocabulary),
        target_counts=target_vocabulary.counts,
        has_tags=source_vocabulary.has_tags,
        **facts,
        copies=copies_of(source_vocabulary, target_vocabulary),
    )


def copies_of(source_vocabulary: Any, target_vocabulary: Any) -> tuple[int, ...]:
    """Returns the target id of each source id, UNK for a token missing in the target; () if all ids are the same."""
    source, target = (
        vocabulary.tokens(range(len(vocabulary))) for vocabulary in (source_vocabulary, target_vocabulary)
    )
    if source == target:
        return ()
    ids = {token: i for i, token in enumerate(target)}
    return tuple(ids.get(token, UNK) for token in source)
