"""Measures of attention weights on small examples."""

import numpy as np
import pytest

from attn_jax.errors import UserError
from attn_jax.inspection.analysis import (
    Alignment,
    agreement,
    alignment_error_rate,
    effective_support,
    entropy,
    erasure,
    first_key,
    links,
    read_talp,
)


def test_equal_weights_of_n_keys_have_entropy_log_n_and_support_n():
    weights = np.array([[0.25] * 4, [0.5, 0.5, 0, 0], [0, 0, 1, 0]])
    np.testing.assert_allclose(entropy(weights), np.log([4, 2, 1]), atol=1e-12)
    np.testing.assert_allclose(effective_support(weights), [4, 2, 1])
    np.testing.assert_allclose(effective_support(3 * weights), [4, 2, 1])  # they need not sum to one
    np.testing.assert_allclose(first_key(weights), [0.25, 0.5, 0])


def test_rows_without_weights_are_nan():
    nothing = np.zeros((2, 3))
    assert np.all(np.isnan(entropy(nothing))) and np.all(np.isnan(first_key(nothing)))


def test_agreement_is_one_minus_the_total_variation_of_all_pairs_of_heads():
    heads = np.array([[[1.0, 0, 0]], [[0.0, 1, 0]], [[0.5, 0.5, 0]]])
    np.testing.assert_allclose(agreement(heads), [(0 + 0.5 + 0.5) / 3])
    np.testing.assert_allclose(agreement(np.repeat(heads[:1], 4, axis=0)), [1])
    assert np.isnan(agreement(heads[:1]))


def test_links_in_talp_format():
    first, second = read_talp(["1-1 2p3", ""], "gold")
    assert first == Alignment(frozenset({(0, 0)}), frozenset({(0, 0), (2, 1)}))
    assert second == Alignment(frozenset(), frozenset())
    for bad in ("1-0", "1", "1-2-3", "a-1", "1:2", "1-" + 5000 * "1"):
        with pytest.raises(UserError, match=r"gold, line 2: expected links such as 1-1 or 2p3"):
            read_talp(["1-1", bad], "gold")


def test_alignment_error_rate_by_hand():
    gold = read_talp(["1-1 2-2 3p2"], "gold")
    assert alignment_error_rate([frozenset({(0, 0), (1, 1)})], gold) == 0
    # Sure: (0, 0), (1, 1); found: (0, 0), (2, 0). A and S: 1, A and P: 1, |A| + |S| = 4.
    assert alignment_error_rate([frozenset({(0, 0), (2, 0)})], gold) == 1 - 2 / 4
    # A possible link that is found costs nothing, one that is missed neither.
    assert alignment_error_rate([frozenset({(0, 0), (1, 1), (1, 2)})], gold) == 0
    assert links(np.array([[0.1, 0.9], [0, 0], [0.6, 0.4]])) == {(0, 1), (2, 0)}
    with pytest.raises(ValueError, match="2 sentences have links, but 1 were aligned"):
        alignment_error_rate([frozenset()] * 2, gold)


def test_erasure_of_what_a_model_reads_costs_more_than_of_other_words():
    sources = [[5, 1, 1, 1], [1, 1, 5, 1, 1], [5]]
    score = lambda texts: np.array([float(5 in words) for words in texts])  # noqa: E731
    looks = [np.array([[float(word == 5) for word in words]]) for words in sources]
    found = erasure(score, sources, looks)
    assert found.attended == 1 and found.random < 1 and found.num_sentences == 2
    away = [1 - weights for weights in looks]
    assert erasure(score, sources, away).attended == 0


def test_erasure_needs_a_sentence_of_two_words():
    found = erasure(lambda texts: np.zeros(len(texts)), [[4]], [np.ones((1, 1))])
    assert np.isnan(found.attended) and found.num_sentences == 0
