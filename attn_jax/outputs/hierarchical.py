"""The hierarchical softmax: a word is a path of binary decisions in a tree.

    p(word | hidden) = prod over the inner nodes i above the word of sigmoid(+-(w_i hidden + b_i))

with + where the path goes right (Goodman 2001; Morin & Bengio 2005; Mnih & Hinton 2008). The loss of a word needs as
many scores as its depth, about log2 v, instead of v.
"""

import dataclasses
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.attention import loops
from attn_jax.layers.rows import RowTable
from attn_jax.outputs.base import (
    Embedding,
    OutputLayer,
    OutputOptions,
    OutputSetting,
    check_k,
    check_untied,
    frequencies_of,
    frequencies_option,
)
from attn_jax.outputs.trees import TREES, Tree
from attn_jax.parts import option
from attn_jax.types import Array, Bool, Float, Int, PRNGKeyArray, wide

FRONTIER = 64  # largest number of nodes in the search for the best words, per word to find


@dataclasses.dataclass(frozen=True, kw_only=True)
class HierarchicalOptions(OutputOptions):
    """Options of the hierarchical softmax."""

    needs_counts: ClassVar[bool] = True

    tree: str = option("huffman", "binary tree over the words", choices=TREES)
    frequencies: str = frequencies_option()

    def build(self, setting: OutputSetting) -> "HierarchicalSoftmax":
        check_untied(setting, "hierarchical")
        tree = TREES[self.tree](frequencies_of(setting))
        return HierarchicalSoftmax(vocab_size=tree.vocab_size, tree=tree, dtype=setting.dtype)


class HierarchicalSoftmax(OutputLayer, kw_only=True):
    """A binary tree of logistic regressions; words have no vectors.

    Attributes:
        tree: the tree of the words.
    """

    tree: Tree

    @nn.compact
    def tables(self, features: int) -> tuple[RowTable, RowTable]:
        """Returns w [v - 1, d] and b [v - 1]."""
        size = self.vocab_size - 1
        vectors = self.param("table", nn.initializers.normal(features**-0.5), (size, features), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (size,), jnp.float32)
        return RowTable(self, "table", vectors), RowTable(self, "bias", bias)

    def scores(self, hidden: Float[Array, "... d"], nodes: Int[Array, "... m"]) -> Float[Array, "... m"]:
        """Returns w_i hidden + b_i for some inner nodes of each hidden state."""
        vectors, bias = self.tables(hidden.shape[-1])
        products = jnp.einsum("...d,...md->...m", hidden.astype(self.dtype), vectors.take(nodes).astype(self.dtype))
        return wide(products) + bias.take(nodes)

    def loss(
        self,
        hidden: Float[Array, "... d"],
        targets: Int[Array, "..."],
        embedding: Embedding = None,
        rng: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns -log p(target) as the training loss and as the negative log-likelihood."""
        nodes, right, real = self.path(targets)
        scores = self.scores(hidden, jnp.where(real, nodes, 0))
        nll = -jnp.sum(jnp.where(real, jax.nn.log_sigmoid(jnp.where(right, scores, -scores)), 0.0), axis=-1)
        return nll, nll

    def path(self, words: Int[Array, "..."]) -> tuple[Int[Array, "... m"], Bool[Array, "... m"], Bool[Array, "... m"]]:
        """Returns the paths from words to the root: (inner nodes, whether it goes right, whether the node exists)."""
        parent, is_right = jnp.asarray(self.tree.parent), jnp.asarray(self.tree.is_right)
        node, nodes, right = words, [], []
        for _ in range(int(np.max(self.tree.depths()))):
            above = jnp.where(node >= 0, loops.lookup(parent, node), -1)
            nodes.append(above)
            right.append(loops.lookup(is_right, node))
            node = jnp.where(above >= 0, self.vocab_size + above, -1)
        nodes = jnp.stack(nodes, axis=-1)
        return nodes, jnp.stack(right, axis=-1), nodes >= 0

    def log_probs(self, hidden: Float[Array, "... d"], embedding: Embedding = None) -> Float[Array, "... v"]:
        """log p(word) of each word.

        The log-probabilities of the edges are summed by doubling: after r rounds each node has the sum of the 2^r edges
        above it.
        """
        vectors, bias = (table.whole() for table in self.tables(hidden.shape[-1]))
        scores = wide(jnp.matmul(hidden.astype(self.dtype), vectors.T.astype(self.dtype)))
        scores = scores + jnp.broadcast_to(bias, scores.shape)
        parent = np.append(self.tree.parent[:-1], 0)
        steps = jnp.take(scores, parent, axis=-1)
        sign = jnp.where(self.tree.is_right, 1, -1).astype(steps.dtype)
        edges = jax.nn.log_sigmoid(steps * jnp.broadcast_to(sign, steps.shape))
        root = len(parent) - 1
        sums = edges.at[..., root].set(0.0)
        above = np.append(self.vocab_size + self.tree.parent[:-1], root)
        while np.any(above[: self.vocab_size] != root):
            sums = sums + jnp.take(sums, above, axis=-1)
            above = above[above]
        return sums[..., : self.vocab_size]

    def nll_and_correct(
        self, hidden: Float[Array, "... d"], targets: Int[Array, "..."], embedding: Embedding = None
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns (-log p(target), 1 where the target is the most probable word, else 0), without computing all words.

        In a tie the word that the search finds first counts.
        """
        _, nll = self.loss(hidden, targets)
        _, words = self.top_k(hidden, 1)
        return nll, (words[..., 0] == targets).astype(jnp.float32)

    def top_k(
        self, hidden: Float[Array, "... d"], k: int, embedding: Embedding = None
    ) -> tuple[Float[Array, "... k"], Int[Array, "... k"]]:
        """Returns (log-probabilities, words) of the k most probable words, most probable first, exactly.

        A word is never more probable than a node above it. So the search keeps a set of nodes that covers all words,
        replaces the inner nodes among the k most probable nodes by their children, and ends when these k are words.
        """
        check_k(k, self.vocab_size)
        rows = hidden.reshape(-1, hidden.shape[-1])
        found = self._search(rows, k)
        return tuple(x.reshape(*hidden.shape[:-1], k) for x in found)

    def _search(self, hidden: Float[Array, "n d"], k: int) -> tuple[Float[Array, "n k"], Int[Array, "n k"]]:
        tables = (table.whole() for table in self.tables(hidden.shape[-1]))
        size, children = FRONTIER * k, jnp.asarray(self.tree.children)

        @loops.by_compiler
        def search(hidden, vectors, bias):
            n, row = len(hidden), jnp.arange(len(hidden))[:, None]

            def best(log_probs, nodes):
                values, place = jax.lax.top_k(log_probs, k)
                chosen = jnp.take_along_axis(nodes, place, axis=1)
                return values, chosen, place, (chosen >= self.vocab_size) & (values > -jnp.inf)

            def expand(carry):
                log_probs, nodes, count, _ = carry
                values, chosen, place, is_inner = best(log_probs, nodes)
                inner = jnp.where(is_inner, chosen - self.vocab_size, 0)
                products = jnp.einsum("nd,nkd->nk", hidden.astype(self.dtype), vectors[inner].astype(self.dtype))
                scores = wide(products) + bias[inner]
                left, right = (values + jax.nn.log_sigmoid(sign * scores) for sign in (-1, 1))
                # The left child takes the place of its parent, the right child a new place.
                new = jnp.where(is_inner, count[:, None] + jnp.cumsum(is_inner, axis=1, dtype=jnp.int32) - 1, size)
                log_probs = log_probs.at[row, place].set(jnp.where(is_inner, left, values))
                nodes = nodes.at[row, place].set(jnp.where(is_inner, children[inner, 0], chosen))
                log_probs = log_probs.at[row, new].set(right, mode="drop")
                nodes = nodes.at[row, new].set(children[inner, 1], mode="drop")
                count = count + jnp.sum(is_inner, axis=1, dtype=jnp.int32)
                busy = jnp.any(best(log_probs, nodes)[3], axis=1) & (count <= size)
                return log_probs, nodes, count, busy

            root = 2 * self.vocab_size - 2
            carry = (
                jnp.full((n, size), -jnp.inf, jnp.promote_types(self.dtype, jnp.float32)).at[:, 0].set(0.0),
                jnp.full((n, size), root, jnp.int32),
                jnp.ones(n, jnp.int32),
                jnp.ones(n, bool),
            )
            log_probs, nodes, count, _ = loops.while_loop(lambda carry: jnp.any(carry[3]), expand, carry)
            return *best(log_probs, nodes)[:2], count

        values, words, count = search(hidden, *tables)
        # A flat distribution can need more nodes than fit; then all words are computed.
        everything = lambda carry: (*jax.lax.top_k(self.log_probs(hidden), k), jnp.zeros_like(carry[2]))  # noqa: E731
        return loops.while_loop(lambda carry: carry[2], everything, (values, words, jnp.any(count > size)))[:2]
