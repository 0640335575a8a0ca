"""Kernels as scores: score = log k(query, key), where k falls with the distance of the two in units of a width h.

    u = |query - key| / h         kernel_sum of the score: weights_i = k(u_i) / sum_j k(u_j)         (Nadaraya 1964,
                                                                                                      Watson 1964)
The logarithm makes them scores like any other: the softmax of the Gaussian one is the Nadaraya-Watson weight, computed
without underflow however narrow the kernel is, and a key out of the reach of a compact kernel has the score -inf.
"""

import math

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.scores.base import Keys, Query, Score, Scores, same_width
from attn_jax.errors import UserError
from attn_jax.types import Array, Float


class Kernel(Score):
    """log k(u) with u^2 = sum over the columns j of (query_j - key_j)^2 / width_j^2.

    `width` is one number for all columns, or one per column; () means that it is learned, as log_precision =
    -2 log(width), with `per_column` one for each column. It starts at `initial`; () means d^(1/4), where the product
    within |query - key|^2 / h^2 is the scaled dot product of Vaswani 2017, and (2 d)^(1/2) for compact kernels, the
    distance of two random vectors with entries of variance one.

    The squares are |query|^2 + |key|^2 - 2 query . key, one matrix product; `exact` sums the squared differences
    instead, which loses no digits where a width is much smaller than the numbers themselves.
    """

    width: tuple = ()
    per_column: bool = False
    initial: tuple = ()
    exact: bool = False

    compact = False  # whether k is 0 from some distance on
    has_gradient = True  # with respect to the width

    def log_kernel(self, squares: Float[Array, "..."]) -> Float[Array, "..."]:
        """log k(u), -inf where k is 0, of u^2."""
        raise NotImplementedError

    @staticmethod
    def log_volume(features: int) -> float:
        """log of the integral of k(|u|) over all u in so many dimensions."""
        raise NotImplementedError

    @nn.compact
    def precision(self, features: int) -> Float[Array, "..."]:
        """1 / width^2: one number, or one per column."""
        if self.width:
            return jnp.square(1 / jnp.asarray(check_width(self.width, features), jnp.float32))
        first = self.initial or (((2 * features) ** 0.5 if self.compact else features**0.25),)
        start = jnp.array([-2 * math.log(w) for w in check_width(first, features)])
        shape = (features,) if self.per_column or len(first) > 1 else ()
        start = jnp.broadcast_to(start, (features,)) if shape else start[0]
        return jnp.exp(self.param("log_precision", lambda rng: start))

    @nn.compact
    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        same_width(self, query, projected_keys)
        precision = self.precision(query.shape[-1])
        if precision.ndim:
            query, projected_keys = (x * jnp.sqrt(precision).astype(x.dtype) for x in (query, projected_keys))
            precision = jnp.ones((), query.dtype)
        return self.log_kernel(precision * self.squares(query, projected_keys))

    def squares(self, query: Query, keys: Keys) -> Scores:
        """|query - key|^2."""
        if self.exact:
            return jnp.sum(jnp.square(query[..., :, None, :] - keys[..., None, :, :]), axis=-1)
        products = jnp.einsum("...qd,...kd->...qk", query, keys)
        norms = [jnp.sum(jnp.square(x), axis=-1) for x in (query, keys)]
        return norms[0][..., :, None] + norms[1][..., None, :] - 2 * products


class Gaussian(Kernel):
    """k = exp(-u^2 / 2): every key counts, however little."""

    def log_kernel(self, squares):
        return -0.5 * squares

    @staticmethod
    def log_volume(features):
        return 0.5 * features * math.log(2 * math.pi)


class Boxcar(Kernel):
    """k = 1 if u <= 1, else 0: all keys within a width count alike. It has no gradient, so no width is learned."""

    compact = True
    has_gradient = False

    def log_kernel(self, squares):
        return jnp.where(squares <= 1, 0.0, -jnp.inf).astype(squares.dtype)

    @staticmethod
    def log_volume(features):
        return log_ball(features)


class Triangular(Kernel):
    """k = max(0, 1 - u)."""

    compact = True

    def log_kernel(self, squares):
        # The distance has no gradient at 0, and the logarithm none at 1: neither may reach the backward pass.
        inside, apart = squares < 1, squares > 0
        distance = jnp.where(apart, jnp.sqrt(jnp.where(apart, squares, 1.0)), 0.0)
        distance = jnp.where(inside, distance, 0.0)
        near = distance < 1  # rounding may make a square below 1 a distance of 1
        return jnp.where(inside & near, jnp.log1p(-jnp.where(near, distance, 0.0)), -jnp.inf)

    @staticmethod
    def log_volume(features):
        return log_ball(features) - math.log(features + 1)


class Epanechikov(Kernel):
    """k = max(0, 1 - u^2), of the least mean squared error among non-negative kernels (Epanechnikov 1969).

    Some texts call max(0, 1 - |u|) by this name, which is `Triangular` here.
    """

    compact = True

    def log_kernel(self, squares):
        inside = squares < 1
        return jnp.where(inside, jnp.log1p(-jnp.where(inside, jnp.maximum(squares, 0.0), 0.0)), -jnp.inf)

    @staticmethod
    def log_volume(features):
        return log_ball(features) + math.log(2 / (features + 2))


class Constant(Kernel):
    """k = 1: attention to all alike, so that what is read is the mean. There is no width."""

    def precision(self, features):
        return jnp.ones(())

    def log_kernel(self, squares):
        return jnp.zeros_like(squares)

    @staticmethod
    def log_volume(features):
        raise UserError("the constant kernel has no finite integral, and so no density")


def log_ball(features: int) -> float:
    """log of the volume of the unit ball in so many dimensions."""
    return 0.5 * features * math.log(math.pi) - math.lgamma(0.5 * features + 1)


def check_width(width: tuple, features: int) -> tuple:
    """The width, or a UserError unless it is one positive number, or one for each of the columns."""
    good = all(isinstance(w, int | float) and math.isfinite(w) and w > 0 for w in width)
    if not good or len(width) not in (1, features):
        many = f", or {features} of them, one per column" if features > 1 else ""
        raise UserError(f"model.attention.width {tuple(width)}: expected one finite number above 0{many}")
    return width


KERNELS = {
    "gaussian": Gaussian,
    "boxcar": Boxcar,
    "triangular": Triangular,
    "epanechikov": Epanechikov,
    "constant": Constant,
}
