"""Cut points between the clusters of an adaptive softmax, by dynamic programming over a model of its cost.

The cost of a position, in products of a hidden state with the vector of a word (Grave et al. 2017, arXiv 1609.04309,
section 4.2), is

    k + J      for a short list of k words and J clusters
    p k        for a cluster of k words that holds the target with probability p

The number of clusters is given, so a constant cost per cluster does not change the choice. The model ignores that
vectors of clusters are narrower: otherwise the cheapest short list has a handful of words, and almost all words would
have narrow vectors.
"""

import numpy as np

from attn_jax.outputs.frequencies import Frequencies

GRID = 200  # cut points to choose from, at most


def cut_points(frequencies: Frequencies, num_clusters: int) -> tuple[int, ...]:
    """Returns the numbers of words before the end of the short list and of each cluster but the last.

    Args:
        frequencies: counts of the words.
        num_clusters: clusters behind the short list, fewer if there are too few words.
    """
    size = len(frequencies)
    num_clusters = min(num_clusters, size - 1)
    ends = candidates(size)
    below = np.append(0, np.cumsum(frequencies.counts[frequencies.order])) / max(frequencies.counts.sum(), 1)
    probs = below[ends][None, :] - below[ends][:, None]  # probability of the words between two cut points
    words = ends[None, :] - ends[:, None]
    cost = np.where(words > 0, probs * words, np.inf)
    # best[a]: least cost of the clusters i, i + 1, ... over the words from ends[a] on
    best, choices = np.where(ends == size, 0.0, np.inf), []
    for _ in range(num_clusters):
        total = cost + best[None, :]
        choices.insert(0, np.argmin(total, axis=1))
        best = np.min(total, axis=1)
    at, cuts = int(np.argmin(ends + num_clusters + best)), []
    for choice in choices:
        cuts.append(int(ends[at]))
        at = int(choice[at])
    return tuple(cuts)


def candidates(size: int) -> np.ndarray:
    """Returns the candidate cut points: all numbers up to `size`, or a geometric sequence for a large `size`."""
    if size <= GRID:
        return np.arange(1, size + 1)
    return np.unique(np.append(np.geomspace(1, size, GRID).astype(int), size))
