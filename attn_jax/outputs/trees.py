"""Binary trees over words, as arrays, for the hierarchical softmax."""

import heapq
from collections.abc import Callable

import numpy as np

from attn_jax.outputs.frequencies import Frequencies


class Tree:
    """A binary tree with v leaves, the words, and v - 1 inner nodes; the last inner node is the root.

    Nodes 0 ... v - 1 are the words, node v + i is inner node i. `parent` holds the inner node above each node, and
    `is_right` whether the node is its right child; for the root they are -1 and False.
    """

    def __init__(self, parent: np.ndarray, is_right: np.ndarray):
        self.parent, self.is_right = np.asarray(parent, np.int32), np.asarray(is_right, bool)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return False
        return np.array_equal(self.parent, other.parent) and np.array_equal(self.is_right, other.is_right)

    def __hash__(self) -> int:
        return hash((self.parent.tobytes(), self.is_right.tobytes()))

    @property
    def vocab_size(self) -> int:
        """Number of words."""
        return (len(self.parent) + 1) // 2

    @property
    def children(self) -> np.ndarray:
        """The left and right child of each inner node [v - 1, 2], as nodes."""
        children = np.empty((self.vocab_size - 1, 2), np.int32)
        nodes = np.arange(len(self.parent) - 1)
        children[self.parent[nodes], self.is_right[nodes].astype(int)] = nodes
        return children

    def depths(self) -> np.ndarray:
        """Returns the number of inner nodes above each word [v]."""
        depth = np.zeros(self.vocab_size, np.int64)
        node = np.arange(self.vocab_size)
        while np.any(above := self.parent[node] >= 0):
            depth += above
            node = np.where(above, self.vocab_size + self.parent[node], node)
        return depth


def huffman(frequencies: Frequencies) -> Tree:
    """The tree with the smallest mean depth (Huffman 1952), which is between H and H + 1 bits for entropy H.

    Words of count 0 are joined first.
    """
    counts = frequencies.counts.tolist()
    size = len(counts)
    heap = [(count, word) for word, count in enumerate(counts)]
    heapq.heapify(heap)
    parent, is_right = np.full(2 * size - 1, -1), np.zeros(2 * size - 1, bool)
    for inner in range(size - 1):
        (low, left), (high, right) = heapq.heappop(heap), heapq.heappop(heap)
        parent[[left, right]], is_right[right] = inner, True
        heapq.heappush(heap, (low + high, size + inner))
    return Tree(parent, is_right)


def balanced(frequencies: Frequencies) -> Tree:
    """A tree of depth ceil(log2 v) over the words, in the order of the vocabulary."""
    return divide(np.arange(len(frequencies)), lambda start, stop: (start + stop) // 2)


def by_frequency(frequencies: Frequencies) -> Tree:
    """Divides the words, most frequent first, recursively into two groups of about equal counts (Fano 1949).

    The words of a branch have similar frequencies.
    """
    order = frequencies.order
    before = np.concatenate([[0], np.cumsum(frequencies.counts[order])])

    def middle(start: int, stop: int) -> int:
        half = (before[start] + before[stop]) / 2
        if half == before[start]:  # all counts are zero
            return (start + stop) // 2
        cut = int(np.searchsorted(before, half))
        cut -= int(half - before[cut - 1] < before[cut] - half)
        return min(max(int(cut), start + 1), stop - 1)

    return divide(order, middle)


def divide(words: np.ndarray, middle: Callable[[int, int], int]) -> Tree:
    """Makes a tree by dividing words[start:stop] at middle(start, stop) until each part is one word."""
    size = len(words)
    parent, is_right = np.full(2 * size - 1, -1), np.zeros(2 * size - 1, bool)
    parts, inner = [(0, size, -1, False)], size - 2  # inner nodes are numbered from the root, which is the last
    while parts:
        start, stop, above, right = parts.pop()
        node = int(words[start]) if stop - start == 1 else size + inner
        parent[node], is_right[node] = above, right
        if stop - start > 1:
            cut = middle(start, stop)
            parts += [(start, cut, inner, False), (cut, stop, inner, True)]
            inner -= 1
    return Tree(parent, is_right)


TREES = {"huffman": huffman, "frequency": by_frequency, "balanced": balanced}
