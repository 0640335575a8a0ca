"""Three recurrent decoders: without attention, Bahdanau's, Luong's. One interface:

    start(encoded) -> (memory, state)                what is read, and what changes from step to step
    step(memory, state, embedded [b, e]) -> (state, hidden [b, d])
    unroll(memory, state, embedded [b, t, e]) -> (hidden [b, t, d], weights [b, t, s])

`unroll` is the teacher-forced pass and equals `step` taken t times. Every leaf of memory and state has
the batch as its first axis, so a decoder may be stopped, reordered and continued by whoever searches.
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from attn_jax.attention import Attention, Memory
from attn_jax.models.rnn import Cell, Recurrence, State, recurrent_mask
from attn_jax.types import Array, Bool, Dtype, Float, Int, PyTree


@struct.dataclass
class Encoded:
    """The source as the encoder leaves it."""

    states: Float[Array, "b s d"]
    mask: Bool[Array, "b s"]  # True at real tokens
    last: tuple[State, ...]  # of each layer


@struct.dataclass
class DecoderState:
    """What changes from step to step; "..." is nothing, or the beams of a search."""

    layers: tuple[State, ...]
    fed: Float[Array, "b ... f"]  # attentional hidden state of the step before; no columns without input feeding
    position: Int[Array, "b ..."]  # target position, from 0


class Stack(nn.Module):
    """The recurrent layers of a decoder, from the bridge to the top hidden state.

    Input of a step = [embedded; extra], where `extra` (a context, say) is known only inside the loop.
    W [embedded; extra] is taken apart, so that the embedded half is one product for all steps.
    """

    cell: Cell
    features: int
    num_layers: int
    bridge: Callable
    has_extra: bool = False
    dropout: float = 0.0
    recurrent_dropout: float = 0.0
    dtype: Dtype = jnp.float32

    def setup(self):
        self.layers = [Recurrence(self.cell, self.features, dtype=self.dtype) for _ in range(self.num_layers)]
        self.between = nn.Dropout(self.dropout)
        if self.has_extra:
            self.extra = nn.Dense(self.cell.num_gates * self.features, use_bias=False, dtype=self.dtype)
        count = {dense_bridge: self.cell.num_states, hidden_bridge: 1}.get(self.bridge, 0) * self.num_layers
        self.bridges = [nn.Dense(self.features, dtype=self.dtype) for _ in range(count)]

    def start(self, encoded: Encoded) -> tuple[State, ...]:
        """The state of each layer before the first step."""
        return self.bridge(self, encoded)

    def project(self, embedded: Float[Array, "... e"]) -> Float[Array, "... gd"]:
        """The part of the first layer's input that is known before the loop."""
        return self.layers[0].project(embedded)

    def masks(self, batch_size: int, train: bool) -> tuple:
        """One variational dropout mask per layer, or None."""
        if not train or not self.recurrent_dropout:
            return (None,) * self.num_layers
        return tuple(
            recurrent_mask(self.make_rng("dropout"), self.recurrent_dropout, batch_size, self.features, self.dtype)
            for _ in range(self.num_layers)
        )

    def step(
        self,
        states: tuple[State, ...],
        projected: Float[Array, "b gd"],
        extra: Float[Array, "b x"] | None = None,
        masks: tuple = (),
        train: bool = False,
    ) -> tuple[State, ...]:
        """One step of every layer; the top hidden state is the result's [-1][0]."""
        masks = masks or (None,) * self.num_layers
        projected = projected if extra is None else projected + self.extra(extra)
        new = []
        for index, layer in enumerate(self.layers):
            if index > 0:
                projected = layer.project(self.between(new[-1][0], deterministic=not train))
            new.append(layer.step(states[index], projected, masks[index]))
        return tuple(new)

    def run(
        self,
        states: tuple[State, ...],
        embedded: Float[Array, "b t e"],
        extra: Float[Array, "b x"] | None = None,
        train: bool = False,
    ) -> Float[Array, "b t d"]:
        """All steps at once, layer after layer; possible when `extra` is the same at every step."""
        masks = self.masks(embedded.shape[0], train)
        everywhere = jnp.ones(embedded.shape[:2], bool)
        outputs = embedded
        for index, layer in enumerate(self.layers):
            outputs = self.between(outputs, deterministic=not train) if index > 0 else outputs
            offset = self.extra(extra)[:, None] if index == 0 and extra is not None else None
            outputs = layer(outputs, everywhere, states[index], masks[index], offset=offset)[1]
        return outputs


def dense_bridge(stack: Stack, encoded: Encoded) -> tuple[State, ...]:
    """h = tanh(W last_h + b) and c = W last_c + b, layer by layer; the top encoder layer serves the missing ones."""
    states, count = [], stack.cell.num_states
    for index in range(stack.num_layers):
        last = encoded.last[min(index, len(encoded.last) - 1)]
        dense = stack.bridges[index * count : (index + 1) * count]
        h = jnp.tanh(dense[0](last[0]))
        states.append((h, *(layer(part) for layer, part in zip(dense[1:], last[1:], strict=True))))
    return tuple(states)


def hidden_bridge(stack: Stack, encoded: Encoded) -> tuple[State, ...]:
    """h = tanh(W last_h + b) and c = 0, layer by layer: only what the encoder says aloud."""
    states = []
    for index, dense in enumerate(stack.bridges):
        h = jnp.tanh(dense(encoded.last[min(index, len(encoded.last) - 1)][0]))
        states.append((h, *(jnp.zeros_like(h) for _ in range(1, stack.cell.num_states))))
    return tuple(states)


def copy_bridge(stack: Stack, encoded: Encoded) -> tuple[State, ...]:
    """The encoder's last states as they are (Sutskever 2014); both stacks are equally wide and deep."""
    return encoded.last


def zeros_bridge(stack: Stack, encoded: Encoded) -> tuple[State, ...]:
    """Zeros: everything has to come through the attention."""
    return tuple(layer.initial_state(encoded.states.shape[0]) for layer in stack.layers)


BRIDGES = {"dense": dense_bridge, "hidden": hidden_bridge, "copy": copy_bridge, "zeros": zeros_bridge}


class Decoder(nn.Module):
    """What the three share: the start, and the unrolling of `step` where nothing better is known."""

    stack: Stack
    features: int
    attention: Attention | None = None

    def start(self, encoded: Encoded) -> tuple[PyTree, DecoderState]:
        batch_size = encoded.states.shape[0]
        fed = jnp.zeros((batch_size, self.fed_features()), encoded.states.dtype)
        state = DecoderState(self.stack.start(encoded), fed, jnp.zeros(batch_size, jnp.int32))
        return self.remember(encoded), state

    def fed_features(self) -> int:
        return 0

    def remember(self, encoded: Encoded) -> PyTree:
        """The memory that the steps read."""
        return self.attention.prepare(encoded.states, mask=encoded.mask)

    def step(self, memory: PyTree, state: DecoderState, embedded: Float[Array, "b e"]):
        state, (hidden, _) = self.advance(memory, state, self.stack.project(embedded))
        return state, self.readout(hidden, embedded)

    def readout(self, hidden: PyTree, embedded: Float[Array, "... e"]) -> Float[Array, "... d"]:
        """What of a step can be computed for all steps together, after the loop."""
        return hidden

    def unroll(self, memory: PyTree, state: DecoderState, embedded: Float[Array, "b t e"], train: bool = False):
        masks = self.stack.masks(embedded.shape[0], train)

        def body(decoder, state, projected):
            return decoder.advance(memory, state, projected, masks, train)

        scan = nn.scan(
            body,
            variable_broadcast="params",
            split_rngs={"params": False, "dropout": True},
            in_axes=1,
            out_axes=1,
        )
        _, (hidden, weights) = scan(self, state, self.stack.project(embedded))
        return self.readout(hidden, embedded), weights

    def attend(self, query: Float[Array, "b d"], memory: Memory, position: Int[Array, "b"]):
        attended = self.attention(query[:, None], memory, positions=position[:, None])
        return attended.context[:, 0], attended.weights[:, 0]


class PlainDecoder(Decoder):
    """No attention: all it knows of the source is the state it starts from (Sutskever 2014, arXiv 1409.3215).

    With `feed_summary` (Cho 2014, arXiv 1406.1078) the encoder's last hidden state c also enters every
    step and the readout tanh(W [h; c; embedded]). The weights have no columns that mean anything: zeros.
    """

    feed_summary: bool = False

    def setup(self):
        if self.feed_summary:
            self.combine = nn.Dense(self.features, dtype=self.stack.dtype)

    def remember(self, encoded: Encoded) -> tuple[Array, Array]:
        return encoded.last[-1][0], encoded.mask

    def step(self, memory: PyTree, state: DecoderState, embedded: Float[Array, "b e"]):
        summary = memory[0] if self.feed_summary else None
        layers = self.stack.step(state.layers, self.stack.project(embedded), summary)
        hidden = self._readout(layers[-1][0], memory[0], embedded)
        return DecoderState(layers, state.fed, state.position + 1), hidden

    def unroll(self, memory: PyTree, state: DecoderState, embedded: Float[Array, "b t e"], train: bool = False):
        summary, mask = memory
        hidden = self.stack.run(state.layers, embedded, summary if self.feed_summary else None, train)
        summary = jnp.broadcast_to(summary[:, None], (*embedded.shape[:2], summary.shape[-1]))
        weights = jnp.zeros((*embedded.shape[:2], mask.shape[1]), hidden.dtype)
        return self._readout(hidden, summary, embedded), weights

    def _readout(self, hidden, summary, embedded):
        if not self.feed_summary:
            return hidden
        return jnp.tanh(self.combine(jnp.concatenate([hidden, summary, embedded], axis=-1)))


class BahdanauDecoder(Decoder):
    """Attend with the state before, then step (Bahdanau 2015, arXiv 1409.0473, section 3.1).

    context = attention(h[t-1]);  h[t] = cell(h[t-1], [embedded; context]);
    hidden = tanh(W [h[t]; context; embedded]), where the paper has a maxout layer (appendix A.2.2).
    """

    def setup(self):
        self.combine = nn.Dense(self.features, dtype=self.stack.dtype)

    def advance(self, memory, state, projected, masks=(), train=False):
        context, weights = self.attend(state.layers[-1][0], memory, state.position)
        layers = self.stack.step(state.layers, projected, context, masks, train)
        return DecoderState(layers, state.fed, state.position + 1), ((layers[-1][0], context), weights)

    def readout(self, hidden, embedded):
        return jnp.tanh(self.combine(jnp.concatenate([*hidden, embedded], axis=-1)))


class LuongDecoder(Decoder):
    """Step, then attend (Luong 2015, arXiv 1508.04025, section 3): hidden = tanh(W [context; h]), equation 5.

    With input feeding (section 3.3) `hidden` enters the next step; without it nothing of the attention
    enters the recurrence, and attention and readout run once over all target steps.
    """

    input_feeding: bool = True

    def setup(self):
        self.combine = nn.Dense(self.features, dtype=self.stack.dtype)

    def fed_features(self) -> int:
        return self.features if self.input_feeding else 0

    def advance(self, memory, state, projected, masks=(), train=False):
        fed = state.fed if self.input_feeding else None
        layers = self.stack.step(state.layers, projected, fed, masks, train)
        context, weights = self.attend(layers[-1][0], memory, state.position)
        hidden = self._combine(context, layers[-1][0])
        fed = hidden if self.input_feeding else state.fed
        return DecoderState(layers, fed, state.position + 1), (hidden, weights)

    def unroll(self, memory, state, embedded, train=False):
        if self.input_feeding:
            return super().unroll(memory, state, embedded, train)
        top = self.stack.run(state.layers, embedded, train=train)
        positions = state.position[:, None] + jnp.arange(embedded.shape[1])
        attended = self.attention(top, memory, positions=positions)
        return self._combine(attended.context, top), attended.weights

    def _combine(self, context, hidden):
        return jnp.tanh(self.combine(jnp.concatenate([context, hidden], axis=-1)))


DECODERS = {"none": PlainDecoder, "bahdanau": BahdanauDecoder, "luong": LuongDecoder}
