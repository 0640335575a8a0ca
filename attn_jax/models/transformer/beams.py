"""Beams of a Transformer that share one cache, which is never reordered.

    token of beam j at step i  ->  keys and values in place first + i k + j of the cache of its sentence
    ancestors [b, k, t]            the beam in whose place step i of each hypothesis is
    seen      [b, k, t k]          ancestors == beam: the keys that a hypothesis reads

A search replaces hypotheses at each step. Instead of moving the keys and values of all layers, a step moves the table
of ancestors, a few numbers for each token. The beams of a sentence are queries of one attention, so its memory, too, is
read once for all of them.
"""

import jax.numpy as jnp
from flax import struct

from attn_jax.attention.caches import Branch
from attn_jax.types import Array, Int, PyTree


class BeamState(struct.PyTreeNode):
    """The decode state of all beams of each sentence."""

    caches: tuple[PyTree, ...]  # of each layer: `first` places, then one for each step and beam
    position: Int[Array, "b"]  # position of the first step
    first_token: Int[Array, "b"]  # read by the first step instead of bos; -1: none
    ancestors: Int[Array, "b k t"]
    num_steps: Int[Array, ""]  # steps so far
    first: int = struct.field(pytree_node=False, default=0)  # number of keys that all beams read

    @classmethod
    def of(cls, caches: tuple, position: Array, first_token: Array, beams: int, length: int, first: int) -> "BeamState":
        """Makes the state before the first step; the caches have room for `length` steps."""
        nobody = jnp.full((len(position), beams, length), -1, jnp.int32)
        return cls(caches, position, first_token, nobody, jnp.int32(0), first)

    def follow(self, parent: Int[Array, "b k"]) -> tuple["BeamState", Branch]:
        """Makes the beams the extensions of their parents: returns (state, where the next step writes and reads)."""
        rows, beams, length = self.ancestors.shape
        step, own = jnp.arange(length), jnp.arange(beams)
        ancestors = jnp.take_along_axis(self.ancestors, parent[..., None], axis=1)
        ancestors = jnp.where(step == self.num_steps, own[:, None], ancestors)
        seen = (ancestors[..., None] == own).reshape(rows, beams, length * beams)
        shared = jnp.ones((rows, beams, self.first), bool)
        branch = Branch(self.first + self.num_steps * beams, jnp.concatenate([shared, seen], axis=-1))
        return self.replace(ancestors=ancestors), branch

    @property
    def positions(self) -> Int[Array, "b k"]:
        """Positions of the next tokens, the same for all beams of a sentence."""
        return jnp.broadcast_to((self.position + self.num_steps)[:, None], self.ancestors.shape[:2])

    def tokens(self, token: Int[Array, "b k"]) -> Int[Array, "b k"]:
        """Returns the tokens that the next step reads."""
        first = self.first_token[:, None]
        return jnp.where((self.num_steps == 0) & (first >= 0), first, token)

    def after_step(self, caches: tuple[PyTree, ...]) -> "BeamState":
        """Returns the state after a step."""
        return self.replace(caches=caches, num_steps=self.num_steps + 1)

    def places(self, length: int) -> int:
        """Returns the number of places that a cache needs for `length` steps."""
        return self.first + length * self.ancestors.shape[1]

    def grown(self, caches: tuple[PyTree, ...], length: int) -> "BeamState":
        """Makes room for `length` steps, which `caches` have already."""
        more = ((0, 0), (0, 0), (0, length - self.ancestors.shape[-1]))
        return self.replace(caches=caches, ancestors=jnp.pad(self.ancestors, more, constant_values=-1))
