"""A decoder-only language model: one causal stack over the source, followed by the target.

    source tokens, eos, bos, target tokens, eos, pad ...

or, if the target continues the source, eos, bos, source tokens, target tokens, eos, pad. Only target tokens enter the
loss. With an empty source this is plain language modelling.
"""

from typing import ClassVar

import jax.numpy as jnp

from attn_jax.layers.transformer import TransformerStack
from attn_jax.models.base import continued
from attn_jax.models.module import BOTH, Maps, of_layers
from attn_jax.models.transformer.beams import BeamState
from attn_jax.models.transformer.encoder_decoder import DecodeState, TeacherForced
from attn_jax.types import Array, Float, Int, PyTree


class ReadState(DecodeState):
    """The state of decoding after a source; "..." is empty, or the beam axis in a search."""

    first_token: Int[Array, "b ..."] | int = -1  # read by the first `step` instead of bos; -1: none, also after it


class LanguageModel(TeacherForced, kw_only=True):
    """p(target | source) by one causal stack (Radford 2018; Liu 2018, arXiv 1801.10198).

    With `continue_source` the source is the beginning of the target itself, and the model continues it: it reads eos,
    bos, source, target. In training the source is then empty.
    """

    stack: TransformerStack
    continue_source: bool = False
    bos: int = 2
    eos: int = 3
    reads_target: ClassVar[bool] = True  # weights on the source sum to less than one: also attends to the target

    def unroll(self, source: Int[Array, "b s"], target_in: Int[Array, "b t"], *, train: bool = False):
        embedded, real, own, columns = self._text(source, target_in)
        states, _, reads = self.stack.run(embedded, real, train=train)
        weights = take(jnp.mean(reads[-1].last.weights, axis=-3), own)
        columns = jnp.broadcast_to(columns, source.shape)[:, None]
        return take(states, own), jnp.take_along_axis(weights, columns, axis=-1) * (source != self.pad)[:, None]

    def maps(self, source: Int[Array, "b s"], target_in: Int[Array, "b t"], targets: Int[Array, "b t"]) -> Maps:
        embedded, real, _, _ = self._text(source, target_in)
        return {BOTH: of_layers(self.stack.maps(embedded, real))}

    def _text(self, source: Int[Array, "b s"], target_in: Int[Array, "b t"]):
        """Returns (embedded source and target without a gap, its mask, indices of target and of source)."""
        both = jnp.concatenate([source, target_in], axis=1)
        size, length = both.shape[1], jnp.sum(source != self.pad, axis=1, keepdims=True)
        # The target follows the source without a gap, so that padding of the source has no effect.
        place = jnp.arange(size)[None]
        columns, read = jnp.arange(source.shape[1])[None], self.embed_source(source)
        if self.continue_source and source.shape[1] > 1:  # else it is eos alone, as in training
            last = jnp.maximum(length - 1, 0)  # eos, which comes first
            index = jnp.concatenate([last, continued(source, target_in, pad=self.pad)], axis=1)
            read = jnp.where((columns < last)[..., None], self.target_embedding(source), read)
            columns = jnp.where(columns < last, columns + 2, 0)
        else:
            index = jnp.where(place < length, place, jnp.minimum(source.shape[1] + place - length, size - 1))
        real = jnp.take_along_axis(both != self.pad, index, axis=1) & (place < length + target_in.shape[1])
        embedded = jnp.concatenate([read, self.target_embedding(target_in)], axis=1)
        return take(embedded, index), real, length + jnp.arange(target_in.shape[1])[None], columns

    def start(self, source: Int[Array, "b s"], length: int) -> tuple[tuple, ReadState]:
        """Reads the source into caches with room for `length` more tokens; the memory is empty."""
        read, position, first_token, first = self._read(source)
        return (), ReadState(position, self.stack.grow(read, first + length), first, first_token)

    def start_beams(self, source: Int[Array, "b s"], length: int, beams: int) -> tuple[tuple, BeamState]:
        read, position, first_token, first = self._read(source)
        caches = self.stack.grow(read, first + length, first + length * beams)
        return (), BeamState.of(caches, position, first_token, beams, length, first)

    @property
    def causal(self) -> TransformerStack:
        return self.stack

    def _read(self, source: Int[Array, "b s"]) -> tuple[tuple[PyTree, ...], Int[Array, "b"], Int[Array, "b"], int]:
        """Reads the source: returns (caches, position after it, first token or -1, places of the caches)."""
        embedded, num_read = self.embed_source(source), jnp.sum(source != self.pad, axis=1)
        first = jnp.full(len(source), -1, jnp.int32)
        if self.continue_source:
            # source eos  ->  eos bos source, whose last token is left for the first `step`
            num_tokens = num_read - 1
            last = jnp.take_along_axis(source, jnp.maximum(num_tokens - 1, 0)[:, None], axis=1)[:, 0]
            first = jnp.where(num_tokens > 0, last, first)
            shifted = jnp.concatenate([jnp.full_like(source[:, :2], self.bos), source], axis=1)[
                :, : source.shape[1] + 1
            ]
            shifted = shifted.at[:, 0].set(self.eos)
            num_read = jnp.where(num_tokens > 0, num_tokens + 1, 1)
            shifted = jnp.where(jnp.arange(shifted.shape[1])[None] < num_read[:, None], shifted, self.pad)
            embedded = jnp.concatenate(
                [self.embed_source(shifted[:, :1]), self.target_embedding(shifted[:, 1:])], axis=1
            )
        size = embedded.shape[1]
        _, read, _ = self.stack.run(embedded, jnp.arange(size)[None] < num_read[:, None])
        return read, num_read, first, size

    def advance(self, memory: tuple, state: ReadState, token: Int[Array, "b"]) -> tuple[ReadState, Float[Array, "b d"]]:
        token = jnp.where(state.first_token >= 0, state.first_token, token)
        states, caches, _ = self.stack.step(self.target_embedding(token), position=state.position, caches=state.caches)
        nothing = jnp.full_like(state.first_token, -1)
        return state.replace(position=state.position + 1, first_token=nothing, caches=caches), states


def take(x: Float[Array, "b n ..."], index: Int[Array, "b m"]) -> Float[Array, "b m ..."]:
    """Takes the entries `index` of the second axis, in each row of the batch."""
    return jnp.take_along_axis(x, index.reshape(*index.shape, *[1] * (x.ndim - 2)), axis=1)
