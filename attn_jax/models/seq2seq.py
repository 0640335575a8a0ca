"""Sequence to sequence with a recurrent encoder and any of the decoders in decoders.py.

`Seq2SeqModule` holds the parameters; `Seq2Seq` is what the rest of the project sees of a model: pure
functions of (params, batch). A batch has `source` [b, s], `target_in` and `target_out` [b, t]; positions
that hold `pad` never change a result.
"""

import dataclasses
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Memory
from attn_jax.attention.estimators import entropy
from attn_jax.attention.readings import expectation
from attn_jax.metrics import Mean
from attn_jax.models.alignments import SoftAlignment, TokenLosses
from attn_jax.models.decoders import Decoder, DecoderState, Encoded, Steps
from attn_jax.models.rnn import RNN
from attn_jax.types import Array, Batch, Dtype, Float, Int, Metrics, Params, PRNGKeyArray, PyTree


class Seq2SeqModule(nn.Module):
    """Embeddings, encoder, decoder, output layer, and how they make a loss: the alignment (see alignments.py)."""

    source_vocab_size: int
    target_vocab_size: int
    embedding_size: int
    encoder: RNN
    decoder: Decoder
    output: nn.Module
    alignment: SoftAlignment = SoftAlignment()
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
        self.drop_alike = nn.Dropout(self.dropout, broadcast_dims=(-2,))  # for all candidates of a step

    def encode(self, source: Int[Array, "b s"], train: bool = False) -> Encoded:
        mask = source != self.pad
        embedded = self.drop(self.source_embedding(source), deterministic=not train)
        last, states = self.encoder(embedded, mask, train)
        return Encoded(self.drop(states, deterministic=not train), mask, last)

    def unroll(
        self, source: Int[Array, "b s"], target_in: Int[Array, "b t"], train: bool = False
    ) -> tuple[PyTree, Steps]:
        """Teacher forced: (the memory, what each step leaves); in training each row as often as it has trajectories."""
        encoded = self.encode(source, train)
        embedded = self.drop(self.target_embedding(target_in), deterministic=not train)
        if train and self.alignment.num_trajectories > 1:
            repeat = partial(jnp.repeat, repeats=self.alignment.num_trajectories, axis=0)
            encoded, embedded = jax.tree.map(repeat, (encoded, embedded))
        memory, state = self.decoder.start(encoded)
        steps = self.decoder.unroll(memory, state, embedded, train)
        return memory, steps.replace(hidden=self.drop(steps.hidden, deterministic=not train))

    def loss(self, source: Int[Array, "b s"], target_in: Int[Array, "b t"], targets: Int[Array, "b t"]) -> TokenLosses:
        """Training: what is minimized at each target position, and its negative log-likelihood, [b, t]."""
        memory, steps = self.unroll(source, target_in, train=True)
        return self.alignment.losses(self, memory, steps, targets, targets != self.pad)

    def evaluate(self, source: Int[Array, "b s"], target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        """(nll [b, t], correct [b, t], weights [b, t, s])."""
        memory, steps = self.unroll(source, target_in)
        return self.alignment.evaluate(self, memory, steps, targets, targets != self.pad)

    def start(self, source: Int[Array, "b s"]) -> tuple[PyTree, tuple[DecoderState, PyTree]]:
        memory, state = self.decoder.start(self.encode(source))
        return memory, (state, self.alignment.start(self, memory))

    def step(self, memory: PyTree, state: tuple[DecoderState, PyTree], token: Int[Array, "b"]):
        decoder_state, aligned = state
        decoder_state, steps = self.decoder.step(memory, decoder_state, self.target_embedding(token))
        aligned, log_probs = self.alignment.step(self, memory, aligned, token, steps)
        return (decoder_state, aligned), log_probs

    def hidden_losses(self, hidden: Float[Array, "... d"], targets: Int[Array, "..."]):
        """(training loss, nll) of each target."""
        return self.output.loss(hidden, targets, self.target_embedding.embedding)[:2]

    def output_log_probs(self, hidden: Float[Array, "... d"]) -> Float[Array, "... v"]:
        return self.output.log_probs(hidden, self.target_embedding.embedding)

    def row_losses(
        self, memory: Memory, steps: Steps, rows: Float[Array, "b t n s"] | None, targets: Int[Array, "b t"]
    ) -> tuple[Float[Array, "b t n"], Float[Array, "b t n"]]:
        """(training loss, nll) of each target for each row of weights to read with, all keys if None."""
        hidden = self.drop_alike(self._row_hidden(memory, steps, rows), deterministic=False)
        return self.hidden_losses(hidden, jnp.broadcast_to(targets[..., None], hidden.shape[:-1]))

    def row_log_probs(self, memory: Memory, steps: Steps, rows: Float[Array, "... n s"] | None):
        """log p(word) [..., n, v] for each row of weights to read with, all keys if None; "..." as in steps."""
        return self.output_log_probs(self._row_hidden(memory, steps, rows))

    def _row_hidden(self, memory: Memory, steps: Steps, rows: Float[Array, "... n s"] | None):
        values = memory.values if steps.top.ndim == 2 else memory.values[:, None]
        context = values if rows is None else expectation(rows, values)
        return self.decoder.readout(steps.top[..., None, :], context, steps.embedded[..., None, :])


@dataclasses.dataclass(frozen=True)
class Seq2Seq:
    """The model as pure functions."""

    module: Seq2SeqModule

    def init(self, rng: PRNGKeyArray, batch: Batch) -> Params:
        """Fresh parameters, in float32."""
        args = batch["source"], batch["target_in"], batch["target_out"]
        rngs = {name: jax.random.fold_in(rng, i) for i, name in enumerate(("dropout", "sample"))}
        return self.module.init({"params": rng, **rngs}, *args, method="loss")["params"]

    def loss_fn(self, params: Params, batch: Batch, rng: PRNGKeyArray) -> tuple[Float[Array, ""], Metrics]:
        """Training: the summed loss of the real target tokens, with dropout, label smoothing and sampling."""
        rngs = {"dropout": rng, "sample": jax.random.fold_in(rng, 1)}
        loss, nll = self._apply(params, batch, "loss", rngs=rngs)
        real = self._real(batch)
        count = jnp.sum(real)
        return jnp.sum(loss * real), {
            "loss": Mean(jnp.sum(loss * real), count),
            "nll": Mean(jnp.sum(nll * real), count),
        }

    def eval_fn(self, params: Params, batch: Batch) -> Metrics:
        """Of the real target tokens: nll, the share that the model would have chosen, the entropy of the weights."""
        nll, correct, weights = self._apply(params, batch, "evaluate")
        real = self._real(batch)
        count = jnp.sum(real)
        values = {"loss": nll, "accuracy": correct, "attention_entropy": entropy(weights)}
        return {name: Mean(jnp.sum(value * real), count) for name, value in values.items()}

    def score(self, params: Params, batch: Batch) -> Float[Array, "b"]:
        """log p(target | source) of each pair, eos included."""
        nll, _, _ = self._apply(params, batch, "evaluate")
        return -jnp.sum(nll * self._real(batch), axis=-1)

    def align(self, params: Params, batch: Batch) -> Float[Array, "b t s"]:
        """The attention weights of the teacher-forced pass."""
        return self._apply(params, batch, "evaluate")[2]

    def start(self, params: Params, source: Int[Array, "b s"]) -> tuple[PyTree, PyTree]:
        """What decode.py needs: the memory, which it never changes, and the state, which `step` does."""
        return self.module.apply({"params": params}, source, method="start")

    def step(
        self, params: Params, memory: PyTree, state: PyTree, token: Int[Array, "b"]
    ) -> tuple[PyTree, Float[Array, "b v"]]:
        """log p(next token | tokens so far) and the state after `token`."""
        return self.module.apply({"params": params}, memory, state, token, method="step")

    def _apply(self, params: Params, batch: Batch, method: str, rngs: dict | None = None):
        args = batch["source"], batch["target_in"], batch["target_out"]
        return self.module.apply({"params": params}, *args, rngs=rngs, method=method)

    def _real(self, batch: Batch) -> Float[Array, "b t"]:
        return jnp.asarray(batch["target_out"] != self.module.pad, jnp.float32)


def num_parameters(params: Params) -> int:
    """How many numbers the parameters hold."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
