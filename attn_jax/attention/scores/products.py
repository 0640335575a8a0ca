"""Scores from products of query and key. base.py has the interface, kernels.py has scores from distances."""

from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.scores.base import Keys, Query, Score, ScoreError, Scores, products, same_width
from attn_jax.parts import option
from attn_jax.types import Array, Float, wide


class Dot(Score, kw_only=True):
    """query . key. Luong 2015 (arXiv 1508.04025), section 3.1, "dot"; both have the same width."""

    widens: ClassVar[bool] = True

    @nn.nowrap
    def fused_scale(self, features):
        return 1.0

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        same_width(self, query, projected_keys)
        return products(query, projected_keys)


class ScaledDot(Score, kw_only=True):
    """query . key / sqrt(d). Vaswani 2017 (arXiv 1706.03762), equation 1."""

    widens: ClassVar[bool] = True

    @nn.nowrap
    def fused_scale(self, features):
        return features**-0.5

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        same_width(self, query, projected_keys)
        return products(query, projected_keys) / query.shape[-1] ** 0.5


class General(Score, kw_only=True):
    """query . W key, the bilinear score. Luong 2015 (arXiv 1508.04025), section 3.1, "general".

    Attributes:
        query_features: width of the queries.
    """

    query_features: int

    widens: ClassVar[bool] = True

    def setup(self):
        self.key = nn.Dense(self.query_features, use_bias=False)

    def project_keys(self, keys: Keys) -> Float[Array, "... k d"]:
        return self.key(keys)

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        if query.shape[-1] != self.query_features:
            raise ScoreError(f"query_features of the General score is {self.query_features}, got {query.shape[-1]}")
        return products(query, projected_keys)


class Additive(Score, kw_only=True):
    """v . tanh(W query + U key + b). Bahdanau 2015 (arXiv 1409.0473), appendix A.1.2.

    Computed as [..., q, k, features] at once.

    Attributes:
        use_bias: whether there is a bias b.
    """

    features: int = option(256, "width of the hidden layer", at_least=1)
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


class Concat(Additive, kw_only=True):
    """v . tanh(W [query; key]). Luong 2015 (arXiv 1508.04025), section 3.1, "concat".

    W [query; key] = W_q query + W_k key, so this is the additive score without a bias; the concatenated vectors are
    never formed.

    Attributes:
        use_bias: whether there is a bias; the paper has none.
    """

    use_bias: bool = False


class TanhKey(Score, kw_only=True):
    """query . tanh(W key + b): an additive score for learned queries, which replace the vector v.

    Lin 2017 (arXiv 1703.03130); Yang 2016 (hierarchical attention).
    """

    features: int = option(256, "width of the hidden layer and of the queries", at_least=1)

    widens: ClassVar[bool] = True
    own_width: ClassVar[bool] = True

    def setup(self):
        self.key = nn.Dense(self.features)

    def project_keys(self, keys: Keys) -> Float[Array, "... k d"]:
        return jnp.tanh(self.key(keys))

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        same_width(self, query, projected_keys)
        return products(query, projected_keys)


class Location(Score, kw_only=True):
    """scores = W query, with one row of W per position: a score of positions that depends only on the query.

    Luong 2015 (arXiv 1508.04025), equation 8. A memory shorter than `max_length` uses the first rows, so padding has no
    effect; a longer one raises a ScoreError.
    """

    max_length: int = option(100, "largest number of keys", at_least=1)

    by_key: ClassVar[bool] = False

    def setup(self):
        self.position = nn.Dense(self.max_length, use_bias=False)

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        length = projected_keys.shape[-2]
        if length > self.max_length:
            raise ScoreError(
                f"the location score has {self.max_length} positions, but the memory has {length}; "
                "set a larger max_length or use another score"
            )
        scores = self.position(query)[..., :length]
        # The score ignores the keys, but their leading axes broadcast as in every other score.
        leading = jnp.broadcast_shapes(query.shape[:-2], projected_keys.shape[:-2])
        return jnp.broadcast_to(scores, leading + scores.shape[-2:])


class Norm(Score, kw_only=True):
    """|key|: the norm of the key, independent of the query. Malinowski 2018 (arXiv 1808.00300).

    With the reading `top` it is their hard attention without sampling. The choice of keys has no gradient. It is
    trained indirectly: training changes the norms of the keys that are read.
    """

    widens: ClassVar[bool] = True

    def __call__(self, query: Query, projected_keys: Keys) -> Scores:
        keys = wide(projected_keys)
        scores = jnp.sqrt(jnp.sum(jnp.square(keys), axis=-1) + 1e-12)  # finite gradient at zero
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
