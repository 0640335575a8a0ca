"""Normalizers: scores -> weights over the keys (the last axis).

Contract of each `normalize(scores [..., k], mask [..., k] or None) -> weights [..., k]`: weights >= 0 and sum to one
(`linear` and `rela` aside), exactly 0 where the mask is False, and a row with no key left gives zeros with a zero
gradient, never NaN. A mask that is True means "may attend"; whatever score a masked key has, even NaN, changes
nothing. float16 and bfloat16 scores are computed in float32, and give weights of their own type.

Some are linen modules, because they have a field to set or parameters to learn. Those are called as
`normalize(scores, mask, query=query)`: see adaptive.py.
"""

import jax
import jax.numpy as jnp

from attn_jax.attention.normalizers.base import Mask, Scores, Weights, in_float32, softmax


@in_float32
def sigmoid(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = sigmoid(scores_i) / sum_j sigmoid(scores_j). Not shift invariant: high scores are all alike."""
    scores = scores if mask is None else jnp.where(mask, scores, 0.0)
    return softmax(jax.nn.log_sigmoid(scores), mask)  # does not underflow where all scores are low


def rela(scores: Scores, mask: Mask = None) -> Weights:
    """weights = max(scores, 0), rectified linear attention. Sparse, and does not sum to one: a row may be zero.

    Zhang, Titov & Sennrich 2021 (arXiv 2104.07012). They keep the context stable by an RMS norm, which is left to
    whoever reads with these weights.
    """
    scores = scores if mask is None else jnp.where(mask, scores, 0.0)
    return jax.nn.relu(scores)


def kernel_sum(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = k_i / sum_j k_j with k = exp(scores), the scores of a kernel: log k(query, key).

    Nadaraya 1964, Watson 1964. Softmax over the keys within the kernel's reach: where the score is -inf, k is 0. A
    query that no key is in reach of has zero weights and a zero gradient.
    """
    reach = scores > -jnp.inf
    return softmax(scores, reach if mask is None else reach & mask)


def hardmax(scores: Scores, mask: Mask = None) -> Weights:
    """One at the key with the largest score (the first of equals), zero elsewhere. Its gradient is zero."""
    mask = jnp.ones(scores.shape, bool) if mask is None else jnp.broadcast_to(mask, scores.shape)
    best = jnp.argmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    return jnp.where(mask, jax.nn.one_hot(best, scores.shape[-1], dtype=scores.dtype), 0.0)


def linear(scores: Scores, mask: Mask = None) -> Weights:
    """weights = scores: no normalization at all, for the linear start of memory networks.

    Sukhbaatar 2015 (arXiv 1503.08895), section 4.2. Neither non-negative nor summing to one.
    """
    return scores if mask is None else jnp.where(mask, scores, 0.0)


ELEMENTWISE = {"kernel_sum": kernel_sum, "sigmoid": sigmoid, "rela": rela, "hardmax": hardmax, "linear": linear}
