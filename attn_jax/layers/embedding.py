"""Embeddings of tokens, and the positions added to them."""

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.types import Array, Dtype, Float, Int


class Embedding(nn.Module, kw_only=True):
    """sqrt(d) E[token], E of variance 1 / d: so that the same E may be the output layer (section 3.4)."""

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
        return self.table.embedding
