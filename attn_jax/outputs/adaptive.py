"""The adaptive softmax: a short list of frequent words, and clusters of rarer ones with narrower vectors.

    p(word) = softmax(head)[word]                               for a word of the short list
    p(word) = softmax(head)[cluster] softmax(tail)[word]        for a word of a cluster

with head = hidden H and tail_i = (hidden D_i) T_i, D_i of width d / div^i (Grave et al. 2017, arXiv 1609.04309). In
training, the tail of a cluster is computed only for positions whose target is in the cluster.
"""

import dataclasses
import itertools
from functools import partial
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.attention import loops
from attn_jax.attention.dense import product
from attn_jax.errors import UserError
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
from attn_jax.outputs.clusters import cut_points
from attn_jax.outputs.frequencies import Frequencies
from attn_jax.parts import Options, choice, option
from attn_jax.types import Array, Bool, Callable, Float, Int, PRNGKeyArray, PyTree

BLOCKS = 16  # a tail processes its positions in blocks of 1 / BLOCKS of the batch


class Ranks:
    """The order of the words in an adaptive softmax, most frequent first."""

    def __init__(self, order: np.ndarray):
        self.word = np.asarray(order, np.int32)  # word of each rank
        self.rank = np.empty_like(self.word)  # rank of each word
        self.rank[self.word] = np.arange(len(order))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranks) and np.array_equal(self.word, other.word)

    def __hash__(self) -> int:
        return hash(self.word.tobytes())


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundCutoffs(Options):
    """Options of cut points chosen by a cost model."""

    num_clusters: int = option(3, "number of clusters behind the short list", at_least=1, at_most=20)

    def of(self, frequencies: Frequencies) -> tuple[int, ...]:
        """Returns the number of words before the end of the short list and of each cluster but the last."""
        return tuple(cut_points(frequencies, self.num_clusters))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GivenCutoffs(Options):
    """Options of cut points that are given."""

    words: tuple = option(
        (), "number of words before the end of the short list and of each cluster but the last", each=int
    )

    def __post_init__(self):
        if not self.words or any(a >= b for a, b in zip((0, *self.words), self.words, strict=False)):
            raise UserError(f"model.output.cutoffs.words {self.words}: expected rising numbers of at least 1")

    def of(self, frequencies: Frequencies) -> tuple[int, ...]:
        """Returns the number of words before the end of the short list and of each cluster but the last."""
        return tuple(self.words)


CUTOFFS = {"cost": FoundCutoffs, "given": GivenCutoffs}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveOptions(OutputOptions):
    """Options of the adaptive softmax."""

    needs_counts: ClassVar[bool] = True

    cutoffs: FoundCutoffs | GivenCutoffs = choice(
        CUTOFFS, "cost", "ends of the short list and of the clusters: those of least cost, or given ones"
    )
    div_value: float = option(4.0, "factor between the widths of neighbouring clusters", at_least=1, at_most=1000)
    frequencies: str = frequencies_option()

    def build(self, setting: OutputSetting) -> "AdaptiveSoftmax":
        check_untied(setting, "adaptive")
        frequencies = frequencies_of(setting)
        cutoffs = self.cutoffs.of(frequencies)
        size = len(frequencies)
        if setting.counts is not None and not cutoffs[-1] < size:
            raise UserError(
                f"model.output.cutoffs {cutoffs}: expected less than {size}, the number of words of the vocabulary"
            )
        return AdaptiveSoftmax(
            vocab_size=size,
            ranks=Ranks(frequencies.order),
            cutoffs=cutoffs,
            div_value=self.div_value,
            dtype=setting.dtype,
        )


class AdaptiveSoftmax(OutputLayer, kw_only=True):
    """A softmax over a short list and clusters; the parameters are those of torch.nn.AdaptiveLogSoftmaxWithLoss.

    Attributes:
        ranks: order of the words by frequency.
        cutoffs: number of words before the end of the short list and of each cluster but the last.
        div_value: factor between the widths of clusters.
    """

    ranks: Ranks
    cutoffs: tuple[int, ...]
    div_value: float = 4.0

    @property
    def ends(self) -> tuple[int, ...]:
        """Number of words before the end of the short list and of each cluster."""
        return (*self.cutoffs, self.vocab_size)

    @nn.compact
    def weights(self, features: int) -> tuple[Float[Array, "d h"], list[tuple[Array, Array]]]:
        """Returns H and the pairs (D_i, T_i)."""
        init, tails = nn.initializers.lecun_normal(), []
        head = self.param("head", init, (features, self.cutoffs[0] + len(self.cutoffs)), jnp.float32)
        for i, (start, end) in enumerate(itertools.pairwise(self.ends)):
            width = max(1, int(features // self.div_value ** (i + 1)))
            down = self.param(f"down_{i}", init, (features, width), jnp.float32)
            tails.append((down, self.param(f"tail_{i}", init, (width, end - start), jnp.float32)))
        return jax.tree.map(jnp.asarray, (head, tails))

    def loss(
        self,
        hidden: Float[Array, "... d"],
        targets: Int[Array, "..."],
        embedding: Embedding = None,
        rng: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns -log p(target) as the training loss and as the negative log-likelihood."""
        rows = hidden.reshape(-1, hidden.shape[-1]).astype(self.dtype)
        rank = loops.lookup(self.ranks.rank, targets.reshape(-1))
        head, tails = self.weights(hidden.shape[-1])
        index = rank
        for i, start in enumerate(self.cutoffs):
            index = jnp.where(rank >= start, self.cutoffs[0] + i, index)
        nll = nll_of(self._product(rows, head), index)
        for (start, end), tail in zip(itertools.pairwise(self.ends), tails, strict=True):
            own = (rank >= start) & (rank < end)
            compute = loops.by_compiler(partial(for_rows, self._tail_nll))
            nll += compute(*loops.vary((tail, rows), rows, own), rank - start, own)
        nll = nll.reshape(targets.shape)
        return nll, nll

    def log_probs(self, hidden: Float[Array, "... d"], embedding: Embedding = None) -> Float[Array, "... v"]:
        """log p(word) of each word."""
        head, tails = self.weights(hidden.shape[-1])
        first = jax.nn.log_softmax(self._product(hidden, head))
        size = self.cutoffs[0]
        parts = [first[..., :size]]
        for i, tail in enumerate(tails):
            parts.append(first[..., size + i, None] + self._tail_log_probs(tail, hidden))
        return jnp.take(jnp.concatenate(parts, axis=-1), self.ranks.rank, axis=-1)

    def top_k(
        self, hidden: Float[Array, "... d"], k: int, embedding: Embedding = None
    ) -> tuple[Float[Array, "... k"], Int[Array, "... k"]]:
        """Returns (log-probabilities, words) of the k most probable words, most probable first, exactly.

        A tail is computed only if its cluster is more probable than the k-th best word so far, for some hidden state.
        """
        check_k(k, self.vocab_size)
        head, tails = self.weights(hidden.shape[-1])
        first, size = jax.nn.log_softmax(self._product(hidden, head)), self.cutoffs[0]
        best = jax.lax.top_k(
            jnp.pad(first[..., :size], [(0, 0)] * (first.ndim - 1) + [(0, max(0, k - size))], constant_values=-jnp.inf),
            k,
        )
        for i, tail in enumerate(tails):
            cluster = first[..., size + i]

            def add(carry, i=i, tail=tail, cluster=cluster):
                (values, ranks), running = carry
                log_probs = cluster[..., None] + self._tail_log_probs(tail, hidden)
                more, place = jax.lax.top_k(log_probs, min(k, log_probs.shape[-1]))
                ranks = jnp.concatenate([ranks, self.ends[i] + place], axis=-1)
                values, place = jax.lax.top_k(jnp.concatenate([values, more], axis=-1), k)
                return (values, jnp.take_along_axis(ranks, place, axis=-1)), jnp.zeros_like(running)

            # A loop of at most one iteration: unlike lax.cond, it is skipped under vmap if no row needs it.
            needed = jnp.any(cluster > best[0][..., -1])
            best, _ = loops.while_loop(lambda carry: carry[1], add, (tuple(best), needed))
        return best[0], loops.lookup(self.ranks.word, best[1])

    def _product(self, x: Float[Array, "... d"], y: Float[Array, "d c"]) -> Float[Array, "... c"]:
        return product(x, y, self.dtype)

    def _tail_log_probs(self, tail: tuple[Array, Array], hidden: Float[Array, "... d"]) -> Float[Array, "... c"]:
        down, up = tail
        return jax.nn.log_softmax(self._product(self._product(hidden, down), up))

    def _tail_nll(self, tail: tuple[Array, Array], hidden: Float[Array, "n d"], index: Int[Array, "n"]):
        down, up = tail
        return nll_of(self._product(self._product(hidden, down), up), index)


def nll_of(logits: Float[Array, "n c"], index: Int[Array, "n"]) -> Float[Array, "n"]:
    """-log softmax(logits)[index]."""
    return jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, index[:, None], axis=-1)[:, 0]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def for_rows(
    function: Callable, params: PyTree, x: Float[Array, "n d"], index: Int[Array, "n"], own: Bool[Array, "n"]
) -> Float[Array, "n"]:
    """Returns function(params, x, index) for the rows where `own` is True, and zero for the others.

    Only these rows are processed, in blocks, so the time is proportional to their number.
    """
    return _forward(function, params, x, index, own)[0]


def _blocks(own: Bool[Array, "n"]) -> tuple[Int[Array, "m"], Int[Array, ""], int]:
    """Returns (indices of the rows where `own` is True, filled up with n; number of blocks; size of a block)."""
    n = len(own)
    size = -(-n // BLOCKS)
    rows = jnp.where(own, jnp.arange(n), n)
    rows = jnp.pad(jnp.sort(rows), (0, BLOCKS * size - n), constant_values=n)
    return rows, (jnp.sum(own) + size - 1) // size, size


def _forward(function, params, x, index, own):
    rows, count, size = _blocks(own)

    def block(i, out):
        some = jax.lax.dynamic_slice_in_dim(rows, i * size, size)
        at = jnp.minimum(some, len(x) - 1)
        return out.at[some].set(function(params, x[at], index[at]), mode="drop")

    dtype = jax.eval_shape(function, params, x, index).dtype
    return loops.fori_loop(0, count, block, jnp.zeros(len(x), dtype)), (params, x, index, own)


def _backward(function, residuals, cotangent):
    params, x, index, own = residuals
    rows, count, size = _blocks(own)

    def block(i, carry):
        d_params, d_x = carry
        some = jax.lax.dynamic_slice_in_dim(rows, i * size, size)
        at = jnp.minimum(some, len(x) - 1)
        _, pull = jax.vjp(lambda params, part: function(params, part, index[at]), params, x[at])
        more, d_part = pull(jnp.where(some < len(x), cotangent[at], 0.0))
        return jax.tree.map(jnp.add, d_params, more), d_x.at[some].add(d_part, mode="drop")

    zeros = jax.tree.map(jnp.zeros_like, (params, x))
    return *loops.fori_loop(0, count, block, zeros), None, None


for_rows.defvjp(_forward, _backward)
