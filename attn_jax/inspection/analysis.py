"""Measures of attention weights: effective number of keys, agreement of heads, alignment, and effect of erasure.

All functions take weights as arrays [..., q, k], rows of queries over keys, with zeros for masked keys. Rows whose
weights are all zero (no key, or padding) have nan in measures per row and are left out of means.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from attn_jax.errors import UserError
from attn_jax.types import Bool, Float, Int

WORD_NUMBER = re.compile("0*[1-9][0-9]{0,8}")  # at most 9 digits: no sentence has more words


def entropy(weights: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "..."]:
    """Computes the entropy of each row in nats, -sum_i p_i log p_i with p = |w| / sum |w|."""
    probs = _normalized(weights)
    return -np.sum(probs * np.log(np.where(probs > 0, probs, 1.0)), axis=-1)


def effective_support(weights: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "..."]:
    """Computes exp(entropy): the number of keys in a row of equal weights with the same entropy."""
    return np.exp(entropy(weights))


def first_key(weights: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "..."]:
    """Returns the weight of the first key, the "attention sink" (Xiao 2024, arXiv 2309.17453)."""
    return np.where(_is_empty(weights), np.nan, weights[..., 0])


def agreement(weights: Float[np.ndarray, "... h q k"]) -> Float[np.ndarray, "... q"]:
    """Computes the mean overlap sum_i min(p_i, p'_i) of the rows of all pairs of heads: 1 if equal, 0 if disjoint.

    The overlap is one minus the total variation distance. nan for a single head.
    """
    probs, heads = _normalized(weights), weights.shape[-3]
    pairs = [np.minimum(probs[..., i, :, :], probs[..., j, :, :]).sum(-1) for i in range(heads) for j in range(i)]
    return np.mean(pairs, axis=0) if pairs else np.full((*weights.shape[:-3], weights.shape[-2]), np.nan)


def _is_empty(weights: Float[np.ndarray, "... k"]) -> Bool[np.ndarray, "..."]:
    return np.sum(np.abs(weights), axis=-1) == 0


def _normalized(weights: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "... k"]:
    """Returns |w| / sum |w| in float64; nan where all weights are zero."""
    size = np.abs(np.asarray(weights, np.float64))
    total = np.sum(size, axis=-1, keepdims=True)
    return size / np.where(total > 0, total, np.nan)


class Alignment(NamedTuple):
    """Gold links (query, key) of a sentence, counted from 0: sure links, and possible links, which include the sure."""

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


def read_talp(lines: Sequence[str], name: str) -> list[Alignment]:
    """Reads gold alignments in Talp format, a sentence per line: "1-1 2p3" are source and target words, p: possible.

    Links become (target word, source word), like (query, key) of weights.

    Raises:
        UserError: a line of the file `name` is malformed.
    """
    found = []
    for number, line in enumerate(lines, 1):
        sure, possible = set(), set()
        for link in line.split():
            kind = "p" if "p" in link.lower() else "-"
            sides = link.lower().split(kind)
            if len(sides) != 2 or not all(WORD_NUMBER.fullmatch(side) for side in sides):
                raise UserError(f"{name}, line {number}: expected links such as 1-1 or 2p3, words from 1, got {link!r}")
            source, target = (int(side) - 1 for side in sides)
            possible.add((target, source))
            if kind == "-":
                sure.add((target, source))
        found.append(Alignment(frozenset(sure), frozenset(possible)))
    return found


def links(weights: Float[np.ndarray, "q k"]) -> frozenset[tuple[int, int]]:
    """Returns the link of each query to its key of largest weight; queries without weights have none."""
    best = np.argmax(weights, axis=-1)
    return frozenset((q, int(best[q])) for q in np.flatnonzero(~_is_empty(weights)).tolist())


def alignment_error_rate(found: Sequence[frozenset[tuple[int, int]]], gold: Sequence[Alignment]) -> float:
    """Computes AER = 1 - (|A and S| + |A and P|) / (|A| + |S|) over all sentences (Och & Ney 2003, section 5).

    A are the links found, S the sure and P the possible gold links.

    Raises:
        ValueError: the numbers of sentences differ.
    """
    if len(found) != len(gold):
        raise ValueError(f"{len(found)} sentences have links, but {len(gold)} were aligned")
    pairs = list(zip(found, gold, strict=True))
    hits = sum(len(a & g.sure) + len(a & g.possible) for a, g in pairs)
    total = sum(len(a) + len(g.sure) for a, g in pairs)
    return 1 - hits / total if total else float("nan")


class Erasure(NamedTuple):
    """Mean drop of log p(target | source) when a share of the source words is removed."""

    attended: float  # the words with the largest weights
    random: float  # as many words, chosen at random among all
    num_sentences: int  # sentences with at least two words


def erasure(
    score: Callable[[list[list[int]]], Float[np.ndarray, "b"]],
    sources: Sequence[Sequence[int]],
    weights: Sequence[np.ndarray],
    *,
    share: float = 0.2,
    seed: int = 0,
) -> Erasure:
    """Removes the most attended words, or as many random words, and compares the drops of log p(target | source).

    If weights show which words the model uses, the first drop is larger ("comprehensiveness" of DeYoung 2020, arXiv
    1911.03429, section 4; Serrano & Smith 2019, arXiv 1906.03731). Words are ranked by the sum of their weights over
    the queries. At least one word is removed, and at least one is kept.

    Args:
        score: changed sources of all sentences, in order -> log p(target | source) of each.
        sources: ids of the words of each sentence, without eos.
        weights: [q, k] of each sentence; columns beyond its words are not used.
        share: share of the words to remove; the number is rounded up.
        seed: seed of the random choice.
    """
    rng = np.random.default_rng(seed)
    without_attended, without_random = [], []
    for words, rows in zip(sources, weights, strict=True):
        count = min(max(1, int(np.ceil(share * len(words)))), len(words) - 1)
        order = np.argsort(-np.sum(rows[:, : len(words)], axis=0), kind="stable")
        without_attended.append(_without(words, order[: max(count, 0)]))
        without_random.append(_without(words, rng.permutation(len(words))[: max(count, 0)]))
    counted = np.array([len(words) >= 2 for words in sources])
    if not counted.any():
        return Erasure(float("nan"), float("nan"), 0)
    before = score([list(words) for words in sources])
    losses = [float(np.mean((before - score(changed))[counted])) for changed in (without_attended, without_random)]
    return Erasure(*losses, int(counted.sum()))


def _without(words: Sequence[int], removed: Int[np.ndarray, "n"]) -> list[int]:
    gone = set(removed.tolist())
    return [word for i, word in enumerate(words) if i not in gone]
