"""Embeddings of tokens."""

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.layers.rows import RowTable
from attn_jax.types import Array, Callable, Dtype, Float, Int


class Table(nn.Module, kw_only=True):
    """E[token], like nn.Embed, with lookups that training can differentiate by rows; see layers/rows.py."""

    num_embeddings: int
    features: int
    embedding_init: Callable[..., Array]
    dtype: Dtype = jnp.float32

    def setup(self):
        self.embedding = self.param("embedding", self.embedding_init, (self.num_embeddings, self.features), jnp.float32)

    def __call__(self, tokens: Int[Array, "..."]) -> Float[Array, "... d"]:
        """Returns the vectors of tokens in the type of the computation."""
        return self.rows.take(tokens).astype(self.dtype)

    @property
    def rows(self) -> RowTable:
        """The table, for an output layer that shares it."""
        return RowTable(self, "embedding", self.embedding)


class Embedding(nn.Module, kw_only=True):
    """sqrt(d) E[token]; E is initialized with variance 1 / d.

    Vaswani 2017 (arXiv 1706.03762), section 3.4: with this scale the output layer can share E.
    """

    vocab_size: int
    features: int
    dtype: Dtype = jnp.float32

    def setup(self):
        self.table = Table(
            num_embeddings=self.vocab_size,
            features=self.features,
            embedding_init=nn.initializers.normal(self.features**-0.5),
            dtype=self.dtype,
        )

    def __call__(self, tokens: Int[Array, "..."]) -> Float[Array, "... d"]:
        return self.table(tokens) * self.features**0.5

    @property
    def rows(self) -> RowTable:
        """The table E, without the factor sqrt(d), for an output layer that shares it."""
        return self.table.rows
