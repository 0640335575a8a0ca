"""Constrained normalizers: no key gets more weight than its upper bound.

Upper bounds u [..., k] >= 0, such as the fertility of a key that is left after earlier steps. If the bounds of a row
sum to less than one, no distribution satisfies them; then the weights are the bounds, and sum to less than one.
"""

import jax
import jax.numpy as jnp
from jax import lax

from attn_jax.attention import loops
from attn_jax.attention.normalizers.base import Mask, Scores, Weights, full_mask, normalizer
from attn_jax.types import Array, Bool, Float, Int

Bounds = Float[Array, "... #k"]
PerRow = Float[Array, "... 1"]

LOWEST = -1e37  # lower limit of a score relative to the largest; twice this number is still finite


@normalizer
def constrained_sparsemax(scores: Scores, mask: Mask = None, upper: Bounds | float = 1.0) -> Weights:
    """argmin_w ||w - scores||^2 over the distributions with w <= upper: clip(scores - tau, 0, upper).

    Malaviya, Ferreira & Martins 2018 (arXiv 1805.08241). With bounds of one it is sparsemax. tau is found by bisection,
    with log2(range of the scores) + bits halvings; in the final interval the sum is linear in tau, so the last step is
    exact. Gradient: the weight of a key at its bound follows the bound; the keys between 0 and their bounds share the
    rest, with the mean over these keys subtracted.
    """
    mask = full_mask(scores, mask)
    upper = jnp.minimum(jnp.asarray(upper, scores.dtype), 1.0)  # no weight is larger
    upper = jnp.where(mask, jnp.broadcast_to(upper, scores.shape), 0.0)
    largest = jnp.max(scores, axis=-1, keepdims=True, where=mask, initial=-jnp.inf)
    shifted = jnp.where(mask, scores - jnp.where(mask.any(-1, keepdims=True), largest, 0.0), 0.0)
    shifted = jnp.maximum(shifted, LOWEST)
    x, u = lax.stop_gradient((shifted, upper))
    low = jnp.min(x - u, axis=-1, keepdims=True, where=mask, initial=0.0)
    tau, high = _bisected(x, u, low, jnp.zeros_like(low))
    # Bisect again relative to this tau: floats are denser near 0 than far from it, such as at the score -1e9.
    shifted, x = shifted - tau, x - tau
    low = jnp.where(_sum(jnp.clip(x, 0.0, u)) >= 1, 0.0, -1.0)
    tau, _ = _bisected(x, u, low, high - tau)
    free, full = mask & (x > tau) & (x - tau < u), mask & (x - tau >= u)
    centred = shifted - tau
    excess = _sum(jnp.where(free, centred, 0.0) + jnp.where(full, upper, 0.0)) - 1
    last = excess / jnp.maximum(_sum(free), 1)
    return jnp.where(full, upper, jnp.where(free, jnp.clip(centred - last, 0.0, upper), 0.0))


def _bisected(x: Scores, upper: Weights, low: PerRow, high: PerRow) -> tuple[PerRow, PerRow]:
    """Bisects the interval of thresholds tau for which clip(x - tau, 0, upper) sums to one."""

    def halve(state):
        low, high, _ = state
        tau = (low + high) / 2
        enough = _sum(jnp.clip(x - tau, 0.0, upper)) >= 1
        between = (low < tau) & (tau < high) & (high - low > jnp.finfo(x.dtype).eps)
        return jnp.where(enough, tau, low), jnp.where(enough, high, tau), jnp.any(between)

    return loops.while_loop(lambda state: state[2], halve, (low, high, jnp.asarray(True)))[:2]


def _sum(array: Float[Array, "... k"] | Bool[Array, "... k"]) -> PerRow | Int[Array, "... 1"]:
    return jnp.sum(array, axis=-1, keepdims=True)


@normalizer
def constrained_softmax(scores: Scores, mask: Mask = None, upper: Bounds | float = 1.0) -> Weights:
    """min(upper, c exp(scores)), with c such that the weights sum to one: nearest to softmax in KL divergence.

    Martins & Kreutzer 2017 (EMNLP, "Learning What's Easy"). Weights above their bounds are set to the bounds, and the
    other keys share the rest by softmax, until no weight is above its bound. Each round fixes at least one key, so
    there are at most k + 1 rounds.
    """
    mask = full_mask(scores, mask)
    upper = jnp.where(mask, jnp.broadcast_to(jnp.asarray(upper, scores.dtype), scores.shape), 0.0)
    scores = jnp.where(mask, scores, 0.0)

    def weights_of(scores, upper, full):
        rest = jnp.maximum(1 - _sum(jnp.where(full, upper, 0.0)), 0.0)
        return jnp.where(full, upper, rest * jax.nn.softmax(scores, axis=-1, where=mask & ~full))

    def fill(state):
        full, _ = state
        above = mask & ~full & (weights_of(x, u, full) > u)
        return full | above, jnp.any(above)

    x, u = lax.stop_gradient((scores, upper))
    full, _ = loops.while_loop(lambda state: state[1], fill, (jnp.zeros_like(mask), jnp.asarray(True)))
    return weights_of(scores, upper, full)
