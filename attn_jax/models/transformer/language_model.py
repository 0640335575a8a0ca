"""A decoder-only language model: one causal stack over the source and then the target.

    source tokens, eos, bos, target tokens, eos, pad ...

The loss is that of the target. With an empty source this is plain language modelling.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.attention import Memory
from attn_jax.layers.transformer import TransformerStack
from attn_jax.models.transformer.encoder_decoder import TeacherForced
from attn_jax.types import Array, Float, Int


@struct.dataclass
class Continued:
    """What changes from step to step."""

    position: Int[Array, "b ..."]  # where the next token stands
    first: Int[Array, "b ..."]  # the token that begins the target in place of bos, or -1
    caches: tuple[Memory, ...]


class LanguageModel(TeacherForced, kw_only=True):
    """p(target | source) by one causal stack (Radford 2018; Liu 2018, arXiv 1801.10198).

    With `continue_source` a source given to decoding is the beginning of the target itself: after
    bos, source, the model goes on. Training never sees such a source: there it is empty.
    """

    stack: TransformerStack
    continue_source: bool = False
    bos: int = 2
    eos: int = 3
    reads_target: ClassVar[bool] = True  # the weights on the source do not sum to one: the target so far has the rest

    def unroll(self, source: Int[Array, "b s"], target_in: Int[Array, "b t"], *, train: bool = False):
        both = jnp.concatenate([source, target_in], axis=1)
        size, length = both.shape[1], jnp.sum(source != self.pad, axis=1, keepdims=True)
        place = jnp.arange(size)  # the target follows without a gap, so that padding in between changes nothing
        index = jnp.where(place < length, place, jnp.minimum(source.shape[1] + place - length, size - 1))
        real = jnp.take_along_axis(both != self.pad, index, axis=1) & (place < length + target_in.shape[1])
        embedded = jnp.concatenate([self.embed_source(source), self.target_embedding(target_in)], axis=1)
        states, _, attended = self.stack.run(take(embedded, index), real, train=train)
        own = length + jnp.arange(target_in.shape[1])
        weights = take(jnp.mean(attended.weights, axis=-3), own)
        return take(states, own), weights[..., : source.shape[1]] * (source != self.pad)[:, None]

    def start(self, source: Int[Array, "b s"]) -> tuple[tuple, Continued]:
        """The source read at once, into caches with room for the target. Nothing else stays the same: no memory."""
        embedded, length = self.embed_source(source), jnp.sum(source != self.pad, axis=1)
        first = jnp.full(len(source), -1, jnp.int32)
        if self.continue_source:
            # source eos  ->  eos bos source, the last token of which is the first to be given to `step`
            num_tokens = length - 1
            last = jnp.take_along_axis(source, jnp.maximum(num_tokens - 1, 0)[:, None], axis=1)[:, 0]
            first = jnp.where(num_tokens > 0, last, first)
            shifted = jnp.concatenate([jnp.full_like(source[:, :2], self.bos), source], axis=1)[
                :, : source.shape[1] + 1
            ]
            shifted = shifted.at[:, 0].set(self.eos)
            length = jnp.where(num_tokens > 0, num_tokens + 1, 1)
            shifted = jnp.where(jnp.arange(shifted.shape[1]) < length[:, None], shifted, self.pad)
            embedded = jnp.concatenate(
                [self.embed_source(shifted[:, :1]), self.target_embedding(shifted[:, 1:])], axis=1
            )
        size = embedded.shape[1]
        _, read, _ = self.stack.run(embedded, jnp.arange(size) < length[:, None])
        empty = self.stack.start(len(source), size + self.max_length)
        caches = jax.tree.map(lambda old, new: jax.lax.dynamic_update_slice(old, new, (0,) * old.ndim), empty, read)
        return (), Continued(length, first, caches)

    def step(self, memory: tuple, state: Continued, token: Int[Array, "b"]) -> tuple[Continued, Float[Array, "b v"]]:
        token = jnp.where(state.first >= 0, state.first, token)
        states, caches = self.stack.step(self.target_embedding(token), position=state.position, caches=state.caches)
        return Continued(state.position + 1, jnp.full_like(state.first, -1), caches), self.log_probs(states)


def take(x: Float[Array, "b n ..."], index: Int[Array, "b m"]) -> Float[Array, "b m ..."]:
    """Rows `index` of the second axis."""
    return jnp.take_along_axis(x, index.reshape(*index.shape, *[1] * (x.ndim - 2)), axis=1)
