"""Embeddings of tokens."""

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.types import Array, Dtype, Float, Int


class Embedding(nn.Module, kw_only=True):
    """sqrt(d) E[token], with E of variance 1 / d at first.

    Vaswani 2017 (arXiv 1706.03762), section 3.4: with this scale the same E can be the weights of the output layer.
    """

    vocab_size: int
    features: int
    dtype: Dtype = jnp.float32

    def setup(self):
        self.table = nn.Embed(
            num_embeddings=self.vocab_size,
            features=self.features,
            embedding_init=nn.initializers.normal(self.features**-0.5),
            dtype=self.dtype,
        )

    def __call__(self, tokens: Int[Array, "..."]) -> Float[Array, "... d"]:
        return self.table(tokens) * self.features**0.5

    @property
    def weights(self) -> Float[Array, "v d"]:
        """E, without the factor sqrt(d)."""
        return self.table.embedding
