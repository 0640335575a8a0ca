"""The groups of sentence lengths that BLEU is compared over."""

import itertools

import numpy as np

from experiments.attention_gap import groups_by_length


def test_groups_cover_every_sentence_once_and_share_no_length():
    lengths = np.random.default_rng(0).integers(3, 20, 200)
    groups = groups_by_length(lengths, 4)
    assert sorted(np.concatenate(groups)) == list(range(200))
    assert all(lengths[a].max() < lengths[b].min() for a, b in itertools.pairwise(groups))
    assert len(groups) == 4 and min(map(len, groups)) > 20
