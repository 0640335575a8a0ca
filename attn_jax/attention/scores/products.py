"""Scores: how well each key answers each query. See score.py for what all of them share, kernels.py for kernels."""

from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.scores.base import Keys, Query, Score, Scores, same_width
from attn_jax.errors import UserError
from attn_jax.types import Array, Float


class Dot(Score):
    """query . key. Luong 2015 (arXiv 1508.04025), section 3.1, "dot"; both have the same width."""

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        same_width(self, query, projected_keys)
        return jnp.einsum("...qd,...kd->...qk", query, projected_keys)


class ScaledDot(Score):
    """query . key / sqrt(d). Vaswani 2017 (arXiv 1706.03762), equation 1."""

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        same_width(self, query, projected_keys)
        return jnp.einsum("...qd,...kd->...qk", query, projected_keys) / query.shape[-1] ** 0.5


class General(Score):
    """query . W key, the bilinear score. Luong 2015 (arXiv 1508.04025), section 3.1, "general"."""

    query_features: int  # width of the query

    def setup(self):
        self.key = nn.Dense(self.query_features, use_bias=False)

    def project_keys(self, keys: Keys) -> Float[Array, "... k d"]:
        return self.key(keys)

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        same_width(self, query, projected_keys)
        return jnp.einsum("...qd,...kd->...qk", query, projected_keys)


class Additive(Score):
    """v . tanh(W query + U key + b). Bahdanau 2015 (arXiv 1409.0473), appendix A.1.2.

    Computed as [..., q, k, features] at once.
    """

    features: int  # width of the hidden layer
    use_bias: bool = True

    def setup(self):
        self.query = nn.Dense(self.features, use_bias=self.use_bias)
        self.key = nn.Dense(self.features, use_bias=False)
        self.vector = nn.Dense(1, use_bias=False)

    def project_keys(self, keys: Keys) -> Float[Array, "... k d"]:
        return self.key(keys)

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        hidden = jnp.tanh(self.query(query)[..., :, None, :] + projected_keys[..., None, :, :])
        return self.vector(hidden)[..., 0]


class Concat(Additive):
    """v . tanh(W [query; key]). Luong 2015 (arXiv 1508.04025), section 3.1, "concat".

    W [query; key] = W_q query + W_k key, so this is the additive score without its bias; the
    concatenated vectors themselves are never formed.
    """

    use_bias: bool = False


class TanhKey(Score):
    """query . tanh(W key + b): the additive score of a query that is learned, and so need not enter the tanh.

    Lin 2017 (arXiv 1703.03130); Yang 2016 (hierarchical attention). The query has `features` columns.
    """

    own_width: ClassVar[bool] = True
    features: int

    def setup(self):
        self.key = nn.Dense(self.features)

    def project_keys(self, keys: Keys) -> Float[Array, "... k d"]:
        return jnp.tanh(self.key(keys))

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        same_width(self, query, projected_keys)
        return jnp.einsum("...qd,...kd->...qk", query, projected_keys)


class Location(Score):
    """scores = W query: from the query alone, one row of W per position of the memory.

    Luong 2015 (arXiv 1508.04025), equation 8. Knows `max_length` positions; a longer memory is a
    UserError. A shorter one reads the first rows, so padding changes nothing.
    """

    max_length: int

    def setup(self):
        self.position = nn.Dense(self.max_length, use_bias=False)

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        length = projected_keys.shape[-2]
        if length > self.max_length:
            raise UserError(
                f"the location score has {self.max_length} positions, but the memory has {length}; "
                "set a larger model.attention.max_length or use another score"
            )
        scores = self.position(query)[..., :length]
        # It never looks at a key, but takes the leading axes of the keys like every other score.
        leading = jnp.broadcast_shapes(query.shape[:-2], projected_keys.shape[:-2])
        return jnp.broadcast_to(scores, leading + scores.shape[-2:])


class Norm(Score):
    """|key|: how strong a key is, whatever the query. Malinowski 2018 (arXiv 1808.00300).

    Read with the k largest ("top"), it is their hard attention without sampling: the choice has no gradient, and
    learns all the same, since what the loss makes larger is read more often.
    """

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        scores = jnp.sqrt(jnp.sum(jnp.square(projected_keys), axis=-1) + 1e-12)  # finite gradient at zero
        leading = jnp.broadcast_shapes(query.shape[:-2], projected_keys.shape[:-2])
        return jnp.broadcast_to(scores[..., None, :], (*leading, query.shape[-2], scores.shape[-1]))


PRODUCTS = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "concat": Concat,
    "additive": Additive,
    "tanh_key": TanhKey,
    "location": Location,
    "norm": Norm,
}
