"""Three recurrent decoders: without attention, Bahdanau's, Luong's. One interface:

    start(encoded) -> (memory, state)                what is read, and what changes from step to step
    step(memory, state, embedded [b, e]) -> (state, Steps with leaves [b, ...])
    unroll(memory, state, embedded [b, t, e]) -> Steps with leaves [b, t, ...]
    readout(top, context, embedded) -> hidden: again, for a context that was not the one read

`unroll` is the teacher-forced pass and equals `step` taken t times. Every leaf of memory and state has
the batch as its first axis, so a decoder may be stopped, reordered and continued by whoever searches.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from attn_jax.attention import Attended, Attention, Memory
from attn_jax.attention.hard.monotonic import initial_weights
from attn_jax.attention.multi_head import write
from attn_jax.layers.rnn import State
from attn_jax.models.seq2seq.recurrent_stack import Encoded, Stack
from attn_jax.types import Array, Dtype, Float, Int, PyTree


@struct.dataclass
class DecoderState:
    """What changes from step to step; "..." is nothing, or the beams of a search."""

    layers: tuple[State, ...]
    fed: Float[Array, "b ... f"]  # attentional hidden state of the step before; no columns without input feeding
    position: Int[Array, "b ..."]  # target position, from 0
    weights: Float[Array, "b ... s"]  # of the step before, for monotonic attention; otherwise no columns
    past: Memory | None = None  # the decoder's own states so far, where it attends to them


@struct.dataclass
class Steps:
    """What one step, or all of them, leave for the output layer: "..." is the batch and, of all, the time."""

    hidden: Float[Array, "... d"]  # the readout of what was read
    weights: Float[Array, "... s"]
    log_prob: Float[Array, "..."]  # log weight of the key that was sampled; 0 where none was
    top: Float[Array, "... h"]  # state of the last layer, from which `readout` reads another context
    query: Float[Array, "... q"]  # state that asked the memory: it knows what was read before, not at this step
    embedded: Float[Array, "... e"]


class Joined(nn.Module):
    """W [part; part; ...] + b. Parts with other leading axes are broadcast after their share of the product."""

    features: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, *parts: Float[Array, "..."]) -> Float[Array, "... d"]:
        width = sum(part.shape[-1] for part in parts)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (width, self.features)).astype(self.dtype)
        bias = self.param("bias", nn.initializers.zeros, (self.features,)).astype(self.dtype)
        parts = [part.astype(self.dtype) for part in parts]
        if len({part.shape[:-1] for part in parts}) == 1:
            return jnp.concatenate(parts, axis=-1) @ kernel + bias
        ends = np.cumsum([part.shape[-1] for part in parts])[:-1]
        return sum(part @ rows for part, rows in zip(parts, jnp.split(kernel, ends), strict=True)) + bias


class Decoder(nn.Module):
    """What the three share: the start, and the unrolling of `advance` where nothing better is known.

    A decoder with attention has `advance`, one step of the recurrence, and `readout`, which makes of the state and the
    context the hidden state that the output layer takes.
    """

    stack: Stack
    features: int
    attention: Attention | None = None

    def setup(self):
        self.combine = Joined(self.features, self.stack.dtype)

    def advance(
        self,
        memory: PyTree,
        state: DecoderState,
        projected: Float[Array, "b gd"],
        masks: tuple = (),
        train: bool = False,
    ) -> tuple[DecoderState, "Read"]:
        """(the state after one more token, whose embedding is `projected` by the stack; what `finish` needs of it)."""
        raise NotImplementedError

    def readout(
        self, top: Float[Array, "... h"], context: Float[Array, "... dv"], embedded: Float[Array, "... e"] | None = None
    ) -> Float[Array, "... d"]:
        """The hidden state that predicts the next token."""
        raise NotImplementedError

    def start(self, encoded: Encoded) -> tuple[PyTree, DecoderState]:
        """(what the steps read, the state before the first of them)."""
        batch_size = encoded.states.shape[0]
        fed = jnp.zeros((batch_size, self.fed_features()), encoded.states.dtype)
        monotonic = self.attention is not None and self.attention.monotonic is not None
        weights = initial_weights(encoded.mask) if monotonic else jnp.zeros((batch_size, 0))
        state = DecoderState(self.stack.start(encoded), fed, jnp.zeros(batch_size, jnp.int32), weights)
        return self.remember(encoded), state

    def fed_features(self) -> int:
        """Width of what one step feeds to the next, besides the states of its cells."""
        return 0

    def remember(self, encoded: Encoded) -> PyTree:
        """The memory that the steps read."""
        return self.attention.prepare(encoded.states, mask=encoded.mask)

    def step(self, memory: PyTree, state: DecoderState, embedded: Float[Array, "b e"]) -> tuple[DecoderState, Steps]:
        """One step, for decoding."""
        state, read = self.advance(memory, state, self.stack.project(embedded))
        return state, self.finish(read, embedded)

    def unroll(
        self, memory: PyTree, state: DecoderState, embedded: Float[Array, "b t e"], train: bool = False
    ) -> Steps:
        """All steps of a known target."""
        masks = self.stack.masks(embedded.shape[0], train)

        def body(decoder, state, projected):
            return decoder.advance(memory, state, projected, masks, train)

        scan = nn.scan(
            body,
            variable_broadcast="params",
            split_rngs={"params": False, "dropout": True, "sample": True},
            in_axes=1,
            out_axes=1,
        )
        _, read = scan(self, state, self.stack.project(embedded))
        return self.finish(read, embedded)

    def finish(self, read: "Read", embedded: Float[Array, "... e"]) -> Steps:
        """What can be computed for all steps together, after the loop."""
        hidden = read.hidden if read.hidden is not None else self.readout(read.top, read.context, embedded)
        return Steps(hidden, read.weights, read.log_prob, read.top, read.query, embedded)

    def attend(
        self, query: Float[Array, "b d"], memory: Memory, state: DecoderState, train: bool
    ) -> tuple[Attended, Float[Array, "b s"]]:
        """What `query` reads at this step, and the weights that the next step has to know."""
        monotonic = self.attention.monotonic is not None
        attended = self.attention(
            query[:, None],
            memory,
            positions=state.position[:, None],
            previous=state.weights[:, None] if monotonic else None,
            rng=self.noise(train),
            train=train,
        )
        attended = jax.tree.map(lambda x: x[:, 0], attended)
        return attended, attended.weights if monotonic else state.weights

    def noise(self, train: bool):
        """The rng of an attention that samples."""
        random = self.attention.read.random or self.attention.monotonic is not None
        return self.make_rng("sample") if train and random else None


@struct.dataclass
class Read:
    """What a step of the loop leaves: all that `finish` needs."""

    top: Array
    query: Array
    context: Array | None
    hidden: Array | None  # where the loop itself needs it
    weights: Array
    log_prob: Array


class PlainDecoder(Decoder):
    """No attention: all it knows of the source is the state it starts from (Sutskever 2014, arXiv 1409.3215).

    With `feed_summary` (Cho 2014, arXiv 1406.1078) the encoder's last hidden state c also enters every
    step and the readout tanh(W [h; c; embedded]). The weights have no columns that mean anything: zeros.
    """

    feed_summary: bool = False

    def remember(self, encoded: Encoded) -> tuple[Array, Array]:
        return encoded.last[-1][0], encoded.mask

    def step(self, memory: PyTree, state: DecoderState, embedded: Float[Array, "b e"]):
        summary, mask = memory
        extra = summary if self.feed_summary else None
        layers = self.stack.step(state.layers, self.stack.project(embedded), extra)
        steps = self._steps(layers[-1][0], summary, embedded, mask)
        return state.replace(layers=layers, position=state.position + 1), steps

    def unroll(self, memory: PyTree, state: DecoderState, embedded: Float[Array, "b t e"], train: bool = False):
        summary, mask = memory
        top = self.stack.run(state.layers, embedded, summary if self.feed_summary else None, train)
        return self._steps(top, summary[:, None], embedded, mask[:, None])

    def _steps(self, top, summary, embedded, mask):
        if self.feed_summary:
            summary = jnp.broadcast_to(summary, (*top.shape[:-1], summary.shape[-1]))
            hidden = jnp.tanh(self.combine(top, summary, embedded))
        else:
            hidden = top
        weights = jnp.zeros((*top.shape[:-1], mask.shape[-1]), top.dtype)
        return Steps(hidden, weights, weights.sum(-1), top, top, embedded)


class BahdanauDecoder(Decoder):
    """Attend with the state before, then step (Bahdanau 2015, arXiv 1409.0473, section 3.1).

    context = attention(h[t-1]);  h[t] = cell(h[t-1], [embedded; context]);
    hidden = tanh(W [h[t]; context; embedded]), where the paper has a maxout layer (appendix A.2.2).
    """

    def advance(self, memory, state, projected, masks=(), train=False):
        query = state.layers[-1][0]
        attended, weights = self.attend(query, memory, state, train)
        layers = self.stack.step(state.layers, projected, attended.context, masks, train)
        read = Read(layers[-1][0], query, attended.context, None, attended.weights, attended.log_prob)
        return DecoderState(layers, state.fed, state.position + 1, weights), read

    def readout(self, top, context, embedded=None):
        return jnp.tanh(self.combine(top, context, embedded))


class LuongDecoder(Decoder):
    """Step, then attend (Luong 2015, arXiv 1508.04025, section 3): hidden = tanh(W [context; h]), equation 5.

    With input feeding (section 3.3) `hidden` enters the next step; without it nothing of the attention
    enters the recurrence, and attention and readout run once over all target steps. Then the decoder can also
    attend to its own earlier states, tanh(W [context; h; own context]) (Paulus 2018, arXiv 1705.04304, section 2.2;
    their temporal normalization is left out). `max_length` of them are kept in decoding.
    """

    input_feeding: bool = True
    self_attention: Attention | None = None
    max_length: int = 0

    def fed_features(self) -> int:
        return self.features if self.input_feeding else 0

    def start(self, encoded: Encoded) -> tuple[PyTree, DecoderState]:
        memory, state = super().start(encoded)
        if self.self_attention is None:
            return memory, state
        batch_size = encoded.states.shape[0]
        nothing = jnp.zeros((batch_size, self.max_length, self.stack.features), self.stack.dtype)
        past = self.self_attention.prepare(nothing, mask=jnp.zeros(nothing.shape[:2], bool))
        return memory, state.replace(past=past)

    def advance(self, memory, state, projected, masks=(), train=False):
        fed = state.fed if self.input_feeding else None
        layers = self.stack.step(state.layers, projected, fed, masks, train)
        top = query = layers[-1][0]
        attended, weights = self.attend(query, memory, state, train)
        past = state.past
        if self.self_attention is not None:
            own = self.self_attention(top[:, None], past).context[:, 0]
            past = write(past, self.self_attention.prepare(top[:, None]), state.position)
            top = jnp.concatenate([top, own], axis=-1)
        hidden = self.readout(top, attended.context)
        fed = hidden if self.input_feeding else state.fed
        read = Read(top, query, None, hidden, attended.weights, attended.log_prob)
        return DecoderState(layers, fed, state.position + 1, weights, past), read

    def unroll(self, memory, state, embedded, train=False):
        if self.input_feeding or self.attention.monotonic is not None:
            return super().unroll(memory, state, embedded, train)
        top = query = self.stack.run(state.layers, embedded, train=train)
        positions = state.position[:, None] + jnp.arange(embedded.shape[1])
        attended = self.attention(query, memory, positions=positions, rng=self.noise(train), train=train)
        if self.self_attention is not None:
            before = jnp.tril(jnp.ones((top.shape[1],) * 2, bool), -1)
            own = self.self_attention(top, self.self_attention.prepare(top), mask=before, train=train)
            top = jnp.concatenate([top, own.context], axis=-1)
        return self.finish(Read(top, query, attended.context, None, attended.weights, attended.log_prob), embedded)

    def readout(self, top, context, embedded=None):
        return jnp.tanh(self.combine(context, top))


DECODERS = {"none": PlainDecoder, "bahdanau": BahdanauDecoder, "luong": LuongDecoder}
