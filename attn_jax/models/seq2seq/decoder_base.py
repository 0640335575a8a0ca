"""The interface and the base class of the decoders.

    start(encoded) -> (memory, state)                memory: read by every step; state: replaced by every step
    step(memory, state, embedded [b, e]) -> (state, StepOutputs with leaves [b, ...])
    unroll(memory, state, embedded [b, t, e]) -> StepOutputs with leaves [b, t, ...]
    readout(hidden, context, embedded) -> readout    the vector for the output layer, for any context

`unroll` is the teacher-forced pass and equals t calls of `step`. Every leaf of memory and state has the batch as its
first axis, so a search may repeat, reorder and drop rows.
"""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from attn_jax.attention import Attended, Attention, Memory
from attn_jax.attention.caches import Entries
from attn_jax.attention.dense import Dense, product
from attn_jax.attention.hard.monotonic import initial_weights
from attn_jax.models.seq2seq.recurrent_stack import EncoderStates, Stack
from attn_jax.types import Array, Bool, Dtype, Float, Int, PyTree


class DecodeState(struct.PyTreeNode):
    """The state of decoding; "..." is empty, or the beam axis in a search."""

    layers: PyTree  # states of the layers, or their caches
    fed: Float[Array, "b ... f"]  # readout of the previous step; no columns without input feeding
    position: Int[Array, "b ..."]  # target position, from 0
    weights: Float[Array, "b ... s"]  # weights of the previous step, for monotonic attention; otherwise no columns
    reads_mean: Bool[Array, "b"] | None = None  # in training: rows that read the mean context, not a sampled one
    past: Entries | None = None  # earlier hidden states of the decoder, if it attends to them
    tags: PyTree = None  # of a source with tags: one vector [b, e], or the memory that `tag_attention` reads
    coverage: Float[Array, "..."] | None = None  # sum of the weights so far, if the scores depend on it
    copied: Int[Array, "..."] | None = None  # target id of each source token, for a pointer


class StepOutputs(struct.PyTreeNode):
    """Outputs of one step ("..." is the batch), or of all steps ("..." is batch and target time)."""

    readout: Float[Array, "... d"]  # input of the output layer
    weights: Float[Array, "... s"]
    log_prob: Float[Array, "..."]  # log weight of the sampled key; 0 without sampling
    hidden: Float[Array, "... h"]  # state of the last layer, from which `readout` reads another context
    query: Float[Array, "... q"]  # query of the attention; depends on earlier contexts, not on the context of this step
    embedded: Float[Array, "... e"]
    copied: Int[Array, "..."] | None = None  # target id of each source token, for a pointer
    maps: dict[str, Array] = struct.field(default_factory=dict)  # weights on other sequences than the source, by name


class LoopOutputs(struct.PyTreeNode):
    """Outputs of one step inside the loop over time, from which `Decoder.finish` makes StepOutputs."""

    hidden: Array
    query: Array
    context: Array | None  # None if `readout` is set
    readout: Array | None  # None if it can be computed after the loop
    weights: Array
    log_prob: Array


class ConcatDense(nn.Module, kw_only=True):
    """W [part_1; part_2; ...] + b, over the last axes of the parts.

    If parts differ in their leading axes, each is multiplied by its own columns of W, and the products are broadcast.
    """

    features: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, *parts: Float[Array, "..."]) -> Float[Array, "... d"]:
        width = sum(part.shape[-1] for part in parts)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (width, self.features), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        bias = jnp.expand_dims(bias, range(max(part.ndim for part in parts) - 1))
        if len({part.shape[:-1] for part in parts}) == 1:
            return (product(jnp.concatenate(parts, axis=-1), kernel, self.dtype) + bias).astype(self.dtype)
        ends = np.cumsum([part.shape[-1] for part in parts])[:-1]
        columns = zip(parts, jnp.split(jnp.asarray(kernel), ends), strict=True)
        return (sum(product(part, rows, self.dtype) for part, rows in columns) + bias).astype(self.dtype)


class Coverage(nn.Module, kw_only=True):
    """u_i + c_i w: projected keys shifted by c_i w, where the coverage c_i is the total weight key i has received."""

    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, keys: Float[Array, "b s d"], coverage: Float[Array, "b s"]) -> Float[Array, "b s d"]:
        vector = self.param("vector", nn.initializers.normal(0.1), keys.shape[-1:], jnp.float32)
        return keys + (coverage[..., None] * vector).astype(keys.dtype)


class Decoder(nn.Module, kw_only=True):
    """Base of the decoders: the start, and a loop of `advance` over the target.

    A decoder with attention defines `advance`, one step of the recurrence, and `readout`.
    """

    stack: Stack
    features: int  # width of the readout, unless it is the hidden state itself
    attention: Attention | None = None
    tag_attention: Attention | None = None  # reads the tags of a source
    selector: bool = False  # multiply the context by one number, see `select`
    coverage: bool = False  # the score also depends on the coverage, the sum of earlier weights of each key
    uses_attention: ClassVar[bool] = True  # False: `attention` stays None
    grows: ClassVar[bool] = False  # see SequenceModule
    takes_self_attention: ClassVar[bool] = False  # whether there is a field `self_attention`

    def grow(self, state: DecodeState, length: int) -> DecodeState:
        """Returns the state with room for `length` steps in all."""
        return state

    def setup(self):
        self.combine = ConcatDense(features=self.features, dtype=self.stack.dtype)
        self.beta = Dense(features=1, dtype=self.stack.dtype)  # has no parameters if it is never called
        if self.coverage:
            self.cover = Coverage(dtype=self.stack.dtype)

    @property
    def num_states(self) -> int:
        """Number of vectors in the state of a layer."""
        return self.stack.cell.num_states

    @property
    def feeds_attention(self) -> bool:
        """True if contexts enter the recurrence, so that hidden states depend on earlier attention."""
        return self.uses_attention

    @property
    def readout_features(self) -> int:
        """The width of the readout."""
        return self.features

    def advance(
        self,
        memory: PyTree,
        state: DecodeState,
        projected: Float[Array, "b gd"],
        *,
        masks: tuple = (),
        train: bool = False,
    ) -> tuple[DecodeState, LoopOutputs]:
        """Computes one step of the recurrence, from the embedded token after `stack.project`."""
        raise NotImplementedError

    def readout(
        self,
        hidden: Float[Array, "... h"],
        context: Float[Array, "... dv"],
        embedded: Float[Array, "... e"] | None = None,
    ) -> Float[Array, "... d"]:
        """Returns the vector from which the output layer predicts the next token."""
        raise NotImplementedError

    def start(self, encoded: EncoderStates, length: int = 0) -> tuple[PyTree, DecodeState]:
        """Returns (memory, state before the first step); a state that stores earlier steps has room for `length`."""
        batch_size = encoded.states.shape[0]
        fed = jnp.zeros((batch_size, self.fed_features()), encoded.states.dtype)
        monotonic = self.attention is not None and self.attention.needs_previous
        weights = initial_weights(encoded.mask) if monotonic else jnp.zeros((batch_size, 0), jnp.float32)
        position = jnp.zeros(batch_size, jnp.int32)
        tags = encoded.tags
        if self.tag_attention is not None:
            tags = self.tag_attention.prepare(tags.embedded, key_mask=tags.mask)
        layers = self.stack.start(encoded)
        state = DecodeState(layers=layers, fed=fed, position=position, weights=weights, tags=tags)
        if self.coverage:
            state = state.replace(coverage=jnp.zeros(encoded.mask.shape, jnp.float32))
        return self.remember(encoded), state

    def fed_features(self) -> int:
        """Returns the width of `DecodeState.fed`."""
        return 0

    def remember(self, encoded: EncoderStates) -> PyTree:
        """Returns the memory that the steps read."""
        return self.attention.prepare(encoded.states, key_mask=encoded.mask)

    def step(
        self, memory: PyTree, state: DecodeState, embedded: Float[Array, "b e"]
    ) -> tuple[DecodeState, StepOutputs]:
        """Computes one step, for decoding."""
        state, outputs = self.advance(memory, state, self.stack.project(embedded))
        return state, self.finish(outputs, embedded)

    def unroll(
        self, memory: PyTree, state: DecodeState, embedded: Float[Array, "b t e"], *, train: bool = False
    ) -> StepOutputs:
        """Computes all steps of a known target."""
        masks = self.stack.masks(embedded.shape[0], train)

        def body(decoder, state, projected):
            return decoder.advance(memory, state, projected, masks=masks, train=train)

        scan = nn.scan(
            body,
            variable_broadcast="params",
            split_rngs={"params": False, "dropout": True, "sample": True},
            in_axes=1,
            out_axes=1,
        )
        _, outputs = scan(self, state, self.stack.project(embedded))
        return self.finish(outputs, embedded)

    def finish(self, outputs: LoopOutputs, embedded: Float[Array, "... e"]) -> StepOutputs:
        """Computes the readout of all steps together, after the loop, unless the loop itself needed it."""
        readout = outputs.readout
        if readout is None:
            readout = self.readout(outputs.hidden, outputs.context, embedded)
        return StepOutputs(
            readout=readout,
            weights=outputs.weights,
            log_prob=outputs.log_prob,
            hidden=outputs.hidden,
            query=outputs.query,
            embedded=embedded,
        )

    def attend(
        self, query: Float[Array, "b d"], memory: Memory, state: DecodeState, *, train: bool
    ) -> tuple[Attended, DecodeState]:
        """Returns (the attention of one step, the state updated with its weights).

        With coverage c_i, the sum of the earlier weights of key i, projected keys are u_i + c_i w. In the additive
        score this is v . tanh(W query + u_i + c_i w + b): See 2017 (arXiv 1704.04368), equation 11.
        """
        monotonic = self.attention.needs_previous
        covered = memory
        if self.coverage:
            covered = memory.replace(keys=self._covered(memory.keys, state.coverage))
        attended = self.attention(
            query[:, None],
            covered,
            positions=state.position[:, None],
            previous=state.weights[:, None] if monotonic else None,
            rng=self.sample_rng(train),
            train=train,
        )
        attended = self.select(jax.tree.map(lambda x: x[:, 0], attended), query, memory, state)
        if monotonic:
            state = state.replace(weights=attended.weights)
        if self.coverage:
            state = state.replace(coverage=state.coverage + attended.weights.astype(jnp.float32))
        return attended, state

    def _covered(self, keys: PyTree, coverage: Float[Array, "b s"]) -> PyTree:
        """Shifts the projected keys of every part of a map by the coverage."""
        leaves, tree = jax.tree.flatten(keys)
        ends = np.cumsum([x.shape[-1] for x in leaves])[:-1]
        covered = self.cover(jnp.concatenate(leaves, axis=-1), coverage)
        return jax.tree.unflatten(tree, jnp.split(covered, ends, axis=-1))

    def select(
        self, attended: Attended, query: Float[Array, "b ... d"], memory: Memory, state: DecodeState
    ) -> Attended:
        """Replaces the context by the mean context in rows with `reads_mean`, and multiplies it by the selector.

        The selector beta = sigmoid(W query + b) is one number for each context, so that a word can be generated without
        attending to the source: Xu 2015 (arXiv 1502.03044), section 4.2.1.
        """
        if state.reads_mean is not None:
            soft = state.reads_mean.reshape(-1, *[1] * (query.ndim - 2))
            mean = jnp.einsum("b...s,bsd->b...d", attended.weights, memory.values)
            context = jnp.where(soft[..., None], mean, attended.context)
            attended = attended.replace(context=context, log_prob=jnp.where(soft, 0, attended.log_prob))
        if not self.selector:
            return attended
        return attended.replace(context=attended.context * nn.sigmoid(self.beta(query)))

    def with_tags(
        self, vector: Float[Array, "b d"], query: Float[Array, "b q"], state: DecodeState, *, train: bool
    ) -> Array:
        """Returns [vector; context of the tags] if the decoder attends to tags, else the vector."""
        if self.tag_attention is None:
            return vector
        attended = self.tag_attention(query[:, None], state.tags, train=train)
        return jnp.concatenate([vector, attended.context[:, 0]], axis=-1)

    def scores(self, query: Float[Array, "b t q"], memory: Memory) -> Float[Array, "b t s"]:
        """Returns the unnormalized scores (logits) of the keys of the memory."""
        return self.attention.score(query, memory.keys)

    def sample_rng(self, train: bool):
        """Returns the rng for attention that samples in training; None for other attention."""
        return self.make_rng("sample") if train and self.attention.needs_rng else None
