"""A Transformer decoder that separates the read of its last layer, so that any objective can choose the context.

    layers 1 ... L - 1     Transformer layers with a source (Vaswani 2017, arXiv 1706.03762)
    layer L                self-attention;  weights of one head over the source
    readout(x, context)    x + W_o context + b_o, the feed-forward part, the last norm

Contexts of the last layer enter no other position, so a key can be sampled, or marginalized, independently for each
target token. Everything after the read is computed without dropout, except for the dropout of the readout.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Memory, MultiHead
from attn_jax.layers.transformer import TransformerLayer, TransformerStack
from attn_jax.models.module import DECODER, of_layers
from attn_jax.models.seq2seq.decoder_base import Decoder, DecodeState, StepOutputs
from attn_jax.models.seq2seq.recurrent_stack import EncoderStates
from attn_jax.types import Array, Float, Int, PyTree


class SourceMemory(Memory):
    """Memory of the source for the single head of the last layer, with the memories of the earlier layers."""

    layers: tuple[PyTree, ...] = ()


class TransformerDecoder(Decoder, kw_only=True):
    """Transformer layers, of which the last reads the source with one head, `attention`.

    `stack` has the earlier layers, without a final norm; `make_layer` makes the last layer from a function that makes
    its attention to the source.
    """

    stack: TransformerStack
    make_layer: Callable[..., TransformerLayer]
    num_states: ClassVar[int] = 1
    grows: ClassVar[bool] = True
    feeds_attention: ClassVar[bool] = False

    def setup(self):
        heads = partial(
            MultiHead, attention=self.attention, num_heads=1, features=self.features, dtype=self.stack.dtype
        )
        self.last = self.make_layer(make_source_attention=heads)
        if self.last.norm_first:
            self.norm = nn.LayerNorm(epsilon=1e-5, dtype=self.stack.dtype)

    def start(self, encoded: EncoderStates, length: int = 0) -> tuple[SourceMemory, DecodeState]:
        size = len(encoded.states)
        nothing, position = jnp.zeros((size, 0), jnp.float32), jnp.zeros(size, jnp.int32)
        caches = self.stack.start(size, length), self.last.start(size, length)
        state = DecodeState(layers=caches, fed=nothing, position=position, weights=nothing, tags=encoded.tags)
        return self.remember(encoded), state

    def grow(self, state: DecodeState, length: int) -> DecodeState:
        before, last = state.layers
        return state.replace(layers=(self.stack.grow(before, length), self.last.grow(last, length)))

    def remember(self, encoded: EncoderStates) -> SourceMemory:
        layers = self.stack.read_source(encoded.states, encoded.mask)
        last = self.last.source_attention.prepare(encoded.states, key_mask=encoded.mask)
        keys, values, key_mask = jax.tree.map(lambda x: x[:, 0], (last.keys, last.values, last.key_mask))
        return SourceMemory(keys, values, key_mask, layers=layers)

    def step(self, memory, state, embedded):
        caches, outputs = self._run(memory, embedded[:, None], state.position[:, None], state.layers)
        outputs = jax.tree.map(lambda x: x[:, 0], outputs.replace(maps={}))
        return state.replace(layers=caches, position=state.position + 1), outputs

    def unroll(self, memory: SourceMemory, state: DecodeState, embedded: Float[Array, "b t e"], *, train: bool = False):
        positions = jnp.broadcast_to(jnp.arange(embedded.shape[1]), embedded.shape[:2])
        return self._run(memory, embedded, positions, (None, None), train=train)[1]

    def readout(self, hidden, context, embedded=None):
        heads = self.last.source_attention
        context = heads.finish(heads.attention.map.after(context), self.last.source_query(hidden))
        hidden = self.last.after_source(hidden, context)
        return self.norm(hidden) if self.last.norm_first else hidden

    def scores(self, query: Float[Array, "b t d"], memory: SourceMemory) -> Float[Array, "b t s"]:
        heads = self.last.source_attention
        return heads.attention.score(heads.query(query), memory.keys)

    def _run(
        self,
        memory: SourceMemory,
        embedded: Float[Array, "b t e"],
        positions: Int[Array, "b t"],
        caches: tuple[PyTree, PyTree],
        train: bool = False,
    ) -> tuple[tuple[PyTree, PyTree], StepOutputs]:
        """Computes all positions; returns (updated caches, outputs)."""
        mask = jnp.ones(positions.shape, bool)  # causal: padding after a target does not change it
        x, before, reads = self.stack.run(
            embedded, mask, positions=positions, caches=caches[0], source=memory.layers, train=train
        )
        scheme = self.stack.positions
        given = dict(key_mask=mask, positions=positions, cache=caches[1], train=train)
        x, last, own = self.last.before_source(x, bias=scheme.of_distance if scheme.biased else None, **given)
        query = self.last.source_query(x)
        attended = self.last.source_attention.attention(
            self.last.source_attention.query(query),
            memory,
            rng=self.sample_rng(train),
            train=train,
        )
        outputs = StepOutputs(
            readout=self.readout(x, attended.context),
            weights=attended.weights,
            log_prob=attended.log_prob,
            hidden=x,
            query=query,
            embedded=embedded,
            maps={DECODER: of_layers([*(read.own.weights for read in reads), own.weights])},
        )
        return (before, last), outputs
