"""Fusedmax: sparse weights that are equal over runs of neighbouring keys."""

import jax
import jax.numpy as jnp
from jax import lax

from attn_jax.attention import loops
from attn_jax.attention.masks import checked_masks
from attn_jax.attention.normalizers.base import Mask, Scores, Weights, full_mask, normalizer
from attn_jax.attention.normalizers.entmax import sparsemax
from attn_jax.types import Array, Bool, Float, Int


@normalizer
def fusedmax(scores: Scores, mask: Mask = None, fusion: float | int | Float[Array, ""] = 0.1) -> Weights:
    """argmin_w ||w - scores||^2 / 2 + fusion * sum_i |w_(i+1) - w_i| over the probability simplex.

    Niculae & Blondel 2017 (arXiv 1705.07704): sparsemax of the scores after `fuse`. fusion = 0 is sparsemax, a large
    fusion gives uniform weights. A masked key is skipped: the keys on its two sides are neighbours.

    Raises:
        ValueError: fusion is a number below 0.
    """
    if isinstance(fusion, float | int):
        if not fusion >= 0:
            raise ValueError(f"fusion of fusedmax is {fusion}, but at least 0 was expected: 0 is sparsemax")
        if fusion == 0:
            return sparsemax(scores, mask)
    mask = full_mask(scores, mask)
    largest = jnp.max(scores, axis=-1, keepdims=True, where=mask, initial=-jnp.inf)
    scores = jnp.where(mask, scores - jnp.where(mask.any(-1, keepdims=True), largest, 0.0), 0.0)
    # A key this far below the largest has weight zero; sums with even lower scores would lose precision.
    scores = jnp.maximum(scores, -(10 + 4 * fusion))
    rows, kept = scores.reshape(-1, scores.shape[-1]), mask.reshape(-1, mask.shape[-1])
    fused = loops.by_compiler(jax.vmap(fuse, in_axes=(0, 0, None)))(rows, kept, jnp.asarray(fusion, scores.dtype))
    return sparsemax(fused.reshape(scores.shape), mask)


@checked_masks
def fuse(scores: Float[Array, " k"], mask: Bool[Array, " k"], fusion: Float[Array, ""]) -> Float[Array, " k"]:
    """argmin_y ||y - scores||^2 / 2 + fusion * sum_i |y_(i+1) - y_i|, over the keys where the mask is True.

    y is constant on groups of neighbours. In a group it is the mean of the scores, plus fusion / size for each higher
    neighbouring group, minus fusion / size for each lower one. The gradient averages over groups.
    """
    group, step = lax.stop_gradient(_groups(scores, mask, fusion))
    num_keys = scores.shape[-1]

    def total(values):
        return jax.ops.segment_sum(values, group, num_segments=num_keys, indices_are_sorted=True)

    rise = total(step)  # signs of the steps to the next group; a step up for one group is a step down for the other
    rise = rise - jnp.concatenate([jnp.zeros(1, rise.dtype), rise[:-1]])
    size = jnp.maximum(total(mask.astype(scores.dtype)), 1)
    return ((total(jnp.where(mask, scores, 0.0)) + fusion * rise) / size)[group]


def _groups(
    scores: Float[Array, " k"], mask: Bool[Array, " k"], fusion: Float[Array, ""]
) -> tuple[Int[Array, " k"], Float[Array, " k"]]:
    """Computes the number of each key's group, and the sign of the step from each key to the next: 0 within a group.

    Dynamic programming over the keys, exact, with k steps (Johnson 2013, "A dynamic programming algorithm for the
    fused lasso and L0-segmentation"). Let f_i(y) be the derivative of the least cost of keys up to i, given that y_i
    is y. It is increasing and piecewise linear, and f_(i+1)(y) = y - scores_(i+1) + clip(f_i(y), -fusion, fusion).
    Only the points low_i and high_i at which f_i reaches the two bounds are needed: y_i = clip(y_(i+1), low_i, high_i),
    from the last key, where f = 0, back to the first.

    The clipped f_i is stored as a double-ended queue of knots, each with its position and the changes of the line's
    slope and offset there. A step removes the knots beyond the new bounds at both ends and adds one at each end, so all
    steps together remove at most 2k knots.
    """
    num_keys, dtype = scores.shape[-1], scores.dtype

    def line_at(knots, slope, offset, first, last, level, from_left):
        """Finds the line on which f crosses `level`, starting at one end, and the first knot beyond the crossing."""
        position, slopes, offsets = knots
        sign = 1 if from_left else -1

        def below(state):
            slope, offset, at = state
            inside = (at <= last) if from_left else (at >= first)
            return inside & (sign * (slope * position[at] + offset) < sign * level)

        def cross(state):
            slope, offset, at = state
            return slope + sign * slopes[at], offset + sign * offsets[at], at + sign

        return loops.while_loop(below, cross, (slope, offset, first if from_left else last))

    def insert(knots, at, *knot):
        return tuple(array.at[at].set(value) for array, value in zip(knots, knot, strict=True))

    def forward(state, key):
        knots, first, last, level = state  # level: absolute value of the clipped f at its two ends
        score, keep = key
        one = jnp.ones((), dtype)
        slope, offset, left = line_at(knots, one, -level - score, first, last, -fusion, from_left=True)
        low, left = (-fusion - offset) / slope, jnp.where(keep, left, first) - 1
        changed = insert(knots, left, low, slope, offset + fusion)
        # Stop at the knot just added, where f is -fusion.
        slope, offset, right = line_at(changed, one, level - score, left + 1, last, fusion, from_left=False)
        high, right = (fusion - offset) / slope, jnp.where(keep, right, last) + 1
        changed = insert(changed, right, high, -slope, fusion - offset)
        # The write of a masked key is outside of the queue, which is therefore unchanged.
        first, last = jnp.where(keep, left, first), jnp.where(keep, right, last)
        bounds = jnp.where(keep, low, -jnp.inf), jnp.where(keep, high, jnp.inf)
        return (changed, first, last, jnp.where(keep, fusion, level)), bounds

    knots = tuple(jnp.zeros(2 * num_keys + 2, dtype) for _ in range(3))
    start = knots, jnp.asarray(num_keys + 1), jnp.asarray(num_keys), jnp.zeros((), dtype)
    (knots, first, last, _), (low, high) = loops.scan(forward, start, (jnp.where(mask, scores, 0.0), mask))
    slope, offset = knots[1][first], knots[2][first] - fusion
    slope, offset, _ = line_at(knots, slope, offset, first + 1, last, jnp.zeros((), dtype), from_left=True)
    root = -offset / jnp.maximum(slope, 1)

    def backward(state, key):
        following, inside = state  # inside: whether there is an unmasked key after this one
        low, high, keep = key
        step = jnp.where(inside, jnp.sign(following - jnp.clip(following, low, high)), 0.0)
        return (jnp.where(inside, jnp.clip(following, low, high), following), inside | keep), step

    _, step = loops.scan(backward, (root, jnp.asarray(False)), (low, high, mask), reverse=True)
    ends = jnp.cumsum(step != 0)
    return ends - (step != 0), step
