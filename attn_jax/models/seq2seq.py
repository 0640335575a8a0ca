"""Sequence to sequence with a recurrent encoder and any of the decoders in decoders.py.

`Seq2SeqModule` holds the parameters; `Seq2Seq` is what the rest of the project sees of a model: pure
functions of (params, batch). A batch has `source` [b, s], `target_in` and `target_out` [b, t]; positions
that hold `pad` never change a result.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.metrics import Mean
from attn_jax.models.decoders import Decoder, DecoderState, Encoded
from attn_jax.models.rnn import RNN
from attn_jax.types import Array, Batch, Dtype, Float, Int, Metrics, Params, PRNGKeyArray, PyTree


class Seq2SeqModule(nn.Module):
    """Embeddings, encoder, decoder and output layer."""

    source_vocab_size: int
    target_vocab_size: int
    embedding_size: int
    encoder: RNN
    decoder: Decoder
    output: nn.Module
    dropout: float = 0.0
    pad: int = 0
    dtype: Dtype = jnp.float32

    def setup(self):
        init = nn.initializers.normal(0.1)
        self.source_embedding = nn.Embed(
            self.source_vocab_size, self.embedding_size, embedding_init=init, dtype=self.dtype
        )
        self.target_embedding = nn.Embed(
            self.target_vocab_size, self.embedding_size, embedding_init=init, dtype=self.dtype
        )
        self.drop = nn.Dropout(self.dropout)

    def encode(self, source: Int[Array, "b s"], train: bool = False) -> Encoded:
        mask = source != self.pad
        embedded = self.drop(self.source_embedding(source), deterministic=not train)
        last, states = self.encoder(embedded, mask, train)
        return Encoded(self.drop(states, deterministic=not train), mask, last)

    def unroll(
        self, source: Int[Array, "b s"], target_in: Int[Array, "b t"], train: bool = False
    ) -> tuple[Float[Array, "b t d"], Float[Array, "b t s"]]:
        """Teacher forced: (hidden states that the output layer takes, attention weights)."""
        memory, state = self.decoder.start(self.encode(source, train))
        embedded = self.drop(self.target_embedding(target_in), deterministic=not train)
        hidden, weights = self.decoder.unroll(memory, state, embedded, train)
        return self.drop(hidden, deterministic=not train), weights

    def loss(self, source: Int[Array, "b s"], target_in: Int[Array, "b t"], targets: Int[Array, "b t"], train: bool):
        """(training loss, nll, correct), each [b, t]."""
        hidden, _ = self.unroll(source, target_in, train)
        return self.output.loss(hidden, targets, self.target_embedding.embedding)

    def start(self, source: Int[Array, "b s"]) -> tuple[PyTree, DecoderState]:
        return self.decoder.start(self.encode(source))

    def step(self, memory: PyTree, state: DecoderState, token: Int[Array, "b"]):
        state, hidden = self.decoder.step(memory, state, self.target_embedding(token))
        return state, self.output.log_probs(hidden, self.target_embedding.embedding)


@dataclasses.dataclass(frozen=True)
class Seq2Seq:
    """The model as pure functions."""

    module: Seq2SeqModule

    def init(self, rng: PRNGKeyArray, batch: Batch) -> Params:
        """Fresh parameters, in float32."""
        args = batch["source"], batch["target_in"], batch["target_out"]
        return self.module.init(rng, *args, train=False, method="loss")["params"]

    def loss_fn(self, params: Params, batch: Batch, rng: PRNGKeyArray) -> tuple[Float[Array, ""], Metrics]:
        """Training: the summed loss of the real target tokens, with dropout and label smoothing."""
        loss, nll, _ = self._losses(params, batch, train=True, rngs={"dropout": rng})
        real = self._real(batch)
        count = jnp.sum(real)
        return jnp.sum(loss * real), {
            "loss": Mean(jnp.sum(loss * real), count),
            "nll": Mean(jnp.sum(nll * real), count),
        }

    def eval_fn(self, params: Params, batch: Batch) -> Metrics:
        """Evaluation: nll per real target token and the share of tokens that the model would have chosen."""
        _, nll, correct = self._losses(params, batch, train=False)
        real = self._real(batch)
        count = jnp.sum(real)
        return {"loss": Mean(jnp.sum(nll * real), count), "accuracy": Mean(jnp.sum(correct * real), count)}

    def score(self, params: Params, batch: Batch) -> Float[Array, "b"]:
        """log p(target | source) of each pair, eos included."""
        _, nll, _ = self._losses(params, batch, train=False)
        return -jnp.sum(nll * self._real(batch), axis=-1)

    def align(self, params: Params, batch: Batch) -> Float[Array, "b t s"]:
        """The attention weights of the teacher-forced pass."""
        args = batch["source"], batch["target_in"]
        return self.module.apply({"params": params}, *args, method="unroll")[1]

    def start(self, params: Params, source: Int[Array, "b s"]) -> tuple[PyTree, DecoderState]:
        """What decode.py needs: the memory, which it never changes, and the state, which `step` does."""
        return self.module.apply({"params": params}, source, method="start")

    def step(
        self, params: Params, memory: PyTree, state: DecoderState, token: Int[Array, "b"]
    ) -> tuple[DecoderState, Float[Array, "b v"]]:
        """log p(next token | tokens so far) and the state after `token`."""
        return self.module.apply({"params": params}, memory, state, token, method="step")

    def _losses(self, params: Params, batch: Batch, train: bool, rngs: dict | None = None):
        args = batch["source"], batch["target_in"], batch["target_out"]
        return self.module.apply({"params": params}, *args, train=train, rngs=rngs, method="loss")

    def _real(self, batch: Batch) -> Float[Array, "b t"]:
        return jnp.asarray(batch["target_out"] != self.module.pad, jnp.float32)


def num_parameters(params: Params) -> int:
    """How many numbers the parameters hold."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
