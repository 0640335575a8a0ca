"""Scores that cannot grow without bound, so that training stays stable: QK norm and the soft cap."""

from collections.abc import Callable
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.scores.base import Keys, Query, Score, Scores, products, same_width, unit
from attn_jax.parts import option
from attn_jax.types import Array, Float


class QKNorm(Score, kw_only=True):
    """c cos(query, key): the cosine times a learned scale c > 0, which is the inverse of a temperature.

    Henry 2020 (arXiv 2010.04245). c = sqrt(d) exp(log_scale) starts at sqrt(d), d the width of the queries: there it is
    the scaled dot product of query and key after an RMS norm of each (without gains), another form of QK norm.
    |score| <= c. A rotation of queries and keys by their positions changes no norm, so it may come before.
    """

    widens: ClassVar[bool] = True

    def setup(self):
        self.log_scale = self.param("log_scale", nn.initializers.zeros, (), jnp.float32)

    @nn.nowrap
    def fused_scale(self, features):
        return 1.0

    def project_keys(self, keys: Keys) -> Float[Array, "... k d"]:
        return unit(keys)

    def place_query(self, query: Query) -> Query:
        return unit(query)

    def project_query(self, query: Query) -> Query:
        scale = query.shape[-1] ** 0.5 * jnp.exp(self.log_scale)
        return scale.astype(query.dtype) * unit(query)

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        same_width(self, query, projected_keys)
        return products(self.project_query(query), projected_keys)


class Softcap(Score, kw_only=True):
    """softcap tanh(score / softcap) of any score: about the score where it is small, and never beyond the cap.

    Gemma 2 (Google 2024, arXiv 2408.00118), with a cap of 50 for attention. A bias by position is added afterwards.

    Raises:
        ValueError: a cap that is not above 0, or a compact kernel, whose score is -inf out of reach.
    """

    score: Score  # that is capped
    softcap: float = option(50.0, "largest absolute score", at_least=1e-6)

    def __post_init__(self):
        if not self.softcap > 0:
            raise ValueError(f"softcap is {self.softcap}; expected a number above 0")
        if self.score.compact:
            raise ValueError(
                f"softcap would make the score -inf of {type(self.score).__name__}, for keys out of reach, finite; "
                "leave it out, or use another score"
            )
        super().__post_init__()

    @property
    def by_key(self) -> bool:
        """Tells whether the score of a key depends on no other key."""
        return self.score.by_key

    @property
    def widens(self) -> bool:
        """Tells whether the scores are in float32 at least."""
        return self.score.widens

    @property
    def own_width(self) -> bool:
        """Tells whether projected keys have a width of their own."""
        return self.score.own_width

    def project_keys(self, keys: Keys) -> Float[Array, "... k d"]:
        return self.score.project_keys(keys)

    def place_query(self, query: Query) -> Query:
        return self.score.place_query(query)

    def bound(self) -> Callable[[Query, Keys], Scores]:
        score = self.score.bound()  # its parameters are elsewhere where it was made in a compact method
        return lambda query, projected_keys: self._capped(score(query, projected_keys))

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        return self._capped(self.score(query, projected_keys))

    @nn.nowrap
    def _capped(self, scores: Scores) -> Scores:
        return self.softcap * jnp.tanh(scores / self.softcap)


BOUNDED = {"qk_norm": QKNorm}
