"""Counts of the words, and distributions over words computed from the counts."""

import numpy as np

NEVER_SEEN = 5  # number of words that an error names


class Frequencies:
    """Counts of the words of a vocabulary in the training targets."""

    def __init__(self, counts: np.ndarray):
        self.counts = np.asarray(counts).astype(np.int64)
        if self.counts.ndim != 1 or np.any(self.counts < 0) or np.any(self.counts != counts):
            raise ValueError("Frequencies: expected one whole number of at least 0 for each word")

    def __len__(self) -> int:
        return len(self.counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frequencies) and np.array_equal(self.counts, other.counts)

    def __hash__(self) -> int:
        return hash(self.counts.tobytes())

    @property
    def order(self) -> np.ndarray:
        """The words, most frequent first; ties in the order of the vocabulary."""
        return np.argsort(-self.counts, kind="stable")


def uniform(frequencies: Frequencies) -> np.ndarray:
    """q(w) = 1 / v."""
    return np.full(len(frequencies), 1 / len(frequencies))


def log_uniform(frequencies: Frequencies) -> np.ndarray:
    """q(w) = log((r + 2) / (r + 1)) / log(v + 1) for the word of rank r = 0, 1, ...: about Zipf's law."""
    size = len(frequencies)
    probs = np.empty(size)
    probs[frequencies.order] = np.log1p(1 / (1 + np.arange(size))) / np.log(size + 1)
    return probs


def unigram(frequencies: Frequencies, *, power: float = 1.0, smoothing: float = 0.0, reserved: int = 0) -> np.ndarray:
    """q(w) proportional to (count(w) + smoothing)^power.

    Args:
        frequencies: counts of the words.
        power: 1: the relative frequency; 0: uniform. Mikolov 2013 (arXiv 1310.4546) uses 0.75.
        smoothing: added to each count.
        reserved: number of first words (such as padding) that count at least once.

    Raises:
        ValueError: a word has probability zero, so that it would never be sampled.
    """
    counts = frequencies.counts + smoothing
    counts[:reserved] = np.maximum(counts[:reserved], 1)
    probs = np.asarray(counts, np.float64) ** power
    if missing := np.flatnonzero(probs == 0).tolist():
        some = ", ".join(map(str, missing[:NEVER_SEEN])) + (" ..." if len(missing) > NEVER_SEEN else "")
        raise ValueError(f"unigram: {len(missing)} of {len(counts)} words have the count 0 (words {some})")
    return probs / np.sum(probs)


def alias_table(probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (threshold [v], alias [v]) with which a sample of `probs` takes a fixed time for any number of words.

    Choose one of the v entries with equal probability; take it with probability threshold, else take its alias. Each
    entry holds 1 / v of the probability, of at most two words (Vose 1991, "A linear algorithm for generating random
    numbers with a given distribution").
    """
    size = len(probs)
    threshold, alias = np.asarray(probs, np.float64) * size, np.arange(size)
    small, large = list(np.flatnonzero(threshold < 1)), list(np.flatnonzero(threshold >= 1))
    while small and large:
        low, high = small.pop(), large[-1]
        alias[low] = high
        threshold[high] -= 1 - threshold[low]
        if threshold[high] < 1:
            small.append(large.pop())
    threshold[small + large] = 1.0  # what is left differs from 1 by rounding alone
    return threshold.astype(np.float32), alias.astype(np.int32)
