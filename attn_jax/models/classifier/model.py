"""Text classification: any encoder, pooling of its states to one vector, a softmax over the classes.

A class is a target of one word, so a classifier has the methods of a sequence model: the first target token is the
class, and after it eos has probability one.
"""

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.dense import Dense
from attn_jax.attention.dropout import Dropout
from attn_jax.attention.hard.estimators import gradient_only
from attn_jax.layers.embedding import Table
from attn_jax.models.module import ENCODER, Maps, OneTokenModule, of_layers
from attn_jax.outputs.base import OutputLayer, sampling_rng
from attn_jax.types import Array, Bool, Dtype, Float, Int, Source


class Classifier(OneTokenModule, kw_only=True):
    """softmax(W2 relu(W1 pooled + b1) + b2) over the target vocabulary; see Lin 2017, section 4.1."""

    source_vocab_size: int
    embedding_size: int
    encoder: nn.Module
    pooling: nn.Module
    output: OutputLayer
    features: int
    picture: nn.Module | None = None  # embeds sources that are images, see layers/pictures.py
    penalty: float = 0.0  # weight of the pooling's penalty in the loss
    dropout: float = 0.0
    dtype: Dtype = jnp.float32

    @property
    def num_queries(self) -> int:
        """Number of queries of the pooling, each with its weights."""
        return self.pooling.num_queries

    def setup(self):
        init = nn.initializers.normal(self.embedding_size**-0.5)
        self.embedding = Table(
            num_embeddings=self.source_vocab_size,
            features=self.embedding_size,
            embedding_init=init,
            dtype=self.dtype,
        )
        self.inner = Dense(features=self.features, dtype=self.dtype)
        self.drop = Dropout(rate=self.dropout)

    def embed(self, source: Source) -> tuple[Float[Array, "b s e"], Bool[Array, "b s"]]:
        """Returns (embedded source, mask that is False at padding)."""
        if self.picture is None:
            return self.embedding(source) * self.embedding_size**0.5, source != self.pad
        return self.picture(source)

    def read(self, source: Source, *, train: bool = False):
        """Returns (hidden state [b, d], attention weights of the r queries [b, r, s], penalty of the pooling [b])."""
        embedded, mask = self.embed(source)
        _, states = self.encoder(self.drop(embedded, deterministic=not train), mask, train=train)
        vector, weights, penalty = self.pooling(states, key_mask=mask, train=train)
        hidden = nn.relu(self.inner(self.drop(vector, deterministic=not train)))
        return self.drop(hidden, deterministic=not train), weights, penalty

    def losses(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        """Returns (training loss, negative log-likelihood), each [b, t] and zero after the class."""
        hidden, _, penalty = self.read(source, train=True)
        loss, nll = self.output.loss(hidden, targets[:, 0], rng=sampling_rng(self))
        return self._first(loss + gradient_only(self.penalty * penalty), targets), self._first(nll, targets)

    def evaluate(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        """Returns (nll [b, t], 1 where it is the most probable class [b, t], mean weights of the queries [b, t, s])."""
        hidden, weights, _ = self.read(source)
        nll, correct = self.output.nll_and_correct(hidden, targets[:, 0])
        return self._first(nll, targets), self._first(correct, targets), self._mean_weights(weights, targets)

    def maps(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]) -> Maps:
        found = self.encoder.maps(*self.embed(source))
        return {ENCODER: of_layers(found)} if found else {}

    def query_weights(self, source: Source) -> Float[Array, "b r s"]:
        """Returns the attention weights of each query."""
        return self.read(source)[1]

    def start(self, source: Source, length: int) -> tuple[Float[Array, "b v"], Int[Array, "b"]]:
        """Returns (log p of each class, number of steps taken: 0)."""
        hidden, _, _ = self.read(source)
        return self.output.log_probs(hidden), jnp.zeros(len(hidden), jnp.int32)
