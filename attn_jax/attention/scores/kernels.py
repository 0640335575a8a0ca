"""Kernels as scores: score = log k(query, key), where k decreases with the distance in units of a width h.

    u = |query - key| / h         kernel_sum of the score: weights_i = k(u_i) / sum_j k(u_j)         (Nadaraya 1964,
                                                                                                      Watson 1964)
The softmax of the Gaussian score is the Nadaraya-Watson weight; as logarithms, the scores do not underflow for any
width. A key out of reach of a compact kernel has the score -inf, which kernel_sum accepts.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.masks import with_axes
from attn_jax.attention.scores.base import Keys, Query, Score, ScoreError, Scores, same_width
from attn_jax.parts import option
from attn_jax.types import Array, Dtype, Float, widest


class Kernel(Score, kw_only=True):
    """log k(u) with u^2 = sum over the columns j of (query_j - key_j)^2 / width_j^2.

    Queries and keys are shifted by a point near the queries, so that a large distance from the origin costs no
    precision.

    If no width is given, it is learned, as log_precision = -2 log(width). It starts at d^(1/4), where the product in
    |query - key|^2 / h^2 is the scaled dot product of Vaswani 2017; for compact kernels it starts at (2 d)^(1/2), the
    distance of two random vectors with entries of variance one.

    Attributes:
        initial: initial value of a learned width; (): the default above.
        exact: sum squared differences: slower, but precise also for widths far below the largest distances.
    """

    width: tuple = option((), "width, one number or one for each column; (): learned", each=float)
    per_column: bool = option(False, "learn a width for each column")
    initial: tuple = ()
    exact: bool = False

    compact = False  # whether k is 0, and the score -inf, beyond some distance
    has_gradient = True  # whether the width has a gradient

    def log_kernel(self, squares: Float[Array, "..."]) -> Float[Array, "..."]:
        """Computes log k(u) from u^2; -inf where k is 0."""
        raise NotImplementedError

    @staticmethod
    def log_volume(features: int) -> float:
        """Computes the log of the integral of k(|u|) over all u in `features` dimensions."""
        raise NotImplementedError

    @nn.compact
    def precision(self, features: int, dtype: Dtype = jnp.float32) -> Float[Array, "..."]:
        """Computes 1 / width^2 in this type: one number, or one per column."""
        if self.width:
            return jnp.square(1 / jnp.asarray(check_width(self.width, features), dtype))
        first = self.initial or (((2 * features) ** 0.5 if self.compact else features**0.25),)
        start = jnp.array([-2 * math.log(w) for w in check_width(first, features)], jnp.float32)
        shape = (features,) if self.per_column or len(first) > 1 else ()
        start = jnp.broadcast_to(start, (features,)) if shape else start[0]
        return jnp.exp(self.param("log_precision", lambda rng: start).astype(dtype))

    @nn.compact
    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        same_width(self, query, projected_keys)
        dtype = widest(query, projected_keys)
        query, projected_keys = query.astype(dtype), projected_keys.astype(dtype)  # the squares overflow in float16
        if not self.exact:  # squares of years, for example, are 4e6, and float32 has 7 digits
            point = common_part(query, projected_keys)
            query, projected_keys = query - point, projected_keys - point
        precision = self.precision(query.shape[-1], dtype)
        if precision.ndim:
            root = jnp.sqrt(precision)
            query, projected_keys = (x * with_axes(root, x.ndim) for x in (query, projected_keys))
            precision = jnp.ones((), dtype)
        return self.log_kernel(precision * self.squares(query, projected_keys))

    def squares(self, query: Query, keys: Keys) -> Scores:
        """Computes |query - key|^2, by default as |query|^2 + |key|^2 - 2 query . key, one matrix product."""
        if self.exact:
            return jnp.sum(jnp.square(query[..., :, None, :] - keys[..., None, :, :]), axis=-1)
        products = jnp.einsum("...qd,...kd->...qk", query, keys)
        norms = [jnp.sum(jnp.square(x), axis=-1) for x in (query, keys)]
        return norms[0][..., :, None] + norms[1][..., None, :] - 2 * products


def common_part(query: Query, keys: Keys) -> Float[Array, "... #q d"]:
    """Returns the point nearest to the origin in the bounding box of the queries, to shift queries and keys by.

    In each column it is the least number if all are positive, the largest if all are negative, else 0. So no query is
    farther from it than from the origin, and masked keys have no influence. It has no gradient. Queries share a box
    along the axes that the keys lack.
    """
    lacking = [i for i in range(-query.ndim, -2) if -i > keys.ndim or keys.shape[i] == 1]
    axis, finite = (*lacking, -2), jnp.isfinite(query)
    least = jnp.min(query, axis, keepdims=True, initial=jnp.inf, where=finite)
    largest = jnp.max(query, axis, keepdims=True, initial=-jnp.inf, where=finite)
    point = jnp.maximum(least, 0) + jnp.minimum(largest, 0)
    point = jnp.where(jnp.isfinite(point), point, 0)[(0,) * (query.ndim - keys.ndim)]
    return jax.lax.stop_gradient(point)


class Gaussian(Kernel, kw_only=True):
    """k = exp(-u^2 / 2): positive at every distance. Nadaraya 1964, Watson 1964."""

    def log_kernel(self, squares):
        return -0.5 * squares

    @staticmethod
    def log_volume(features):
        return 0.5 * features * math.log(2 * math.pi)


class Boxcar(Kernel, kw_only=True):
    """k = 1 if u <= 1, else 0: equal weights within the width. Rosenblatt 1956, for densities.

    It has no gradient, so the width must be given.
    """

    compact = True
    has_gradient = False

    def log_kernel(self, squares):
        return jnp.where(squares <= 1, 0.0, -jnp.inf).astype(squares.dtype)

    @staticmethod
    def log_volume(features):
        return log_ball(features)


class Triangular(Kernel, kw_only=True):
    """k = max(0, 1 - u). Parzen 1962, for densities."""

    compact = True

    def log_kernel(self, squares):
        # The distance has no gradient at 0, and the logarithm none at 1: the inner `where` keeps both out of the
        # backward pass.
        apart = squares > 0
        distance = jnp.where(apart, jnp.sqrt(jnp.where(apart, squares, 1.0)), 0.0)
        near = distance < 1
        return jnp.where(near, jnp.log1p(-jnp.where(near, distance, 0.0)), -jnp.inf)

    @staticmethod
    def log_volume(features):
        return log_ball(features) - math.log(features + 1)


class Epanechnikov(Kernel, kw_only=True):
    """k = max(0, 1 - u^2), the non-negative kernel of least mean squared error (Epanechnikov 1969).

    Some texts use this name for max(0, 1 - |u|), which is `Triangular` here.
    """

    compact = True

    def log_kernel(self, squares):
        inside = squares < 1
        return jnp.where(inside, jnp.log1p(-jnp.where(inside, jnp.maximum(squares, 0.0), 0.0)), -jnp.inf)

    @staticmethod
    def log_volume(features):
        return log_ball(features) + math.log(2 / (features + 2))


class Constant(Kernel, kw_only=True):
    """k = 1: equal weights for all keys, so the context is the mean of the values. It has no width."""

    def precision(self, features, dtype=jnp.float32):
        return jnp.ones((), dtype)

    def log_kernel(self, squares):
        return jnp.zeros_like(squares)

    @staticmethod
    def log_volume(features):
        raise ScoreError("the constant kernel has no finite integral, and so no density")


def log_ball(features: int) -> float:
    """Computes the log of the volume of the unit ball in `features` dimensions."""
    return 0.5 * features * math.log(math.pi) - math.lgamma(0.5 * features + 1)


def check_width(width: tuple, features: int) -> tuple:
    """Returns the width if it is one positive number, or one positive number per column.

    Raises:
        ValueError: the width is neither.
    """
    good = all(isinstance(w, int | float) and math.isfinite(w) and w > 0 for w in width)
    if not good or len(width) not in (1, features):
        many = f", or {features} of them, one per column" if features > 1 else ""
        raise ValueError(f"width {tuple(width)}: expected one finite number above 0{many}")
    return width


KERNELS = {
    "gaussian": Gaussian,
    "boxcar": Boxcar,
    "triangular": Triangular,
    "epanechnikov": Epanechnikov,
    "constant": Constant,
}
