"""Interface of scores: a module in two parts; the part that needs no query is computed once per memory.

    projected_keys = score.project_keys(keys [..., k, dk])
    scores [..., q, k] = score(query [..., q, dq], projected_keys)

Leading axes (batch, heads, beams) are arbitrary and broadcast; a score treats them all the same. In half precision,
scores would be rounded before a normalizer uses them, so a score that `widens` returns float32 instead.
"""

from collections.abc import Callable
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.errors import ScopeCollectionNotFound

from attn_jax.types import Array, Float, wide, widest

Query = Float[Array, "... q dq"]
Keys = Float[Array, "... k dk"]
Scores = Float[Array, "... q k"]


def unit(x: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Computes x / |x|; if |x| < 1e-6 a constant 0, since the gradient would be of the order of 1 / |x|.

    The sum of squares is in float32 at least: small squares underflow and large squares overflow in float16.
    """
    numbers = wide(x)
    square = jnp.sum(jnp.square(numbers), axis=-1, keepdims=True)
    large = square > 1e-12
    return jnp.where(large, numbers * jax.lax.rsqrt(jnp.where(large, square, 1)), 0).astype(x.dtype)


def products(query: Query, keys: Keys) -> Scores:
    """Computes query . key of all pairs, in float32 at least: float16 overflows, bfloat16 has steps of 1 / 4 at 63."""
    return jnp.einsum("...qd,...kd->...qk", query, keys, preferred_element_type=widest(query, keys))


class ScoreError(ValueError):
    """Raised for arguments that a score is undefined for, such as queries and keys of different widths."""


class Score(nn.Module, kw_only=True):
    """score(query [..., q, dq], keys [..., k, dk]) -> [..., q, k].

    To add a score, subclass this class and define `__call__`, and `project_keys` if a part of the score needs no query.
    """

    compact = False  # whether keys out of reach have the score -inf, for which a normalizer must be `infinite`
    by_key: ClassVar[bool] = True  # whether the score of a key is independent of other keys and of its index
    widens: ClassVar[bool] = False  # whether scores are float32 at least; weights then have the type of query and keys
    own_width: ClassVar[bool] = False  # whether projected keys have `features` columns, and queries need the same width

    @nn.nowrap
    def fused_scale(self, features: int) -> float | None:
        """Returns c if the score is exactly c project_query(query) . projected key, for this width; else None.

        The fused kernel may compute such a score (see fused.py). A subclass that overrides `__call__` must override
        this method as well.
        """
        return None

    def project_keys(self, keys: Keys) -> Float[Array, "... k d"]:
        """Computes the part of the score that needs no query."""
        return keys

    def project_query(self, query: Query) -> Query:
        """Returns the vector whose product with the projected keys the fused kernel computes; by default the query."""
        return query

    def place_query(self, query: Query) -> Query:
        """Returns the query as a point in the space of projected keys, where a line is fitted; by default the query."""
        return query

    def bound(self) -> Callable[[Query, Keys], Scores]:
        """Returns the score with its parameters as a plain function, which, unlike a module, JAX loops can call."""
        variables, score = self.variables, self.clone(parent=None)
        return lambda query, projected_keys: score.apply(variables, query, projected_keys)

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        """Computes the score of each query and key."""
        raise NotImplementedError


def same_width(score: Score, query: Array, keys: Array) -> None:
    """Checks that queries and keys have the same width.

    Raises:
        ScoreError: the widths differ.
    """
    if query.shape[-1] != keys.shape[-1]:
        raise ScoreError(
            f"the {type(score).__name__} score needs queries and keys of one width, "
            f"got {query.shape[-1]} and {keys.shape[-1]}; the general score takes different ones"
        )


def scores_of(score: Score, query: Query, keys: Keys) -> Scores:
    """Computes the scores of keys that were not projected before; as the `method` of `apply`."""
    return score(query, score.project_keys(keys))


def as_function(score: Score) -> Callable[[Query, Keys], Scores]:
    """Returns a score without parameters as a function of query and keys.

    Raises:
        ValueError: from the function, if the score has parameters.
    """
    score = score.clone(parent=None)

    def scores(query: Query, keys: Keys) -> Scores:
        try:
            return score.apply({}, query, keys, method=scores_of)
        except ScopeCollectionNotFound:
            raise ValueError(
                f"the score {type(score).__name__} has parameters; expected a function that uses them, or the module "
                "attn_jax.attention(score=..., block_size=...)"
            ) from None

    return scores
