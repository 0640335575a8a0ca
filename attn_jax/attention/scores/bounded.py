"""Bounded scores, which keep training stable: QK norm and the soft cap."""

from collections.abc import Callable
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.scores.base import Keys, Query, Score, Scores, products, same_width, unit
from attn_jax.parts import option
from attn_jax.types import Array, Float


class QKNorm(Score, kw_only=True):
    """c cos(query, key): the cosine times a learned scale c > 0, which is the inverse of a temperature.

    Henry 2020 (arXiv 2010.04245). c = sqrt(d) exp(log_scale) starts at sqrt(d), d the width of the queries. At this
    value it is the scaled dot product after an RMS norm (without gains) of query and key, another form of QK norm.
    |score| <= c. A rotation of queries and keys by their positions keeps their norms, so it may come before.
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
    """softcap tanh(score / softcap) for any score: close to the score if it is small, never beyond the cap.

    Gemma 2 (Google 2024, arXiv 2408.00118), with a cap of 50 for attention. A position bias is added after the cap.

    Attributes:
        score: the score to be capped.

    Raises:
        ValueError: the cap is not above 0, or the score is a compact kernel, which is -inf out of reach.
    """

    score: Score
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
        """Tells whether the score of a key is independent of other keys."""
        return self.score.by_key

    @property
    def widens(self) -> bool:
        """Tells whether the scores are float32 at least."""
        return self.score.widens

    @property
    def own_width(self) -> bool:
        """Tells whether projected keys have `features` columns."""
        return self.score.own_width

    def project_keys(self, keys: Keys) -> Float[Array, "... k d"]:
        return self.score.project_keys(keys)

    def place_query(self, query: Query) -> Query:
        return self.score.place_query(query)

    def bound(self) -> Callable[[Query, Keys], Scores]:
        # Not self.variables: the score has its parameters elsewhere if it was made in a compact method.
        score = self.score.bound()
        return lambda query, projected_keys: self._capped(score(query, projected_keys))

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        return self._capped(self.score(query, projected_keys))

    @nn.nowrap
    def _capped(self, scores: Scores) -> Scores:
        return self.softcap * jnp.tanh(scores / self.softcap)


BOUNDED = {"qk_norm": QKNorm}
