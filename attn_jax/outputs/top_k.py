"""The k largest of many numbers, in two stages.

The k largest numbers lie in the k groups with the largest maxima. So the groups (of GROUP numbers) are ranked by their
maxima first, then the numbers in the best k groups: one pass over all numbers and a search among few. On a CPU a search
among all words takes a quarter to a third of the time of their logits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attn_jax.types import Array, Float, Int

GROUP = 64


class Extensions(NamedTuple):
    """The n best pairs of a row (a hypothesis) and a word, best first."""

    log_prob: Float[Array, "... n"]  # of the word, given the row
    row: Int[Array, "... n"]
    word: Int[Array, "... n"]


def top_k(x: Float[Array, "... v"], k: int) -> tuple[Float[Array, "... k"], Int[Array, "... k"]]:
    """Returns (the k largest numbers, largest first; their indices), like jax.lax.top_k.

    If equal numbers in different groups compete for the last ranks, the chosen one need not be the first.
    """
    size = x.shape[-1]
    num_groups = -(-size // GROUP)
    if num_groups <= 2 * k:
        values, places = jax.lax.top_k(x, k)
        return values, places
    missing = num_groups * GROUP - size
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)], constant_values=-jnp.inf)
    groups = padded.reshape(*x.shape[:-1], num_groups, GROUP)
    chosen = jnp.sort(jax.lax.top_k(jnp.max(groups, axis=-1), k)[1], axis=-1)  # in order, for equal numbers
    found = jnp.take_along_axis(groups, chosen[..., None], axis=-2).reshape(*x.shape[:-1], k * GROUP)
    values, places = jax.lax.top_k(found, k)
    return values, jnp.take_along_axis(chosen, places // GROUP, axis=-1) * GROUP + places % GROUP


def best_extensions(
    log_probs: Float[Array, "... k m"],
    words: Int[Array, "... k m"],
    before: Float[Array, "... k"],
    n: int,
    forbidden: Sequence[int] = (),
) -> Extensions:
    """Finds the n best of the given words of all rows, by before + log_probs, without the words `forbidden`.

    Of equal sums the first is chosen. A forbidden word has log-probability -inf, if too few others are given.
    """
    allowed = jnp.where(jnp.isin(words, jnp.array(forbidden, words.dtype)), -jnp.inf, log_probs)
    flat = lambda x: x.reshape(*x.shape[:-2], -1)  # noqa: E731
    _, index = jax.lax.top_k(flat(before[..., None] + allowed), n)
    gain, word = (jnp.take_along_axis(flat(x), index, axis=-1) for x in (allowed, words))
    return Extensions(gain, index // words.shape[-1], word)


def best_by_logit(
    logits: Float[Array, "... k v"], before: Float[Array, "... k"], n: int, forbidden: Sequence[int] = ()
) -> Extensions:
    """Finds the same as `best_extensions` from the logits of all words, with one search over all rows.

    log p = logit - log sum exp(logit) differs from logit by one number for each row, so the groups with the best
    extensions are those with the largest maxima of logit + that number + before.
    """
    size, num_groups = logits.shape[-1], -(-logits.shape[-1] // GROUP)
    largest = jnp.max(logits, axis=-1, keepdims=True)
    total = jnp.log(jnp.sum(jnp.exp(logits - largest), axis=-1, keepdims=True))
    # A forbidden word may be the largest of its group, so as many more groups are searched.
    searched = n + logits.shape[-2] * len({word // GROUP for word in forbidden})
    if logits.shape[-2] * num_groups <= 2 * searched:
        words = jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32), logits.shape)
        return best_extensions(logits - largest - total, words, before, n, forbidden)
    missing = [(0, 0)] * (logits.ndim - 1) + [(0, num_groups * GROUP - size)]
    groups = jnp.pad(logits, missing, constant_values=-jnp.inf).reshape(*logits.shape[:-1], num_groups, GROUP)
    shift = (before[..., None] - largest - total)[..., 0]
    maxima = (jnp.max(groups, axis=-1) + shift[..., None]).reshape(*logits.shape[:-2], -1)
    chosen = jnp.sort(jax.lax.top_k(maxima, searched)[1], axis=-1)  # in order, for equal numbers
    rows = chosen // num_groups
    words = (chosen % num_groups * GROUP)[..., None] + jnp.arange(GROUP)
    found = jnp.take_along_axis(groups.reshape(*maxima.shape, GROUP), chosen[..., None], axis=-2)
    of_rows = lambda x: jnp.take_along_axis(x, rows, axis=-1)[..., None]  # noqa: E731
    gains = found - of_rows(largest[..., 0]) - of_rows(total[..., 0])
    gains = jnp.where(jnp.isin(words, jnp.array(forbidden, words.dtype)), -jnp.inf, gains)
    flat = lambda x: x.reshape(*rows.shape[:-1], searched * GROUP)  # noqa: E731
    _, places = jax.lax.top_k(flat(of_rows(before) + gains), n)
    gain, word = (jnp.take_along_axis(flat(x), places, axis=-1) for x in (gains, words))
    return Extensions(gain, jnp.take_along_axis(rows, places // GROUP, axis=-1), word.astype(jnp.int32))
