"""Fusedmax: sparse weights that are equal over runs of neighbouring keys."""

import jax.numpy as jnp
from jax import lax

from attn_jax.attention import loops
from attn_jax.attention.masks import checked_masks
from attn_jax.attention.normalizers.base import Mask, Scores, Weights, full_mask, normalizer
from attn_jax.attention.normalizers.entmax import sparsemax
from attn_jax.types import Array, Bool, Float

NOTHING = 2.0  # the step before the first key


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
    mask, fusion = full_mask(scores, mask), jnp.asarray(fusion, scores.dtype)
    largest = jnp.max(scores, axis=-1, keepdims=True, where=mask, initial=-jnp.inf)
    scores = jnp.where(mask, scores - jnp.where(mask.any(-1, keepdims=True), largest, 0.0), 0.0)
    # Fusion moves a score by at most 2 fusion, so a key below -(1 + 2 fusion) has weight zero whatever its group is.
    # Sums with even lower scores would lose precision.
    scores = jnp.maximum(scores, -(10 + 4 * fusion))
    return sparsemax(fuse(scores, mask, fusion, -(1 + 2 * fusion)), mask)


@checked_masks
def fuse(
    scores: Float[Array, "*rows k"],
    mask: Bool[Array, "*rows k"],
    fusion: Float[Array, ""],
    floor: float | Float[Array, ""] = -jnp.inf,
) -> Float[Array, "*rows k"]:
    """argmin_y ||y - scores||^2 / 2 + fusion * sum_i |y_(i+1) - y_i|, over the keys where the mask is True.

    y is constant on groups of neighbours. In a group it is the mean of the scores, plus fusion / size for each higher
    neighbouring group, minus fusion / size for each lower one. The gradient averages over groups. Neighbouring groups
    below `floor` may be left together; their mean is below it, too.
    """
    keys, keep = jnp.moveaxis(scores, -1, 0), jnp.moveaxis(mask, -1, 0)
    keys = jnp.where(keep, keys, 0.0)
    step, before = lax.stop_gradient(_steps(keys, keep, fusion, jnp.asarray(floor, scores.dtype)))
    moved = keys + fusion * jnp.where(keep & (before != NOTHING), step - before, step)
    return jnp.moveaxis(_group_means(moved, keep, step, before), 0, -1)


def _steps(
    scores: Float[Array, "k *rows"], keep: Bool[Array, "k *rows"], fusion: Float[Array, ""], floor: Float[Array, ""]
) -> tuple[Float[Array, "k *rows"], Float[Array, "k *rows"]]:
    """Computes the sign of the step of y from each key to the next one, 0 within a group, and that from the key before.

    Exact, by splitting groups until none splits. Whether y_i is above a level t is a problem of its own: minimize
    sum_i u_i (t - scores_i) + fusion * sum_i |u_(i+1) - u_i| over u in {0, 1} (Chambolle & Darbon 2009, "On total
    variation minimization and surface evolution using parametric maximum flows"). Dynamic programming solves it: with
    e_i = t - scores_i + clip(e_(i-1), -fusion, fusion), u_i = 1 if e_i < -fusion, 0 if e_i >= fusion, else u_(i+1), and
    for the last key 1 if e_i < 0. The level of a group is its mean, as long as it is one group. A step to another group
    fixes the clipped e at fusion * step. Masked keys hand on what they are given.
    """

    def levels(carry, key):  # forward: e of each key, at the level of its group
        level, e, before = carry
        score, kept, total, size, step = key
        first = before == NOTHING
        mean = (total - jnp.where(first, 0.0, fusion * before)) / size
        own = jnp.where(before == 0, level, jnp.maximum(mean, floor))
        given = jnp.where(before == 0, jnp.clip(e, -fusion, fusion), jnp.where(first, 0.0, fusion * before))
        after = own, own - score + given, step
        return tuple(jnp.where(kept, new, old) for new, old in zip(after, carry, strict=True)), (after[1], before)

    def splits(carry, key):  # backward: u of each key, the new steps, and sums over the rest of the group
        above, total, size, last = carry
        score, kept, e, step = key
        limit = jnp.where(last, 0.0, fusion * jnp.where(step == 0, 2 * above - 1, step))
        own = (e < limit).astype(score.dtype)
        new = jnp.where(last | ~kept, 0.0, jnp.where(step == 0, above - own, step))
        goes_on = (new == 0) & ~last
        after = own, score + jnp.where(goes_on, total, fusion * new), 1 + jnp.where(goes_on, size, 0.0)
        sums = tuple(jnp.where(kept, new, old) for new, old in zip(after, carry[:3], strict=True))
        return (*sums, last & ~kept), (new, *sums[1:])

    def split(state):
        step, _, total, size, _ = state
        start = zero, zero, jnp.full_like(zero, NOTHING)
        _, (e, before) = loops.scan(levels, start, (scores, keep, total, size, step))
        start = zero, zero, jnp.ones_like(zero), jnp.ones_like(zero, bool)
        _, (new, total, size) = loops.scan(splits, start, (scores, keep, e, step), reverse=True)
        return new, before, total, size, jnp.any(new != step)

    zero, none = jnp.zeros_like(scores[0]), jnp.zeros_like(scores)
    total, size = scores.sum(0), jnp.maximum(keep.sum(0).astype(scores.dtype), 1)
    start = none, none, jnp.broadcast_to(total, none.shape), jnp.broadcast_to(size, none.shape), jnp.asarray(True)
    # The last turn splits nothing, so that its `before` is that of the final steps.
    step, before, *_ = loops.while_loop(lambda state: state[-1], split, start)
    return step, before


def _group_means(
    values: Float[Array, "k *rows"],
    keep: Bool[Array, "k *rows"],
    step: Float[Array, "k *rows"],
    before: Float[Array, "k *rows"],
) -> Float[Array, "k *rows"]:
    """Computes for each key the mean of the values of its group; values of masked keys are 0."""

    def sums(carry, key):
        value, kept, step = key
        after = tuple(x + jnp.where(step == 0, y, 0.0) for x, y in zip((value, kept), carry, strict=True))
        return after, after

    def spread(mean, key):
        total, size, first = key
        mean = jnp.where(first, total / size, mean)
        return mean, mean

    zero = jnp.zeros_like(values[0])
    _, (total, size) = loops.scan(sums, (zero, zero), (values, keep.astype(values.dtype), step), reverse=True)
    return loops.scan(spread, zero, (total, jnp.maximum(size, 1), keep & (before != 0)))[1]
