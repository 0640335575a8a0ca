"""Normalizers: scores -> weights over the keys (the last axis).

Contract of each `normalize(scores [..., k], mask [..., k] or None) -> weights [..., k]`:
weights >= 0 and sum to one (`linear` aside), exactly 0 where the mask is False, and a row
with no key left gives zeros with a zero gradient, never NaN. A mask that is True means
"may attend"; whatever score a masked key has, even NaN, changes nothing.
"""

import jax
import jax.numpy as jnp

from attn_jax.types import Array, Bool, Float

Scores = Float[Array, "... k"]
Weights = Float[Array, "... k"]
Mask = Bool[Array, "... #k"] | None


def softmax(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = exp(scores_i) / sum_j exp(scores_j), the sum over the keys that the mask keeps."""
    if mask is None:
        return jax.nn.softmax(scores, axis=-1)
    mask = jnp.broadcast_to(mask, scores.shape)
    # An inner `where` keeps NaN and inf of masked keys out of the gradient as well.
    return jax.nn.softmax(jnp.where(mask, scores, 0.0), axis=-1, where=mask)


def sparsemax(scores: Scores, mask: Mask = None) -> Weights:
    """Euclidean projection of the scores onto the probability simplex: argmin_w ||w - scores||^2.

    weights_i = max(scores_i - tau, 0) with the threshold tau that makes them sum to one, found by
    sorting. Most weights are exactly zero. Martins & Astudillo 2016 (arXiv 1602.02068), algorithm 1;
    the gradient is theirs too (section 2.5): through tau only the keys of the support are seen.
    """
    mask = jnp.ones(scores.shape, bool) if mask is None else jnp.broadcast_to(mask, scores.shape)
    return _sparsemax(jnp.where(mask, scores, 0.0), mask)


@jax.custom_jvp
def _sparsemax(scores: Scores, mask: Bool[Array, "... k"]) -> Weights:
    shifted = scores - jnp.max(scores, axis=-1, keepdims=True, where=mask, initial=-jnp.inf)
    descending = -jnp.sort(jnp.where(mask, -shifted, jnp.inf), axis=-1)  # masked keys come last, as -inf
    ranks = jnp.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
    finite = jnp.isfinite(descending)
    sums = jnp.cumsum(jnp.where(finite, descending, 0.0), axis=-1)
    in_support = finite & (1 + ranks * descending > sums)
    size = jnp.sum(in_support, axis=-1, keepdims=True)
    tau = (jnp.sum(jnp.where(in_support, descending, 0.0), axis=-1, keepdims=True) - 1) / jnp.maximum(size, 1)
    return jnp.where(mask, jnp.maximum(shifted - tau, 0.0), 0.0)


@_sparsemax.defjvp
def _sparsemax_jvp(primals, tangents):
    scores, mask = primals
    weights = _sparsemax(scores, mask)
    support = weights > 0
    tangent = jnp.where(support, tangents[0], 0.0)
    mean = jnp.sum(tangent, axis=-1, keepdims=True) / jnp.maximum(jnp.sum(support, axis=-1, keepdims=True), 1)
    return weights, jnp.where(support, tangent - mean, 0.0)


def hardmax(scores: Scores, mask: Mask = None) -> Weights:
    """One at the key with the largest score (the first of equals), zero elsewhere. Its gradient is zero."""
    mask = jnp.ones(scores.shape, bool) if mask is None else jnp.broadcast_to(mask, scores.shape)
    best = jnp.argmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    return jnp.where(mask, jax.nn.one_hot(best, scores.shape[-1], dtype=scores.dtype), 0.0)


def linear(scores: Scores, mask: Mask = None) -> Weights:
    """weights = scores: no normalization at all, for the linear start of memory networks.

    Sukhbaatar 2015 (arXiv 1503.08895), section 4.1. Neither non-negative nor summing to one.
    """
    return scores if mask is None else jnp.where(mask, scores, 0.0)


NORMALIZERS = {"softmax": softmax, "sparsemax": sparsemax, "hardmax": hardmax, "linear": linear}
