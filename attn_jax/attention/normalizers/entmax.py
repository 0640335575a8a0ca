"""Entmax: normalizers between softmax (alpha = 1) and sparsemax (alpha = 2), and beyond.

    weights = argmax_p  p . scores + (sum_i p_i - p_i^alpha) / (alpha (alpha - 1))   over the probability simplex
    weights_i = max(z_i + d, 0)^(1 / eps),   eps = alpha - 1,   z = eps (scores - max scores) <= 0

where d in [n^-eps, 1] makes the weights sum to one and n is the number of keys. Keys with z_i <= -d get weight 0.
Peters, Niculae & Martins 2019 (arXiv 1905.05702); sparsemax: Martins & Astudillo 2016 (arXiv 1602.02068).

**No sorting: Newton's method.** The weights sum to one if the norm h(d) = ||max(z + d, 0)||_(1 / eps) is 1. For
alpha <= 2 the exponent is at least 1, so h is convex and increasing, and Newton's steps from d = 1 decrease to the root
without passing it. The number of steps: convexity gives h(d) - 1 >= h(d') - 1 + h'(d') (d - d') for two successive
iterates d > d', and d - d' = (h(d) - 1) / h'(d), hence

    (h(d') - 1) / (h(d) - 1)  +  h'(d') / h'(d)  <=  1,   and the product of the two ratios is at most 1/4:

each step divides (h - 1) h' by 4 or more. This product starts at n^(2 eps) or less, because h(1) and h' are at most
n^eps (norms of n numbers that are at most 1), and h' >= 1 everywhere. So after eps log2(n) + m / 2 steps h - 1 <= 2^-m,
and the distance to the root is at most 2^-m as well. `root` allows at least log2(n) + (bits of the type) steps. The
loop ends when every row has h - 1 <= 8 ulp: 3 to 7 steps for normally distributed scores of 64 to 100,000 keys.

For alpha > 2, h is not convex. Then the interval of log(d), [-eps log(n), 0], is bisected at the geometric mean of its
ends, and log2(eps log n) + bits halvings give d to the last bit. For a large alpha, n^-eps is below all numbers of the
type, and the interval begins at the smallest safe d instead. If the root is smaller, only the keys with the largest
score have weight, and their weights are the same for any d.

**No gradient through the loop.** With the slope s_i = p_i^(2 - alpha) on the support, 0 elsewhere, and
g = (1 - p^-eps - eps log p) / eps^2, which tends to -log(p)^2 / 2 as alpha -> 1:

    d p / d scores = diag(s) - s s^T / sum(s),      d p / d alpha = p g - s sum(p g) / sum(s)

The second derivative formula is from Correia, Niculae & Martins 2019 (arXiv 1909.00015), written without cancellation
near alpha = 1. Both are functions of the weights alone, so derivatives of any order are right.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from attn_jax.attention import loops
from attn_jax.attention.normalizers.base import Mask, Scores, Weights, normalizer, softmax
from attn_jax.types import Array, Float

Alpha = float | int | Float[Array, "..."]
PerRow = Float[Array, "... 1"]

LEAST = 1e-6  # lower limit of alpha - 1; a smaller alpha - 1 differs from softmax by less than 3e-7
NEGLIGIBLE = 1e-30  # divisor instead of the sum of a row without keys, which is 0


@normalizer
def entmax(scores: Scores, mask: Mask = None, alpha: Alpha = 1.5) -> Weights:
    """alpha-entmax, see the module docstring: larger alpha gives sparser weights.

    Args:
        scores: [..., k].
        mask: True where a key may be attended to.
        alpha: a number >= 1, or an array that broadcasts to [..., 1], such as one learned per head, [h, 1, 1]. It has a
            gradient; entries below 1 count as 1. Above 2 the weights have an infinite slope where they become zero, and
            a step costs more.

    Raises:
        ValueError: alpha is a number below 1, or not finite.
    """
    if isinstance(alpha, float | int):
        if not 1 <= alpha < math.inf:
            raise ValueError(
                f"alpha of entmax is {alpha}; a number of at least 1 was expected: 1 is softmax, 2 is sparsemax"
            )
        if alpha - 1 < LEAST:
            return softmax(scores, mask)
        return _entmax_of_fixed(_masked(scores, mask), float(alpha))
    return _entmax_of_learned(_masked(scores, mask), alpha.astype(scores.dtype))


@normalizer
def entmax15(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = max(scores_i / 2 - tau, 0)^2: entmax with alpha = 1.5. Sparse, with a continuous gradient.

    Peters, Niculae & Martins 2019 (arXiv 1905.05702).

    >>> entmax15(jnp.array([2.0, 2.0, -2.0])).tolist()
    [0.5, 0.5, 0.0]
    """
    return _entmax_of_fixed(_masked(scores, mask), 1.5)


@normalizer
def sparsemax(scores: Scores, mask: Mask = None) -> Weights:
    """Euclidean projection of the scores onto the probability simplex: argmin_w ||w - scores||^2; entmax, alpha = 2.

    weights_i = max(scores_i - tau, 0), with the threshold tau for which the weights sum to one. Most weights are
    exactly zero. Martins & Astudillo 2016 (arXiv 1602.02068).

    >>> sparsemax(jnp.array([1.0, 0.5, -1.0])).tolist()
    [0.75, 0.25, 0.0]
    """
    return _entmax_of_fixed(_masked(scores, mask), 2.0)


def _masked(scores: Scores, mask: Mask) -> Scores:
    return scores if mask is None else jnp.where(mask, scores, -jnp.inf)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _entmax_of_fixed(scores: Scores, alpha: float) -> Weights:
    shifted = _below_largest(scores)
    if alpha == 2.0:
        positive = _positive_part(shifted, sums=_sums_of_sparsemax, eps=1.0)
        total, number = _sums_of_sparsemax(positive)
        # The sum of many weights reveals the rounding error of d, which is corrected here.
        return jnp.maximum(positive - jnp.sign(positive) * ((total - 1) / number), 0.0)
    if alpha == 1.5:
        return _normalized(jnp.square(_positive_part(shifted, sums=_sums_of_entmax15, eps=0.5)))
    return _any_power(shifted, jnp.asarray(alpha - 1, scores.dtype))


@_entmax_of_fixed.defjvp
def _entmax_of_fixed_jvp(alpha, primals, tangents):
    weights = _entmax_of_fixed(primals[0], alpha)
    return weights, _along(_slope(weights, alpha), tangents[0])


@jax.custom_jvp
def _entmax_of_learned(scores: Scores, alpha: Float[Array, "..."]) -> Weights:
    return _any_power(_below_largest(scores), jnp.maximum(alpha - 1, LEAST))


@functools.partial(_entmax_of_learned.defjvp, symbolic_zeros=True)
def _entmax_of_learned_jvp(primals, tangents):
    scores, alpha = primals
    weights = _entmax_of_learned(scores, alpha)
    alpha = jnp.maximum(alpha, 1 + LEAST)
    slope = _slope(weights, alpha)
    along_scores, along_alpha = tangents
    tangent = jnp.zeros_like(weights)
    if not isinstance(along_scores, SymbolicZero):
        tangent += _along(slope, along_scores)
    if not isinstance(along_alpha, SymbolicZero):
        tangent += _by_alpha(weights, slope, alpha) * along_alpha
    return weights, tangent


def _slope(weights: Weights, alpha: Alpha) -> Weights:
    """Computes the slope s of the module docstring."""
    support = weights > 0
    if isinstance(alpha, float) and alpha == 2.0:
        return support.astype(weights.dtype)
    inner = jnp.where(support, weights, 1.0)  # keeps derivatives outside of the support finite
    if isinstance(alpha, float) and alpha == 1.5:
        return jnp.where(support, jnp.sqrt(inner), 0.0)
    # Beyond alpha = 2 the slope is unbounded; the limit e^60 leaves room for sums of slopes.
    return jnp.where(support, jnp.exp(jnp.minimum((2 - alpha) * jnp.log(inner), 60.0)), 0.0)


def _along(slope: Weights, tangent: Scores) -> Weights:
    """Computes (diag(s) - s s^T / sum(s)) tangent."""
    return slope * (tangent - _sum(slope * tangent) / _at_least(NEGLIGIBLE, _sum(slope)))


def _by_alpha(weights: Weights, slope: Weights, alpha: Float[Array, "..."]) -> Weights:
    """Computes d weights / d alpha."""
    eps = jnp.maximum(alpha - 1, LEAST)
    logs = jnp.log(jnp.where(weights > 0, weights, 1.0))
    x = eps * logs
    small = jnp.abs(x) < 0.3
    # (exp(-x) - 1 + x) / x^2, whose numerator suffers cancellation for small x.
    series = 1 / 2 - x * (1 / 6 - x * (1 / 24 - x * (1 / 120 - x * (1 / 720 - x / 5040))))
    far = (weights - slope - weights * x) / jnp.where(small, 1.0, jnp.square(eps))
    by_itself = jnp.where(small, -weights * jnp.square(logs) * series, far)
    return by_itself - slope * (_sum(by_itself) / _at_least(NEGLIGIBLE, _sum(slope)))


def _sum(array: Float[Array, "... k"]) -> PerRow:
    return jnp.sum(array, axis=-1, keepdims=True)


def _at_least(bound: float, array: PerRow) -> PerRow:
    return jnp.maximum(array, bound)


def _normalized(array: Float[Array, "... k"]) -> Weights:
    return array / _at_least(NEGLIGIBLE, _sum(array))


def _below_largest(scores: Scores) -> Scores:
    """Computes scores - max scores; -inf if all scores are -inf."""
    largest = jnp.max(scores, axis=-1, keepdims=True)
    return scores - jnp.where(jnp.isfinite(largest), largest, 0.0)


def _positive_part(shifted: Scores, sums: Callable, eps: float) -> Scores:
    """Computes max(z + d, 0) at the root d."""
    z = jnp.maximum(eps * shifted, -1.0)  # a key below -1 never has weight, since d <= 1
    d, _ = root(lambda d: sums(jnp.maximum(z + d, 0.0)), jnp.ones_like(z[..., :1]), z.shape[-1], eps)
    return jnp.maximum(z + d, 0.0)


def _sums_of_sparsemax(positive: Scores) -> tuple[PerRow, PerRow]:
    # XLA on a CPU sums signs at three times the speed of comparisons.
    return _sum(positive), _at_least(1.0, _sum(jnp.sign(positive)))


def _sums_of_entmax15(positive: Scores) -> tuple[PerRow, PerRow]:
    norm = jnp.sqrt(_at_least(NEGLIGIBLE, _sum(jnp.square(positive))))
    return norm, _at_least(NEGLIGIBLE, _sum(positive)) / norm


def _any_power(shifted: Scores, eps: Float[Array, "..."]) -> Weights:
    """Computes the weights for any eps, as max(z + d, 0)^(1 / eps) relative to the largest weight.

    The relative weight is exp(log(1 + z / d) / eps), which tends to exp(shifted) as eps -> 0: softmax. The sum
    1 + z / d rounds a small z / d. This does not matter for the root: the error is divided by eps, but its effect on d
    is multiplied by eps. It matters in the result, which therefore uses log1p.
    """
    z = jnp.maximum(eps * shifted, -1.0)
    power = 1 / eps

    def norm_and_slope(d):
        logs = jnp.log(jnp.maximum(1 + z / d, 0.0))
        logs = jnp.maximum(logs, -1e30)  # finite: the exponent of the slope is zero for eps = 1
        # The largest term is 1, so sums are at least 1, except in a row without keys, where the sum would be 0.
        total = _at_least(1.0, _sum(jnp.exp(logs * power)))
        lower = _at_least(1.0, _sum(jnp.exp(logs * jnp.maximum(power - 1, 1e-20))))
        return jnp.exp(jnp.log(d) + eps * jnp.log(total)), lower * jnp.exp((eps - 1) * jnp.log(total))

    def raised(d):
        return jnp.exp(jnp.log1p(jnp.maximum(z / d, -1.0)) * power)

    def between():
        # The slope of the power is infinite at 0, so two neighbouring numbers d may have sums far below and far above
        # one. An average of their weights that sums to one gives the rest to the keys that have weight only at the
        # upper d.
        below, above = raised(d) * d**power, raised(high) * high**power
        left, right = _sum(below), _sum(above)
        part = jnp.where(right > left, (1 - left) / jnp.where(right > left, right - left, 1), 0.0)
        return below + jnp.clip(part, 0.0, 1.0) * (above - below)

    d, high = root(norm_and_slope, jnp.ones_like(z[..., :1]), z.shape[-1], eps)
    return _normalized(lax.cond(jnp.any(eps > 1), between, lambda: raised(d)))


def root(
    norm_and_slope: Callable[[PerRow], tuple[PerRow, PerRow]], one: PerRow, num_keys: int, eps: float | Array
) -> tuple[PerRow, PerRow]:
    """Finds d with norm 1, as an interval (low, high); the search starts at `one`, an array of ones.

    If eps <= 1, by Newton's method, and both ends are the root; otherwise by bisection, and the ends are neighbouring
    numbers around the root.
    """
    precision = jnp.finfo(one.dtype)
    tolerance = 8 * float(precision.eps)
    # The smallest normal number might be rounded to 0 in a product of two roots.
    least = float(precision.tiny / precision.eps)
    # Number of Newton steps, or of halvings of an interval of log(d) that begins at `least` or above.
    limit = math.ceil(math.log2(max(num_keys, -math.log(least)))) + precision.nmant + 1
    convex = jnp.asarray(eps) <= 1

    def step(state):
        low, high, _, count = state
        d = jnp.where(convex, high, jnp.sqrt(low) * jnp.sqrt(high))
        norm, slope = norm_and_slope(d)
        excess = norm - 1
        # Rounding may lead below the root, where a Newton step could be large.
        newton = jnp.clip(d - excess / slope, low, d)
        enough = excess >= 0
        left = jnp.where(convex, (excess > tolerance) & (newton < d), high > low * (1 + tolerance))
        low = jnp.where(convex | enough, low, d)
        high = jnp.where(convex, newton, jnp.where(enough, d, high))
        return low, high, jnp.any(left), count + 1

    low = jnp.maximum(jnp.asarray(float(num_keys), one.dtype) ** -jnp.asarray(eps, one.dtype), least)
    state = low * one, one, jnp.asarray(True), jnp.asarray(0)
    low, high, _, _ = loops.while_loop(lambda state: state[2] & (state[3] < limit), step, state)
    return jnp.where(convex, high, low), high
