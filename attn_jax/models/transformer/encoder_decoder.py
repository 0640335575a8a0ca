"""The Transformer of Vaswani et al. 2017 (arXiv 1706.03762): an encoder, and a decoder that reads it."""

from collections.abc import Sequence
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.layers.embedding import Embedding
from attn_jax.layers.transformer import TransformerStack
from attn_jax.models.module import DECODER, ENCODER, TO_SOURCE, Beams, Maps, SequenceModule, of_layers
from attn_jax.models.tags import Tags, TypedTags, split_tags
from attn_jax.models.transformer.beams import BeamState
from attn_jax.outputs.base import OutputLayer, sampling_rng
from attn_jax.outputs.top_k import Extensions
from attn_jax.types import Array, Bool, Dtype, Float, Int, PyTree, Source


class DecodeState(struct.PyTreeNode):
    """The state of decoding; "..." is empty, or the beam axis in a search."""

    position: Int[Array, "b ..."]  # position of the next token
    caches: tuple[PyTree, ...]  # for each layer, with the tokens so far
    first: int = struct.field(pytree_node=False, default=0)  # number of places before the first token

    def places(self, length: int) -> int:
        """Returns the number of places that a cache needs for `length` steps."""
        return self.first + length

    def grown(self, caches: tuple[PyTree, ...], length: int) -> "DecodeState":
        """Returns the state with larger caches."""
        return self.replace(caches=caches)


class TeacherForced(SequenceModule, kw_only=True):
    """Base of the Transformers: embeddings, and the losses of the teacher-forced pass.

    A subclass defines the pass, unroll(source [b, s], target_in [b, t], train) -> (states of the target [b, t, d],
    mean over the heads of the last layer's attention weights on the source [b, t, s]), and a step of decoding,
    advance(memory, decode state, token [b]) -> (decode state, states [b, d]). `causal` is its stack of causal layers.
    """

    grows: ClassVar[bool] = True

    source_vocab_size: int
    target_vocab_size: int
    features: int
    output: OutputLayer
    share_embeddings: bool = False
    pad: int = 0
    dtype: Dtype = jnp.float32

    def setup(self):
        self.target_embedding = Embedding(vocab_size=self.target_vocab_size, features=self.features, dtype=self.dtype)
        if not self.share_embeddings:
            self.source_embedding = Embedding(
                vocab_size=self.source_vocab_size, features=self.features, dtype=self.dtype
            )

    def embed_source(self, source: Int[Array, "b s"]) -> Float[Array, "b s d"]:
        """Embeddings of the source tokens."""
        return (self.target_embedding if self.share_embeddings else self.source_embedding)(source)

    def real(self, targets: Int[Array, "b t"]) -> Bool[Array, "b t"]:
        """True at the target positions that count."""
        return targets != self.pad

    def losses(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        """Returns (training loss, negative log-likelihood) of each target token, each [b, t]."""
        states, _ = self.unroll(source, target_in, train=True)
        return self.output.loss(states, targets, embedding=self.target_embedding.rows, rng=sampling_rng(self))

    def evaluate(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]):
        """Returns (nll [b, t], 1 where the target is the most probable token [b, t], weights [b, t, s])."""
        states, weights = self.unroll(source, target_in)
        nll, correct = self.output.nll_and_correct(states, targets, embedding=self.target_embedding.rows)
        return nll, correct, weights

    def log_probs(self, states: Float[Array, "... d"]) -> Float[Array, "... v"]:
        """log p(word) of each word of the target vocabulary."""
        return self.output.log_probs(states, embedding=self.target_embedding.rows)

    @property
    def causal(self) -> TransformerStack:
        """The stack whose caches decoding extends."""
        raise NotImplementedError

    @property
    def follows_beams(self) -> bool:
        return self.causal.make_layer().branches

    def grow(self, state: PyTree, length: int) -> PyTree:
        places = state.places(length)
        return state.grown(self.causal.grow(state.caches, state.first + length, places), length)

    def step_beams(
        self, memory: PyTree, state: BeamState, beams: Beams, n: int, forbidden: Sequence[int]
    ) -> tuple[BeamState, Extensions]:
        state, branch = state.follow(beams.parent)
        embedded, real = self.target_embedding(state.tokens(beams.token)), jnp.ones(beams.token.shape, bool)
        given = dict(caches=state.caches, source=memory or None, branch=branch)
        states, caches, _ = self.causal.run(embedded, real, positions=state.positions, **given)
        best = self.output.extensions(states, beams.log_prob, n, forbidden, embedding=self.target_embedding.rows)
        return state.after_step(caches), best

    def step(self, memory: PyTree, state: PyTree, token: Int[Array, "b"]) -> tuple[PyTree, Float[Array, "b v"]]:
        """Returns (decode state after `token`, log p(next token))."""
        state, states = self.advance(memory, state, token)
        return state, self.log_probs(states)

    def step_top_k(self, memory: PyTree, state: PyTree, token: Int[Array, "b"], k: int):
        """Returns (decode state after `token`, (log-probabilities, tokens) of the k most probable next tokens)."""
        state, states = self.advance(memory, state, token)
        k = min(k, self.target_vocab_size)
        return state, self.output.top_k(states, k, embedding=self.target_embedding.rows)


class Transformer(TeacherForced, kw_only=True):
    """An encoder (any encoder of layers/), and a causal stack that attends to its states."""

    encoder: nn.Module
    decoder: TransformerStack
    picture: nn.Module | None = None  # embeds sources that are images, see layers/pictures.py
    invariant_tags: bool = False  # split "text eos tags", see models/tags.py; needs an encoder with positions
    eos: int = 3

    def setup(self):
        super().setup()
        self.typed_tags = TypedTags()

    def encode(self, source: Source, *, train: bool = False) -> tuple[PyTree, ...]:
        """Returns the memory that each layer of the decoder reads."""
        embedded, mask, given = self._embedded(source)
        _, states = self.encoder(embedded, mask, **given, train=train)
        return self.decoder.read_source(states, mask)

    def _embedded(self, source: Source) -> tuple[Float[Array, "b s d"], Bool[Array, "b s"], dict[str, Array]]:
        """Returns the inputs of the encoder: embedded source, mask, and the positions of a source with tags."""
        given = {}
        if self.picture is None:
            embedded, mask = self.embed_source(source), source != self.pad
        else:
            embedded, mask = self.picture(source)
        if self.invariant_tags:
            text, is_tag = split_tags(source, eos=self.eos, pad=self.pad)
            mask = text | is_tag
            embedded, given["positions"] = self.typed_tags(Tags(embedded, is_tag))
        return embedded, mask, given

    def unroll(self, source: Source, target_in: Int[Array, "b t"], *, train: bool = False):
        states, reads = self._decode(source, target_in, train=train)
        return states, jnp.mean(reads[-1].last.weights, axis=-3)

    def _decode(self, source: Source, target_in: Int[Array, "b t"], *, train: bool = False):
        memory = self.encode(source, train=train)
        embedded = self.target_embedding(target_in)
        states, _, reads = self.decoder.run(embedded, target_in != self.pad, source=memory, train=train)
        return states, reads

    def maps(self, source: Source, target_in: Int[Array, "b t"], targets: Int[Array, "b t"]) -> Maps:
        _, reads = self._decode(source, target_in)
        embedded, mask, given = self._embedded(source)
        encoder = self.encoder.maps(embedded, mask, **given)
        return {
            TO_SOURCE: of_layers([read.source.weights for read in reads]),
            **({ENCODER: of_layers(encoder)} if encoder else {}),
            DECODER: of_layers([read.own.weights for read in reads]),
        }

    def start(self, source: Source, length: int) -> tuple[PyTree, DecodeState]:
        memory = self.encode(source)
        rows = len(jax.tree.leaves(memory)[0])
        caches = self.decoder.start(rows, length)
        return memory, DecodeState(position=jnp.zeros(rows, jnp.int32), caches=caches)

    @property
    def causal(self) -> TransformerStack:
        return self.decoder

    def start_beams(self, source: Source, length: int, beams: int) -> tuple[PyTree, BeamState]:
        memory = self.encode(source)
        position = jnp.zeros(len(jax.tree.leaves(memory)[0]), jnp.int32)
        caches = self.decoder.start(len(position), length, beams)
        return memory, BeamState.of(caches, position, position - 1, beams, length, first=0)

    def advance(
        self, memory: PyTree, state: DecodeState, token: Int[Array, "b"]
    ) -> tuple[DecodeState, Float[Array, "b d"]]:
        state, states, _ = self.advance_with_weights(memory, state, token)
        return state, states

    def advance_with_weights(
        self, memory: PyTree, state: DecodeState, token: Int[Array, "b"]
    ) -> tuple[DecodeState, Float[Array, "b d"], Float[Array, "b s"]]:
        """Returns (decode state, states, mean over the heads of the last layer's weights on the source)."""
        states, caches, reads = self.decoder.step(
            self.target_embedding(token), position=state.position, caches=state.caches, source=memory
        )
        weights = jnp.mean(reads[-1].last.weights, axis=-3)[:, 0]
        return state.replace(position=state.position + 1, caches=caches), states, weights
