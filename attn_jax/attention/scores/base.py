"""Interface of scores: a module in two parts, so that the part without the query is computed once per memory.

    projected_keys = score.project_keys(keys [..., k, dk])
    scores [..., q, k] = score(query [..., q, dq], projected_keys)

Leading axes (batch, heads, beams) are arbitrary and broadcast; a score does not distinguish them. Scores of half
precision are rounded before a normalizer computes with them, so a score that `widens` gives float32 instead.
"""

from collections.abc import Callable
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.types import Array, Float, wide, widest

Query = Float[Array, "... q dq"]
Keys = Float[Array, "... k dk"]
Scores = Float[Array, "... q k"]


def unit(x: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Computes x / |x|, and where |x| < 1e-6 a constant 0, since the gradient would be of the order of 1 / |x|.

    The sum of squares is in float32 at least: float16 has neither small nor large squares.
    """
    numbers = wide(x)
    square = jnp.sum(jnp.square(numbers), axis=-1, keepdims=True)
    large = square > 1e-12
    return jnp.where(large, numbers * jax.lax.rsqrt(jnp.where(large, square, 1)), 0).astype(x.dtype)


def products(query: Query, keys: Keys) -> Scores:
    """Computes query . key of all pairs, in float32 at least: float16 overflows, bfloat16 has steps of 1 / 4 at 63."""
    return jnp.einsum("...qd,...kd->...qk", query, keys, preferred_element_type=widest(query, keys))


class ScoreError(ValueError):
    """Arguments that a score cannot be computed for, such as queries and keys of different widths."""


class Score(nn.Module, kw_only=True):
    """score(query [..., q, dq], keys [..., k, dk]) -> [..., q, k].

    To add one, subclass it, define `__call__`, and `project_keys` if part of the score needs no query.
    """

    compact = False  # whether keys out of reach have the score -inf, which needs a normalizer that is `infinite`
    by_key: ClassVar[bool] = True  # whether the score of a key depends on no other key, and not on its place
    widens: ClassVar[bool] = False  # whether scores are float32 at least; weights then have the type of query and keys
    own_width: ClassVar[bool] = False  # whether projected keys, and so queries, have `features` columns

    @nn.nowrap
    def fused_scale(self, features: int) -> float | None:
        """Returns c where the score is exactly c project_query(query) . projected key, of this width; else None.

        Such a score may be computed by the fused kernel (see fused.py). A subclass that changes `__call__` has to
        override this method as well.
        """
        return None

    def project_keys(self, keys: Keys) -> Float[Array, "... k d"]:
        """Computes the part of the score that needs no query."""
        return keys

    def project_query(self, query: Query) -> Query:
        """Computes what the fused kernel multiplies with the projected keys; the query itself by default."""
        return query

    def place_query(self, query: Query) -> Query:
        """Returns the place of the query among the projected keys, at which a line is fitted; itself by default."""
        return query

    def bound(self) -> Callable[[Query, Keys], Scores]:
        """Returns the score with its parameters as a plain function, which a loop of JAX may call, unlike a module."""
        variables, score = self.variables, self.clone(parent=None)
        return lambda query, projected_keys: score.apply(variables, query, projected_keys)

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        """Computes the score of each query and key."""
        raise NotImplementedError


def same_width(score: Score, query: Array, keys: Array) -> None:
    """Checks that queries and keys that are compared column by column have the same width.

    Raises:
        ScoreError: the widths differ.
    """
    if query.shape[-1] != keys.shape[-1]:
        raise ScoreError(
            f"the {type(score).__name__} score needs queries and keys of one width, "
            f"got {query.shape[-1]} and {keys.shape[-1]}; the general score takes different ones"
        )
