"""Normalizers that apply a function to each score, and divide by the sum or not at all. base.py has their contract."""

import jax
import jax.numpy as jnp

from attn_jax.attention.normalizers.base import Mask, Scores, Weights, full_mask, normalizer, softmax


@normalizer
def sigmoid(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = sigmoid(scores_i) / sum_j sigmoid(scores_j): the normalized sigmoid.

    Not shift invariant: all high scores have nearly the same weight. Chorowski 2015 (arXiv 1506.07503), "smoothing".
    """
    scores = scores if mask is None else jnp.where(mask, scores, 0.0)
    return softmax(jax.nn.log_sigmoid(scores), mask)  # log space: does not underflow if all scores are low


@normalizer
def rela(scores: Scores, mask: Mask = None) -> Weights:
    """weights = max(scores, 0): rectified linear attention. Sparse, and does not sum to one: a row may be zero.

    Zhang, Titov & Sennrich 2021 (arXiv 2104.07012). The RMS norm that the paper applies to the context is not part of
    the normalizer.

    >>> rela(jnp.array([2.0, -1.0])).tolist()
    [2.0, 0.0]
    """
    scores = scores if mask is None else jnp.where(mask, scores, 0.0)
    return jax.nn.relu(scores)


@normalizer
def kernel_sum(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = k_i / sum_j k_j with k = exp(scores), for scores log k(query, key) of a kernel k.

    Nadaraya 1964, Watson 1964. Softmax over the keys within reach of the kernel; k is 0 where the score is -inf. A
    query without keys in reach has zero weights and a zero gradient.

    >>> kernel_sum(jnp.array([0.0, -jnp.inf, 0.0])).tolist()
    [0.5, 0.0, 0.5]
    """
    reach = scores > -jnp.inf
    return softmax(scores, reach if mask is None else reach & mask)


@normalizer
def hardmax(scores: Scores, mask: Mask = None) -> Weights:
    """One at the key with the largest score (the first of several equal ones), zero elsewhere. Its gradient is zero.

    The selection of a memory network (Weston 2015, arXiv 1410.3916).

    >>> hardmax(jnp.array([1.0, 3.0, 3.0])).tolist()
    [0.0, 1.0, 0.0]
    """
    mask = full_mask(scores, mask)
    best = jnp.argmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    return jnp.where(mask, jax.nn.one_hot(best, scores.shape[-1], dtype=scores.dtype), 0.0)


@normalizer
def linear(scores: Scores, mask: Mask = None) -> Weights:
    """weights = scores: no normalization, for the linear start of memory networks.

    Sukhbaatar 2015 (arXiv 1503.08895), section 4.2. Weights may be negative and need not sum to one.

    >>> linear(jnp.array([2.0, -1.0]), jnp.array([True, False])).tolist()
    [2.0, 0.0]
    """
    return scores if mask is None else jnp.where(mask, scores, 0.0)
