"""Three recurrent decoders: without attention, Bahdanau's and Luong's."""

from typing import ClassVar

import jax.numpy as jnp

from attn_jax.attention import Attention, caches
from attn_jax.attention.caches import CAUSAL, Entries
from attn_jax.models.module import DECODER
from attn_jax.models.seq2seq.decoder_base import Decoder, DecodeState, LoopOutputs, StepOutputs
from attn_jax.models.seq2seq.recurrent_stack import EncoderStates
from attn_jax.types import Array, Float, Int, PyTree


class PlainDecoder(Decoder, kw_only=True):
    """A decoder without attention: the source enters only through the initial state (Sutskever 2014, arXiv 1409.3215).

    With `feed_summary` (Cho 2014, arXiv 1406.1078) the last hidden state c of the encoder also enters every step, and
    the readout is tanh(W [h; c; embedded]); otherwise the readout is h. All attention weights are zero.
    """

    feed_summary: bool = False
    uses_attention: ClassVar[bool] = False

    @property
    def readout_features(self) -> int:
        return self.features if self.feed_summary else self.stack.features

    def remember(self, encoded: EncoderStates) -> tuple[Array, Array]:
        return encoded.last[-1][0], encoded.mask

    def step(self, memory: PyTree, state: DecodeState, embedded: Float[Array, "b e"]):
        summary, mask = memory
        extra = summary if self.feed_summary else None
        layers = self.stack.step(state.layers, self.stack.project(embedded), extra=extra)
        outputs = self._outputs(layers[-1][0], summary, embedded, mask)
        return state.replace(layers=layers, position=state.position + 1), outputs

    def unroll(self, memory: PyTree, state: DecodeState, embedded: Float[Array, "b t e"], *, train: bool = False):
        summary, mask = memory
        hidden = self.stack.run(state.layers, embedded, extra=summary if self.feed_summary else None, train=train)
        return self._outputs(hidden, summary[:, None], embedded, mask[:, None])

    def _outputs(self, hidden, summary, embedded, mask) -> StepOutputs:
        readout = hidden
        if self.feed_summary:
            summary = jnp.broadcast_to(summary, (*hidden.shape[:-1], summary.shape[-1]))
            readout = jnp.tanh(self.combine(hidden, summary, embedded))
        weights = jnp.zeros((*hidden.shape[:-1], mask.shape[-1]), hidden.dtype)
        return StepOutputs(
            readout=readout,
            weights=weights,
            log_prob=weights.sum(-1),
            hidden=hidden,
            query=hidden,
            embedded=embedded,
        )


class BahdanauDecoder(Decoder, kw_only=True):
    """Attends with the previous state, then steps (Bahdanau 2015, arXiv 1409.0473, section 3.1).

    context = attention(h[t-1]);  h[t] = cell(h[t-1], [embedded; context]);
    readout = tanh(W [h[t]; context; embedded]), where the paper has a maxout layer (appendix A.2.2).
    """

    def advance(self, memory, state, projected, *, masks=(), train=False):
        query = state.layers[-1][0]
        attended, state = self.attend(query, memory, state, train=train)
        extra = self.with_tags(attended.context, query, state, train=train)
        layers = self.stack.step(state.layers, projected, extra=extra, masks=masks, train=train)
        outputs = LoopOutputs(
            hidden=layers[-1][0],
            query=query,
            context=attended.context,
            readout=None,
            weights=attended.weights,
            log_prob=attended.log_prob,
        )
        return state.replace(layers=layers, position=state.position + 1), outputs

    def readout(self, hidden, context, embedded=None):
        return jnp.tanh(self.combine(hidden, context, embedded))


class LuongDecoder(Decoder, kw_only=True):
    """Steps, then attends (Luong 2015, arXiv 1508.04025, section 3): readout = tanh(W [context; h]), equation 5.

    With input feeding (section 3.3) the readout enters the next step. Without input feeding the recurrence does not
    depend on the attention, so attention and readout are computed for all target steps at once; then the decoder can
    also attend to its own earlier states: readout = tanh(W [context; h; own context]) (Paulus 2018, arXiv 1705.04304,
    section 2.2, without their temporal normalization). Decoding has room for `length` earlier states.
    """

    input_feeding: bool = True
    self_attention: Attention | None = None
    takes_self_attention: ClassVar[bool] = True

    @property
    def feeds_attention(self) -> bool:
        return self.input_feeding or self.coverage

    def fed_features(self) -> int:
        return self.features if self.input_feeding else 0

    def start(self, encoded: EncoderStates, length: int = 0) -> tuple[PyTree, DecodeState]:
        memory, state = super().start(encoded, length)
        if self.self_attention is None:
            return memory, state
        nothing = jnp.zeros((len(encoded.states), 0, self.stack.features), self.stack.dtype)
        return memory, state.replace(past=caches.grow(self._entries(nothing, state.position), CAUSAL, length))

    def _entries(self, states: Float[Array, "b t d"], position: Int[Array, "b"]) -> Entries:
        """Returns the decoder's states, all at `position`, as keys for later states."""
        positions = jnp.broadcast_to(position[:, None], states.shape[:2])
        return Entries.of(self.self_attention.prepare(states, positions=positions))

    def advance(self, memory, state, projected, *, masks=(), train=False):
        fed = state.fed if self.input_feeding else None
        layers = self.stack.step(state.layers, projected, extra=fed, masks=masks, train=train)
        hidden = query = layers[-1][0]
        attended, state = self.attend(query, memory, state, train=train)
        hidden = self.with_tags(hidden, query, state, train=train)
        past = state.past
        if self.self_attention is not None:
            own = self.self_attention(query[:, None], past.memory(), train=train).context[:, 0]
            past = caches.add(past, self._entries(query[:, None], state.position), CAUSAL)
            hidden = jnp.concatenate([hidden, own], axis=-1)
        readout = self.readout(hidden, attended.context)
        outputs = LoopOutputs(
            hidden=hidden,
            query=query,
            context=None,
            readout=readout,
            weights=attended.weights,
            log_prob=attended.log_prob,
        )
        fed = readout if self.input_feeding else state.fed
        position = state.position + 1
        return state.replace(layers=layers, fed=fed, position=position, past=past), outputs

    def unroll(self, memory, state, embedded, *, train=False):
        if self.input_feeding or self.coverage or self.attention.needs_previous:
            return super().unroll(memory, state, embedded, train=train)
        hidden = query = self.stack.run(state.layers, embedded, train=train)
        positions = state.position[:, None] + jnp.arange(embedded.shape[1])[None]
        attended = self.attention(query, memory, positions=positions, rng=self.sample_rng(train), train=train)
        attended = self.select(attended, query, memory, state)
        if self.tag_attention is not None:
            of_tags = self.tag_attention(query, state.tags, train=train)
            hidden = jnp.concatenate([hidden, of_tags.context], axis=-1)
        maps = {}
        if self.self_attention is not None:
            before = jnp.tril(jnp.ones((hidden.shape[1],) * 2, bool), -1)
            own = self.self_attention(query, self.self_attention.prepare(query), mask=before, train=train)
            hidden, maps = jnp.concatenate([hidden, own.context], axis=-1), {DECODER: own.weights}
        outputs = LoopOutputs(
            hidden=hidden,
            query=query,
            context=attended.context,
            readout=None,
            weights=attended.weights,
            log_prob=attended.log_prob,
        )
        return self.finish(outputs, embedded).replace(maps=maps)

    def readout(self, hidden, context, embedded=None):
        return jnp.tanh(self.combine(context, hidden))
