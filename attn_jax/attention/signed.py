"""Weights that may be negative: a line fitted to the values instead of their mean, and the difference of two maps.

The context is still W values, where W does not depend on the values. A key with negative weight is subtracted, so these
weights are no probabilities and cannot be sampled from.

    line        W_i = w_i (1 + (key_i - m) . S^-1 (query - m))      m, S: mean and covariance of the keys under w
    Parallax    W_i = w_i (1 - (key_i - m) . r),  r = R query       the same with a learned r
    difference  W = w - lambda w',  from the first and second half of the columns of queries and keys
"""

from collections.abc import Set
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.linear_systems import conjugate_gradient, solve_positive
from attn_jax.attention.parts import NOT_NEGATIVE
from attn_jax.attention.scores.base import ScoreError
from attn_jax.parts import option
from attn_jax.types import Array, Float, widest

Weights = Float[Array, "... q k"]


def centred_keys(
    weights: Weights, keys: Float[Array, "... k d"]
) -> tuple[Float[Array, "... q k"], Float[Array, "... q d"]]:
    """Returns the weights divided by their sum, and the mean of the keys under them; zeros if all weights are zero."""
    total = jnp.sum(weights, axis=-1, keepdims=True)
    share = weights / jnp.where(total == 0, 1.0, total)
    return share, jnp.einsum("...qk,...kd->...qd", share, keys)


def tilt(weights: Weights, keys: Float[Array, "... k d"], slope: Float[Array, "... q d"]) -> Weights:
    """Computes w_i (1 + (key_i - m) . slope), m the mean of the keys under w; the sum of the weights is unchanged."""
    _, mean = centred_keys(weights, keys)
    change = jnp.einsum("...qd,...kd->...qk", slope, keys) - jnp.sum(slope * mean, axis=-1, keepdims=True)
    return weights * (1 + change)


def local_line_weights(
    weights: Weights, query: Float[Array, "... q d"], keys: Float[Array, "... k d"], ridge: float = 0.0
) -> Weights:
    """Computes weights whose context is a line fitted by weighted least squares, values ~ a + B key, at the query.

        W_i = w_i (1 + (key_i - m) . (S + ridge s I)^-1 (query - m))            s: mean of the diagonal of S

    Local linear attention: Zuo 2025 (arXiv 2510.01450); local lines: Fan & Gijbels 1996, chapter 3. For values that are
    linear in the keys the context is exact, whereas a mean is biased. A large ridge gives w; the ridge is at least
    sqrt(eps) of the type. Each query takes O(d^3 + k d^2) time and O(d^2 + k d) memory.
    """
    share, mean = centred_keys(weights, keys)
    apart = keys[..., None, :, :] - mean[..., :, None, :]  # [..., q, k, d]
    # A steep slope amplifies the rounding error left in the centred keys, so they are centred twice.
    apart = apart - jnp.einsum("...qk,...qkd->...qd", share, apart)[..., None, :]
    covariance = jnp.einsum("...qk,...qki,...qkj->...qij", share, apart, apart)
    size = query.shape[-1]
    level = jnp.trace(covariance, axis1=-2, axis2=-1)[..., None, None] / size
    # Equal keys determine no line, and rounding error must not determine one, also without a ridge: the diagonal is at
    # least sqrt(eps) of the variance, and 1 if there is no variance.
    eps = jnp.finfo(covariance.dtype).eps
    rounding = jnp.sum(jnp.square(eps * mean), axis=-1)[..., None, None]
    diagonal = jnp.where(level > 1e3 * rounding, max(ridge, eps**0.5) * level, 1.0)
    matrix = covariance + diagonal * jnp.broadcast_to(jnp.eye(size, dtype=covariance.dtype), covariance.shape)
    slope = solve_positive(matrix, (query - mean)[..., None])[..., 0]
    return weights * (1 + jnp.einsum("...qd,...qkd->...qk", slope, apart))


def local_line_by_steps(
    weights: Weights, query: Float[Array, "... q d"], keys: Float[Array, "... k d"], ridge: float, steps: int
) -> Weights:
    """Computes local_line_weights by conjugate gradient, as Zuo 2025 does: a step takes two products like attention's.

    Neither S nor the centred keys of each query are made: O(k + d) memory for a query. As many steps as columns are
    exact but for rounding; a ridge of 0.1 needs fewer.
    """
    centre = jnp.mean(keys, axis=-2, keepdims=True)  # a shift of all points changes no line
    query, keys = query - centre, keys - centre
    share, mean = centred_keys(weights, keys)
    second = jnp.einsum("...qk,...k->...q", share, jnp.sum(keys * keys, axis=-1))[..., None]
    variance = second - jnp.sum(mean * mean, axis=-1, keepdims=True)
    eps = jnp.finfo(variance.dtype).eps
    level = max(ridge, eps**0.5) * variance / query.shape[-1]
    diagonal = jnp.where(variance > 8 * eps * second, level, 1.0)

    def times(x: Float[Array, "... q d"]) -> Float[Array, "... q d"]:
        along = jnp.einsum("...qd,...kd->...qk", x, keys) - jnp.sum(x * mean, axis=-1, keepdims=True)
        along = share * along
        spread = jnp.einsum("...qk,...kd->...qd", along, keys) - jnp.sum(along, axis=-1, keepdims=True) * mean
        return spread + diagonal * x

    return tilt(weights, keys, conjugate_gradient(times, query - mean, steps))


class LocalLine(nn.Module, kw_only=True):
    """W_i = w_i (1 + (key_i - m) . (S + ridge s I)^-1 (query - m)): local_line_weights.

    The ridge keeps the context near the mean for a query far from all keys.

    Attributes:
        ridge: share of the variance of the keys that is added to it; 0: the line itself.
        steps: steps of conjugate gradient, see local_line_by_steps; 0: exact.
    """

    ridge: float = option(0.1, "share of the variance of the keys that is added to it; 0: the line itself", at_least=0)
    steps: int = option(0, "steps of conjugate gradient, quick for wide keys; 0: exact", at_least=0, at_most=1000)
    needs: ClassVar[Set[str]] = frozenset({NOT_NEGATIVE})  # of the weights

    def __call__(self, weights: Weights, query: Float[Array, "... q d"], keys: Float[Array, "... k e"]) -> Weights:
        _same_width(query, keys)
        parts = (x.astype(widest(weights)) for x in (weights, query, keys))
        if self.steps:
            return local_line_by_steps(*parts, self.ridge, self.steps).astype(weights.dtype)
        return local_line_weights(*parts, ridge=self.ridge).astype(weights.dtype)


class Parallax(nn.Module, kw_only=True):
    """W_i = w_i (1 - (key_i - m) . r), r = R query: a local line with a learned instead of a least-squares slope.

    Parallax (arXiv 2605.29157): with r = S^-1 (m - query) it is the local line, with r = 0 the mean. R is learned for
    each head and starts at zero. In the paper r is a projection of the layer's input; here, of the query of each head.

    Attributes:
        num_heads: number of learned R.
    """

    num_heads: int = 1
    needs: ClassVar[Set[str]] = frozenset()

    @nn.compact
    def __call__(self, weights: Weights, query: Float[Array, "... q d"], keys: Float[Array, "... k e"]) -> Weights:
        shape = (self.num_heads, query.shape[-1], keys.shape[-1])
        kernel = self.param("kernel", nn.initializers.zeros, shape, jnp.float32)
        # In half precision a key and the mean may be rounded to the same number.
        w, query, keys, kernel = (x.astype(widest(weights)) for x in (weights, query, keys, kernel))
        slope = query @ (kernel[0] if self.num_heads == 1 else kernel)
        return tilt(w, keys, -slope).astype(weights.dtype)


class Subtract(nn.Module, kw_only=True):
    """w - lambda w', for two maps of the same keys: weight that both have in common cancels.

        lambda = exp(a . b) - exp(c . d) + initial          a, b, c, d: learned vectors as wide as one half

    Differential Transformer: Ye 2024 (arXiv 2410.05258), equations 1 to 3, with one lambda for all heads of a layer.
    `initial` is a constant; in the paper it may also grow with the depth of the layer, 0.8 - 0.6 exp(-0.3 (l - 1)).
    """

    initial: float = option(0.8, "first value of lambda", at_least=0, at_most=1)

    @nn.compact
    def __call__(self, first: Weights, second: Weights, features: int) -> Weights:
        names = ("query_1", "key_1", "query_2", "key_2")
        a, b, c, d = (self.param(name, nn.initializers.normal(0.1), (features,), jnp.float32) for name in names)
        scale = jnp.exp(jnp.dot(a, b)) - jnp.exp(jnp.dot(c, d)) + self.initial
        return first - scale.astype(first.dtype) * second


def halves(x: Float[Array, "... d"]) -> list[Float[Array, "... e"]]:
    """Splits the columns in two.

    Raises:
        ScoreError: the number of columns is odd.
    """
    if x.shape[-1] % 2:
        raise ScoreError(f"the difference of two maps takes half of the columns each; expected even, got {x.shape[-1]}")
    return jnp.split(x, 2, axis=-1)


def _same_width(query: Array, keys: Array) -> None:
    if query.shape[-1] != keys.shape[-1]:
        raise ScoreError(
            f"a local line at the query needs keys of its width, {query.shape[-1]}; those of this score have "
            f"{keys.shape[-1]} columns; scaled_dot, dot and general have such keys"
        )


# Functions of the weights of a normalizer, with which the context is a mean or a line.
FITS = {"mean": None, "line": LocalLine, "parallax": Parallax}
