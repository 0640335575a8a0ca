"""Sequence to sequence with any encoder and any of the recurrent decoders in decoders.py."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Memory
from attn_jax.attention.hard.readings import weighted_sum
from attn_jax.models.seq2seq.decoders import Decoder, DecoderState, Steps
from attn_jax.models.seq2seq.objectives import SoftAlignment, TokenLosses
from attn_jax.models.seq2seq.recurrent_stack import Encoded
from attn_jax.types import Array, Bool, Dtype, Float, Int, PyTree


class Seq2SeqModule(nn.Module):
    """Embeddings, encoder, decoder, output layer, and how they make a loss: the alignment (see objectives.py)."""

    source_vocab_size: int
    target_vocab_size: int
    embedding_size: int
    encoder: nn.Module  # see rnn.py, encoders.py, transformer.py
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
        if not isinstance(last, tuple):  # a vector for the whole source: every state of every layer starts from it
            last = ((last,) * self.decoder.stack.cell.num_states,)
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

    def real(self, targets: Int[Array, "b t"]) -> Bool[Array, "b t"]:
        """The positions that count."""
        return targets != self.pad

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
        return self.output.loss(hidden, targets, self.target_embedding.embedding)

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
        context = values if rows is None else weighted_sum(rows, values)
        return self.decoder.readout(steps.top[..., None, :], context, steps.embedded[..., None, :])
