"""Encoding of StoryWords, padded for networks that have a memory slot for each statement."""

import numpy as np

from attn_jax.data.batching import EncodedPairs, encode_pairs, make_ragged
from attn_jax.data.facts import Stories
from attn_jax.data.pairs import Pairs
from attn_jax.data.vocabulary import PERIOD_ID, StoryWords, Vocabulary
from attn_jax.token_ids import PAD


def encode_stories(
    pairs: Pairs, source_vocabulary: StoryWords, target_vocabulary: Vocabulary, facts: Stories
) -> EncodedPairs:
    """Encodes both sides as ids, with each source padded to `facts.shortest` tokens for each of its statements.

    `facts.shortest` is the length of the shortest training statement. A network divides the length of a source by it to
    find the number of memory slots, so each statement gets a slot even if all statements are shorter than in training.
    See find_sentences in attn_jax/models/memory_networks/base.py.
    """
    encoded = encode_pairs(pairs, source_vocabulary, target_vocabulary)
    rows = np.repeat(np.arange(len(encoded)), encoded.source.lengths)
    ends = np.bincount(rows[encoded.source.tokens == PERIOD_ID], minlength=len(encoded))
    missing = ends * facts.shortest - encoded.source.lengths
    if np.all(missing <= 0):
        return encoded
    start = encoded.source.offsets
    texts = [encoded.source.tokens[start[i] : start[i + 1]].tolist() for i in range(len(encoded))]
    padded = [[*text, *[PAD] * max(0, n)] for text, n in zip(texts, missing.tolist(), strict=True)]
    return EncodedPairs(make_ragged(padded), encoded.target, encoded.evidence)
