"""A recurrent language model (Mikolov 2010): layers of a recurrent cell over the text, and an output layer.

    h_t = cell(h_{t-1}, E[y_{t-1}])        p(y_t | y_<t) = output(h_t)

A source, if there is one, is read by the same cells before the target: source tokens, eos, bos, target tokens, eos.
"""

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.dropout import Dropout
from attn_jax.attention.masks import checked_masks
from attn_jax.layers.embedding import Table
from attn_jax.layers.rnn import Cell, Recurrence, State
from attn_jax.models.base import continued
from attn_jax.models.module import SequenceModule
from attn_jax.outputs.base import OutputLayer, sampling_rng
from attn_jax.types import Array, Bool, Dtype, Float, Int


class DecodeState(struct.PyTreeNode):
    """The state of decoding; "..." is empty, or the beam axis in a search."""

    states: tuple[State, ...]  # of each layer
    first: Int[Array, "b ..."]  # token that the first `step` reads instead of bos; -1: none, also after the first step


class RecurrentLanguageModel(SequenceModule, kw_only=True):
    """p(target | source) by recurrent layers, with dropout of embeddings, between the layers and of the output.

    With `continue_source` the source is the beginning of the target itself, and the model continues it: it reads eos,
    bos, source, target. In training the source is then empty.
    """

    source_vocab_size: int
    target_vocab_size: int
    embedding_size: int
    features: int
    cell: Cell
    output: OutputLayer
    num_layers: int = 1
    dropout: float = 0.0
    share_embeddings: bool = False
    continue_source: bool = False
    pad: int = 0
    bos: int = 2
    eos: int = 3
    dtype: Dtype = jnp.float32

    def setup(self):
        common = {"features": self.embedding_size, "embedding_init": nn.initializers.normal(0.1), "dtype": self.dtype}
        self.target_embedding = Table(num_embeddings=self.target_vocab_size, **common)
        if not self.share_embeddings:
            self.source_embedding = Table(num_embeddings=self.source_vocab_size, **common)
        self.layers = [
            Recurrence(cell=self.cell, features=self.features, dtype=self.dtype) for _ in range(self.num_layers)
        ]
        self.drop = Dropout(rate=self.dropout)

    @checked_masks
    def run(
        self, states: tuple[State, ...], embedded: Float[Array, "b t e"], mask: Bool[Array, "b t"], *, train: bool
    ) -> tuple[tuple[State, ...], Float[Array, "b t d"]]:
        """Runs all layers over a sequence; returns (last states, outputs of the last layer)."""
        x, last = self.drop(embedded, deterministic=not train), []
        for layer, state in zip(self.layers, states, strict=True):
            state, x = layer(x, mask, state=state)
            x = self.drop(x, deterministic=not train)
            last.append(state)
        return tuple(last), x

    def read(self, source: Int[Array, "b s"], *, train: bool = False) -> tuple[State, ...]:
        """Returns the states after the source."""
        states = tuple(layer.initial_state(len(source)) for layer in self.layers)
        return self.run(states, self.embed_source(source), source != self.pad, train=train)[0]

    def embed_source(self, source: Int[Array, "b s"]) -> Float[Array, "b s e"]:
        """Returns the embeddings of source tokens."""
        return (self.target_embedding if self.share_embeddings else self.source_embedding)(source)

    def unroll(self, source: Int[Array, "b s"], target_in: Int[Array, "b t"], *, train: bool = False):
        """Returns the hidden states of the teacher-forced pass [b, t, d]."""
        if not self.continue_source or source.shape[1] == 1:  # eos alone, as in training
            embedded = self.target_embedding(target_in)
            return self.run(self.read(source, train=train), embedded, target_in != self.pad, train=train)[1]
        index = continued(source, target_in, pad=self.pad)
        text = jnp.take_along_axis(jnp.concatenate([source, target_in], axis=1), index, axis=1)
        num_tokens = jnp.maximum(jnp.sum(source != self.pad, axis=1, keepdims=True) - 1, 0)
        own = num_tokens + jnp.arange(target_in.shape[1])[None]
        real = (text != self.pad) & (jnp.arange(text.shape[1])[None] < num_tokens + target_in.shape[1])
        begun = self.read(jnp.full_like(source[:, :1], self.eos), train=train)
        hidden = self.run(begun, self.target_embedding(text), real, train=train)[1]
        return jnp.take_along_axis(hidden, own[..., None], axis=1)

    def real(self, targets: Int[Array, "b t"]) -> Bool[Array, "b t"]:
        """True at the target positions that count."""
        return targets != self.pad

    def losses(self, source: Int[Array, "b s"], target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        """Returns (training loss, negative log-likelihood) of each target token, each [b, t]."""
        hidden = self.unroll(source, target_in, train=True)
        return self.output.loss(hidden, targets, embedding=self.target_embedding.rows, rng=sampling_rng(self))

    def evaluate(self, source: Int[Array, "b s"], target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        """Returns (nll [b, t], 1 where the target is the most probable token [b, t], zeros [b, t, s])."""
        hidden = self.unroll(source, target_in)
        nll, correct = self.output.nll_and_correct(hidden, targets, embedding=self.target_embedding.rows)
        return nll, correct, jnp.zeros((*targets.shape, source.shape[1]), jnp.float32)

    def start(self, source: Int[Array, "b s"], length: int) -> tuple[tuple, DecodeState]:
        """Reads the source; the memory is empty, and the size of the state does not depend on `length`."""
        first = jnp.full(len(source), -1, jnp.int32)
        if not self.continue_source:
            return (), DecodeState(states=self.read(source), first=first)
        # source eos  ->  eos bos source, whose last token is left for the first `step`
        num_tokens = jnp.sum(source != self.pad, axis=1) - 1
        states = self.read(jnp.full_like(source[:, :1], self.eos))
        begun = jnp.concatenate([jnp.full_like(source[:, :1], self.bos), source], axis=1)[:, :-1]
        mask = jnp.arange(begun.shape[1])[None] < num_tokens[:, None]
        states, _ = self.run(states, self.target_embedding(begun), mask, train=False)
        last = jnp.take_along_axis(source, jnp.maximum(num_tokens - 1, 0)[:, None], axis=1)[:, 0]
        return (), DecodeState(states=states, first=jnp.where(num_tokens > 0, last, first))

    def advance(self, state: DecodeState, token: Int[Array, "b"]) -> tuple[DecodeState, Float[Array, "b d"]]:
        """Returns (decode state after `token`, hidden state)."""
        x, states = self.target_embedding(jnp.where(state.first >= 0, state.first, token)), []
        for layer, before in zip(self.layers, state.states, strict=True):
            after = layer.step(before, layer.project(x))
            states.append(after)
            x = after[0]
        return DecodeState(states=tuple(states), first=jnp.full_like(state.first, -1)), x

    def step(self, memory: tuple, state: DecodeState, token: Int[Array, "b"]):
        """Returns (decode state after `token`, log p(next token) [b, v])."""
        state, hidden = self.advance(state, token)
        return state, self.output.log_probs(hidden, embedding=self.target_embedding.rows)

    def step_top_k(self, memory: tuple, state: DecodeState, token: Int[Array, "b"], k: int):
        """Returns (decode state after `token`, (log-probabilities, tokens) of the k most probable next tokens)."""
        state, hidden = self.advance(state, token)
        k = min(k, self.target_vocab_size)
        return state, self.output.top_k(hidden, k, embedding=self.target_embedding.rows)
