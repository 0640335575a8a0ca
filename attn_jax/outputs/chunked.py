"""Exact cross entropy over a large vocabulary whose memory does not depend on the vocabulary.

    nll_n = log sum_v exp(logits_nv) - logits_ny,        logits = hidden table + bias

The words are processed in chunks. The forward pass keeps a running maximum and sum for each position, as in flash
attention; the backward pass recomputes the logits of each chunk. Neither stores the logits of more than one chunk, at
the cost of a fourth matrix product besides the three of the full softmax (Wijmans et al. 2025, "Cut Your Losses in
Large-Vocabulary Language Models", arXiv 2411.09009).
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attn_jax.attention import loops
from attn_jax.attention.dense import outer_products, transposed, wide_product
from attn_jax.outputs.base import Embedding, OutputOptions, OutputSetting, check_k, smoothing_option
from attn_jax.outputs.full import FullSoftmax, full_fields
from attn_jax.parts import option
from attn_jax.types import Array, Float, Int, PRNGKeyArray, PyTree, widest


class ChunkedSoftmax(FullSoftmax, kw_only=True):
    """The full softmax with the memory of `chunk_size` words: equal parameters, values and gradients.

    In bfloat16 they are equal up to rounding: sums are in float32 here, while the full layer rounds each logit, but
    on a CPU.

    Attributes:
        chunk_size: words computed at once.
    """

    chunk_size: int = 8192

    def loss(
        self,
        hidden: Float[Array, "... d"],
        targets: Int[Array, "..."],
        embedding: Embedding = None,
        rng: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns (training loss, negative log-likelihood) of each target, see FullSoftmax.loss."""
        rows, table, bias, axis = self._flat(hidden, embedding)
        rows, table, bias = loops.vary((rows, table, bias), targets)
        losses = cross_entropy(rows, table, bias, targets.reshape(-1), axis, self.chunk_size, self.label_smoothing)
        return tuple(x.reshape(targets.shape) for x in losses)

    def top_k(
        self, hidden: Float[Array, "... d"], k: int, embedding: Embedding = None
    ) -> tuple[Float[Array, "... k"], Int[Array, "... k"]]:
        """Returns (log-probabilities, words) of the k most probable words, most probable first."""
        check_k(k, self.vocab_size)
        rows, table, bias, axis = self._flat(hidden, embedding)
        found = top_words(rows, table, bias, k=k, axis=axis, chunk=self.chunk_size)
        return tuple(x.reshape(*hidden.shape[:-1], k) for x in found)

    def nll_and_correct(
        self, hidden: Float[Array, "... d"], targets: Int[Array, "..."], embedding: Embedding = None
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns (-log p(target), 1 where the target is the most probable word, else 0); the first word wins a tie."""
        rows, table, bias, axis = self._flat(hidden, embedding)
        sums = scan_words(rows, table, bias, targets.reshape(-1), axis=axis, chunk=self.chunk_size)
        largest, total, target, best = (x.reshape(targets.shape) for x in sums)
        return largest + jnp.log(total) - target, (targets == best).astype(jnp.float32)

    def _flat(self, hidden: Float[Array, "... d"], embedding: Embedding):
        """Returns (hidden [n, d], table, bias [v], axis)."""
        table, bias, axis = self.linear(hidden.shape[-1], embedding)
        bias = jnp.zeros(self.vocab_size, table.dtype) if bias is None else bias
        return hidden.reshape(-1, hidden.shape[-1]).astype(self.dtype), table, bias, axis


class Chunk:
    """Consecutive words of a table [v, d] (`axis` 0) or [d, v] (`axis` 1)."""

    def __init__(self, table: Array, bias: Array, axis: int, start: Int[Array, ""] | int, size: int):
        self.axis, self.start, self.size = axis, start, size
        self.table = jax.lax.dynamic_slice_in_dim(table, start, size, axis)
        self.bias = jax.lax.dynamic_slice_in_dim(bias, start, size)

    def logits(self, hidden: Float[Array, "n d"]) -> Float[Array, "n c"]:
        """Logits of the words of the chunk, in float32 at least."""
        words = self.table if self.axis else self.table.T
        return wide_product(hidden, words.astype(hidden.dtype)) + self.bias[None]

    def is_target(self, targets: Int[Array, "n"]) -> Array:
        """True where a word is the target of a position [n, c]."""
        return targets[:, None] == self.start + jnp.arange(self.size)[None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunkedOptions(OutputOptions):
    """Options of the softmax in chunks."""

    chunk_size: int = option(8192, "number of words whose logits are in memory at a time", at_least=1)
    label_smoothing: float = smoothing_option()

    def build(self, setting: OutputSetting) -> ChunkedSoftmax:
        fields = full_fields(setting)
        return ChunkedSoftmax(chunk_size=self.chunk_size, label_smoothing=self.label_smoothing, **fields)

    def stored_logits(self, vocab_size: int) -> int:
        return min(self.chunk_size, vocab_size)


def over_chunks(step, carry: PyTree, table: Array, bias: Array, *, axis: int, chunk: int) -> PyTree:
    """Runs step(carry, Chunk) -> carry over all words, `chunk` words at a time; the last chunk may be smaller."""
    vocab_size = table.shape[axis]
    chunk = min(chunk, vocab_size)
    whole = vocab_size // chunk

    def body(i, carry):
        return step(carry, Chunk(table, bias, axis, i * chunk, chunk))

    carry = loops.fori_loop(0, whole, body, carry)
    if rest := vocab_size - whole * chunk:
        carry = step(carry, Chunk(table, bias, axis, whole * chunk, rest))
    return carry


@partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def cross_entropy(
    hidden: Float[Array, "n d"],
    table: Float[Array, "..."],
    bias: Float[Array, "v"],
    targets: Int[Array, "n"],
    axis: int,
    chunk: int,
    smoothing: float = 0.0,
) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    """Returns (loss, nll) of each target without storing the logits: nll = -log softmax(hidden table + bias)[target].

    Args:
        hidden: hidden states, in the type of the products.
        table: vectors of the words, [v, d] with `axis` 0 or [d, v] with `axis` 1.
        bias: one number for each word.
        targets: a word for each hidden state.
        axis: the axis of `table` that counts the words.
        chunk: the number of words whose logits are stored at a time.
        smoothing: e in loss = (1 - e) nll + e mean_v(-log p_v).
    """
    return _forward(hidden, table, bias, targets, axis, chunk, smoothing)[0]


def _forward(hidden, table, bias, targets, axis, chunk, smoothing):
    sums = scan_words(hidden, table, bias, targets, axis=axis, chunk=chunk)
    log_normalizer = sums.largest + jnp.log(sums.total)
    nll = log_normalizer - sums.target
    loss = nll
    if smoothing:  # the mean of the logits is linear in the vectors
        mean = wide_product(hidden, jnp.mean(table, axis=axis).astype(hidden.dtype)[:, None])[:, 0] + jnp.mean(bias)
        loss = (1 - smoothing) * nll + smoothing * (log_normalizer - mean)
    return (loss, nll), (hidden, table, bias, targets, log_normalizer)


class Sums(NamedTuple):
    """Sums over the words for each position."""

    largest: Float[Array, "n"]  # m = max_v logit_v
    total: Float[Array, "n"]  # sum_v exp(logit_v - m)
    target: Float[Array, "n"]  # logit of the target
    best: Int[Array, "n"]  # the first word whose logit is m; used only in evaluation


def scan_words(
    hidden: Float[Array, "n d"],
    table: Float[Array, "..."],
    bias: Float[Array, "v"],
    targets: Int[Array, "n"],
    *,
    axis: int,
    chunk: int,
) -> Sums:
    """Computes the sums over all words."""

    def step(carry, part):
        largest, total, target, best = carry
        logits = part.logits(hidden)
        first = (part.start + jnp.argmax(logits, axis=1)).astype(jnp.int32)
        best = jnp.where(jnp.max(logits, axis=1) > largest, first, best)
        largest, total = add_to_sum(largest, total, logits)
        return largest, total, target + jnp.sum(jnp.where(part.is_target(targets), logits, 0.0), axis=1), best

    nothing = jnp.zeros_like(hidden[:, 0], widest(hidden))
    start = nothing - jnp.inf, nothing, nothing, nothing.astype(jnp.int32)
    return Sums(*over_chunks(step, start, table, bias, axis=axis, chunk=chunk))


def add_to_sum(
    largest: Float[Array, "n"], total: Float[Array, "n"], logits: Float[Array, "n c"]
) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    """Adds exp(logits) to sums that are stored as total * exp(largest)."""
    new = jnp.maximum(largest, jnp.max(logits, axis=1))
    return new, total * jnp.exp(largest - new) + jnp.sum(jnp.exp(logits - new[:, None]), axis=1)


def _backward(axis, chunk, smoothing, residuals, cotangents):
    hidden, table, bias, targets, log_normalizer = residuals
    of_loss, of_nll = cotangents
    of_probs, of_target = (of_loss + of_nll)[:, None], ((1 - smoothing) * of_loss + of_nll)[:, None]
    of_all = smoothing / bias.shape[0] * of_loss[:, None]

    def step(carry, part):
        d_hidden, d_table, d_bias = carry
        probs = jnp.exp(part.logits(hidden) - log_normalizer[:, None])
        d_logits = probs * of_probs - jnp.where(part.is_target(targets), of_target, 0.0)
        d_logits = d_logits - of_all if smoothing else d_logits
        narrow, words = d_logits.astype(hidden.dtype), part.table.astype(hidden.dtype)
        d_hidden += wide_product(narrow, transposed(words) if axis else words)
        d_words = outer_products(hidden, narrow) if axis else outer_products(narrow, hidden)
        d_table = jax.lax.dynamic_update_slice_in_dim(d_table, d_words.astype(table.dtype), part.start, axis)
        d_bias = jax.lax.dynamic_update_slice_in_dim(d_bias, jnp.sum(d_logits, axis=0), part.start, 0)
        return d_hidden, d_table, d_bias

    start = jnp.zeros(hidden.shape, widest(hidden)), jnp.zeros_like(table), jnp.zeros_like(bias)
    d_hidden, d_table, d_bias = over_chunks(step, start, table, bias, axis=axis, chunk=chunk)
    return d_hidden.astype(hidden.dtype), d_table, d_bias, None


cross_entropy.defvjp(_forward, _backward)


def top_words(
    hidden: Float[Array, "n d"], table: Float[Array, "..."], bias: Float[Array, "v"], *, k: int, axis: int, chunk: int
) -> tuple[Float[Array, "n k"], Int[Array, "n k"]]:
    """Returns (log-probabilities, words) of the k most probable words, most probable first.

    In a tie the first words are taken, as by jax.lax.top_k over the whole vocabulary.
    """

    def step(carry, part):
        largest, total, values, words = carry
        logits = part.logits(hidden)
        largest, total = add_to_sum(largest, total, logits)
        best, index = jax.lax.top_k(logits, min(k, part.size))
        values, place = jax.lax.top_k(jnp.concatenate([values, best], axis=1), k)
        words = jnp.concatenate([words, (part.start + index).astype(jnp.int32)], axis=1)
        return largest, total, values, jnp.take_along_axis(words, place, axis=1)

    zero = jnp.zeros_like(hidden[:, 0], widest(hidden))
    zeros = jnp.broadcast_to(zero[:, None], (len(hidden), k))
    start = zero - jnp.inf, zero, zeros - jnp.inf, zeros.astype(jnp.int32)
    largest, total, values, words = over_chunks(step, start, table, bias, axis=axis, chunk=chunk)
    return values - (largest + jnp.log(total))[:, None], words
