"""Structured attention: one binary variable per key, coupled with its neighbours; weights are marginal probabilities.

In a linear chain over the keys (Kim 2017, arXiv 1702.00887, section 3.1, segmentation attention) the distribution is

    p(z) = exp(sum_i scores_i z_i + sum_i b[z_i, z_{i+1}]) / Z,    z_i = 1 where key i is selected,

and the context is sum_i p(z_i = 1) value_i = E[sum_i z_i value_i]. With b = 0 the weights are sigmoids. If
b[0, 0] + b[1, 1] is larger than b[0, 1] + b[1, 0], selected keys form segments. The weights of a row sum to the
expected number of selected keys.

Segmentations (a semi-Markov chain, Sarawagi & Cohen 2004) select segments of at most L neighbouring keys, with at
least one key between two segments. Each segment length has a score c:

    p(segments) = exp(sum over segments of (c[its length] + sum of its scores)) / Z

log Z is a recursion over the keys, and p(z_i = 1) is its derivative with respect to scores_i: backpropagation through
the forward algorithm is the forward-backward algorithm (Eisner 2016, "Inside-outside and forward-backward algorithms
are just backprop"). The keys are read sequentially, in time linear in their number; for segments, times L.
"""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import loops
from attn_jax.attention.masks import checked_masks
from attn_jax.attention.normalizers.base import Mask, NormalizerModule, Query, Scores, Weights, full_mask, normalizer
from attn_jax.attention.normalizers.parametric import per_head
from attn_jax.parts import option
from attn_jax.types import Array, Float


@checked_masks
def log_partition(scores: Scores, pairwise: Float[Array, "... 4"], mask: Mask = None) -> Float[Array, "..."]:
    """Computes log Z of a linear chain over the keys where the mask is True; 0 for a row without keys.

    Args:
        scores: scores of selecting each key; not selecting it has score 0.
        pairwise: b[0, 0], b[0, 1], b[1, 0], b[1, 1] of neighbours, broadcast over leading axes. The neighbour of a key
            is the next unmasked key.
        mask: True for keys in the chain.
    """
    keep = full_mask(scores, mask)
    scores = jnp.where(keep, scores, 0.0)
    b = jnp.broadcast_to(pairwise, (*scores.shape[:-1], 4)).reshape(*scores.shape[:-1], 2, 2)

    def step(carry, key):
        log_alpha, log_z, started = carry  # log p(z of the last key | keys so far), normalized for precision
        score, kept = key
        moved = jax.nn.logsumexp(log_alpha[..., :, None] + b, axis=-2)
        following = jnp.where(started[..., None], moved, 0.0) + jnp.stack([jnp.zeros_like(score), score], axis=-1)
        total = jax.nn.logsumexp(following, axis=-1)
        log_alpha = jnp.where(kept[..., None], following - total[..., None], log_alpha)
        return (log_alpha, log_z + jnp.where(kept, total, 0.0), started | kept), None

    start = (
        jnp.zeros((*scores.shape[:-1], 2), scores.dtype),
        jnp.zeros_like(scores[..., 0]),
        jnp.zeros_like(keep[..., 0]),
    )
    return loops.scan(step, start, (jnp.moveaxis(scores, -1, 0), jnp.moveaxis(keep, -1, 0)))[0][1]


@normalizer
def chain_marginals(scores: Scores, mask: Mask = None, pairwise: Float[Array, "... 4"] | None = None) -> Weights:
    """weights_i = p(z_i = 1) = d log Z / d scores_i, in [0, 1]; see `log_partition`. Without `pairwise`, b = 0."""
    b = jnp.zeros(4, scores.dtype) if pairwise is None else pairwise.astype(scores.dtype)
    return jax.grad(lambda scores: jnp.sum(log_partition(scores, b, mask)))(scores)


class Chain(NormalizerModule, kw_only=True):
    """weights_i = p(z_i = 1) in a linear chain over the keys: chain_marginals with learned b, one per head.

    b starts at 0: at first each weight is sigmoid(score).

    Attributes:
        num_heads: number of learned b.
    """

    num_heads: int = 1
    sums_to_one: ClassVar[bool] = False

    @checked_masks
    @nn.compact
    def __call__(self, scores: Scores, mask: Mask = None, query: Query = None) -> Weights:
        pairwise = self.param("pairwise", nn.initializers.zeros, (self.num_heads, 1, 4), jnp.float32)
        return chain_marginals(scores, mask, per_head(pairwise, scores))


@checked_masks
def log_partition_of_segments(
    scores: Scores, lengths: Float[Array, "... #l"], mask: Mask = None
) -> Float[Array, "..."]:
    """Computes log Z of the segmentations of the keys where the mask is True; 0 for a row without keys.

    Args:
        scores: scores of selecting each key; not selecting it has score 0.
        lengths: c[1], ..., c[L], the scores of segment lengths, broadcast over leading axes.
        mask: True for existing keys. The neighbour of a key is the next unmasked key.
    """
    keep = full_mask(scores, mask)
    scores = jnp.where(keep, scores, 0.0)
    nothing = jnp.zeros_like(scores[..., :1])

    def closed(parts: Float[Array, "... m"]) -> Float[Array, "... m"]:
        """Ends the open segment: adds the score of its length."""
        return parts + jnp.concatenate([nothing, jnp.zeros_like(parts[..., 1:]) + lengths], axis=-1)

    def step(carry, key):
        parts, log_z = (
            carry  # log weight of the keys so far: the last one is not selected, or in a segment of length 1 .. L
        )
        score, kept = key
        apart = jax.nn.logsumexp(closed(parts), axis=-1, keepdims=True)
        following = jnp.concatenate([apart, parts[..., :-1] + score[..., None]], axis=-1)
        total = jax.nn.logsumexp(following, axis=-1, keepdims=True)  # subtracted for precision
        parts = jnp.where(kept[..., None], following - total, parts)
        return (parts, log_z + jnp.where(kept, total[..., 0], 0.0)), None

    impossible = jnp.broadcast_to(nothing - jnp.inf, (*scores.shape[:-1], lengths.shape[-1]))
    start = jnp.concatenate([nothing, impossible], axis=-1), nothing[..., 0]
    parts, log_z = loops.scan(step, start, (jnp.moveaxis(scores, -1, 0), jnp.moveaxis(keep, -1, 0)))[0]
    return log_z + jax.nn.logsumexp(closed(parts), axis=-1)


@normalizer
def segment_marginals(scores: Scores, mask: Mask = None, lengths: Float[Array, "... l"] | None = None) -> Weights:
    """weights_i = p(key i is in a segment) = d log Z / d scores_i, in [0, 1]; see `log_partition_of_segments`.

    Without `lengths`, segments have any length up to the number of keys, and c = 0: the weights are sigmoids.
    """
    c = jnp.zeros(scores.shape[-1:], scores.dtype) if lengths is None else lengths.astype(scores.dtype)
    return jax.grad(lambda scores: jnp.sum(log_partition_of_segments(scores, c, mask)))(scores)


class Segments(NormalizerModule, kw_only=True):
    """weights_i = p(key i is in a segment): segment_marginals with learned c, one per head and length.

    A segment has at most `longest_segment` keys; c starts at 0.

    Attributes:
        num_heads: number of learned c.

    Raises:
        ValueError: longest_segment is below 1.
    """

    longest_segment: int = option(4, "largest number of keys of a segment", at_least=1, at_most=1000)
    num_heads: int = 1
    sums_to_one: ClassVar[bool] = False

    def __post_init__(self):
        if self.longest_segment < 1:
            raise ValueError(f"longest_segment is {self.longest_segment}; expected at least 1")
        super().__post_init__()

    @checked_masks
    @nn.compact
    def __call__(self, scores: Scores, mask: Mask = None, query: Query = None) -> Weights:
        lengths = self.param("lengths", nn.initializers.zeros, (self.num_heads, 1, self.longest_segment), jnp.float32)
        return segment_marginals(scores, mask, per_head(lengths, scores))
