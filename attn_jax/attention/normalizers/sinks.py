"""Normalizers whose weights may sum to less than one: weights are at least zero, and a row may read little or nothing.

The weights of softmax sum to one even if no key is useful. Models then put the weight on a key without content, such as
the first one, the "sink" (Xiao 2024, arXiv 2309.17453). Here the rest is not read:

    softmax_one, LearnedSink     an extra key with value zero takes the rest
    unnormalized_sigmoid         each key has its own gate
    softpick                     keys with negative score count in the sum, but are not read
    stick_breaking               a stick is broken from the last key to the first

None of these is shift invariant. base.py has the contract of all normalizers.
"""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.masks import checked_masks
from attn_jax.attention.normalizers.base import (
    Mask,
    NormalizerModule,
    Query,
    Scores,
    Weights,
    full_mask,
    normalizer,
    softmax,
)
from attn_jax.attention.normalizers.forms import SOFTMAX, Form, share_of_keys
from attn_jax.attention.normalizers.parametric import per_head
from attn_jax.types import Array, Float

EPSILON = 1e-6  # epsilon of softpick: bounds the gradient where all scores are zero


@normalizer
def softmax_with_sink(scores: Scores, mask: Mask = None, sink: Float[Array, "..."] | float = 0.0) -> Weights:
    """weights_i = exp(scores_i) / (exp(sink) + sum_j exp(scores_j)): softmax with a key of score `sink` and value 0.

    Equal to softmax(scores) sigmoid(logsumexp(scores) - sink).
    """
    mask = full_mask(scores, mask)
    sink = jnp.zeros_like(scores[..., :1]) + jnp.asarray(sink, scores.dtype)
    kept = jnp.concatenate([mask, jnp.ones_like(sink, bool)], axis=-1)
    return softmax(jnp.concatenate([scores, sink], axis=-1), kept)[..., :-1]


@checked_masks
def softmax_one(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = exp(scores_i) / (1 + sum_j exp(scores_j)): a key of score 0 and value 0 takes the rest.

    Miller 2023, "Attention is off by one" (evanmiller.org).

    >>> softmax_one(jnp.zeros(3)).tolist()
    [0.25, 0.25, 0.25]
    """
    return softmax_with_sink(scores, mask)


@normalizer
def unnormalized_sigmoid(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = sigmoid(scores_i - log n), n the number of unmasked keys in the row.

    Ramapuram 2024 (arXiv 2409.04431), with their recommended bias: equal scores of zero have weights of about 1 / n. In
    the paper n is the length of the sequence. Here a causal mask makes n the number of keys up to the query, so masking
    a key has the same effect as deleting it.
    """
    keep = full_mask(scores, mask)
    number = jnp.maximum(jnp.sum(keep, axis=-1, keepdims=True), 1).astype(scores.dtype)
    return jnp.where(keep, jax.nn.sigmoid(jnp.where(keep, scores, 0.0) - jnp.log(number)), 0.0)


@normalizer
def softpick(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = max(exp(scores_i) - 1, 0) / (sum_j |exp(scores_j) - 1| + epsilon): the rectified softmax.

    Zuhri 2025 (arXiv 2504.20966). Sparse: a key with negative score has weight zero, but still a gradient through the
    sum.
    """
    mask = full_mask(scores, mask)
    scores = jnp.where(mask, scores, 0.0)  # exp(0) - 1 adds nothing to the sum
    # Numerator and denominator are multiplied by exp(-largest), so that no exponential overflows.
    largest = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True, initial=0.0))
    small = jnp.abs(scores) < 0.5  # here the difference of exponentials would lose precision
    difference = jnp.exp(scores - largest) - jnp.exp(-largest)
    raised = jnp.where(small, jnp.expm1(jnp.where(small, scores, 0.0)) * jnp.exp(-largest), difference)
    total = jnp.sum(jnp.abs(raised), axis=-1, keepdims=True)
    return jax.nn.relu(raised) / (total + EPSILON * jnp.exp(-largest))


@normalizer
def stick_breaking(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = sigmoid(scores_i) prod_{j > i} (1 - sigmoid(scores_j)): from the last key back to the first.

    Each key takes its share of the rest that later keys have left; the sum is 1 - prod_j (1 - sigmoid(scores_j)). Under
    a causal mask keys are read from the newest backwards, and need no positions. Tan 2024 (arXiv 2410.17980), where a
    query does not read its own key; here the mask decides. It is monotonic attention (Raffel 2017, hard/monotonic.py)
    in the opposite direction and from a single start.
    """
    mask = full_mask(scores, mask)
    scores = jnp.where(mask, scores, 0.0)
    left = jnp.where(mask, jax.nn.log_sigmoid(-scores), 0.0)
    after = jnp.concatenate([left[..., 1:], jnp.zeros_like(left[..., :1])], axis=-1)
    before = jax.lax.cumsum(after, axis=after.ndim - 1, reverse=True)
    return jnp.where(mask, jnp.exp(jax.nn.log_sigmoid(scores) + before), 0.0)


class LearnedSink(NormalizerModule, kw_only=True):
    """weights_i = exp(scores_i) / (exp(sink) + sum_j exp(scores_j)): softmax_with_sink, one learned sink per head.

    The sink starts at 0, where it is softmax_one. gpt-oss (OpenAI 2025, arXiv 2508.10925) has the same learned number
    in the denominator of each head.

    Attributes:
        num_heads: number of learned sinks.
    """

    num_heads: int = 1
    sums_to_one: ClassVar[bool] = False
    has_form: ClassVar[bool] = True

    @nn.compact
    def sinks(self, scores: Scores | jax.ShapeDtypeStruct) -> Float[Array, "..."]:
        """Returns the score of the sink, broadcastable to the scores."""
        return per_head(self.param("sink", nn.initializers.zeros, (self.num_heads, 1, 1), jnp.float32), scores)

    @checked_masks
    def __call__(self, scores: Scores, mask: Mask = None, query: Query = None) -> Weights:
        return softmax_with_sink(scores, mask, self.sinks(scores))

    def form_of(self, scores: Scores | jax.ShapeDtypeStruct) -> Form:
        """Returns the form for blocks of keys; see forms.py."""
        return SOFTMAX._replace(share=share_of_keys, parameters=(self.sinks(scores),))
