"""The one formula: context = read(normalize(score(query, keys)), values)."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.normalizers import softmax
from attn_jax.attention.readings import expectation
from attn_jax.attention.scores import Score
from attn_jax.types import Array, Bool, Float, Int


@struct.dataclass
class Memory:
    """What attention reads: a value, built once and read many times.

    The states of an encoder, the sentences of a memory network, the key/value cache of a
    Transformer, the training set of a Nadaraya-Watson regression.
    """

    keys: Float[Array, "... k dk"]  # already projected by the score
    values: Float[Array, "... k dv"]
    mask: Bool[Array, "... k"]  # True: may be attended to


@struct.dataclass
class Attended:
    """The result of reading a memory."""

    context: Float[Array, "... q dv"]
    weights: Float[Array, "... q k"]


class Attention(nn.Module):
    """context = read(normalize(score(query, keys)), values), and the weights beside it.

    `window` (see windows.py) narrows the keys to the neighbourhood of a position, and multiplies the
    weights by its factor without normalizing again (Luong 2015, equation 10).
    """

    score: Score
    normalize: Callable = softmax
    read: Callable = expectation
    window: nn.Module | None = None

    def prepare(
        self,
        keys: Float[Array, "... k dk"],
        values: Float[Array, "... k dv"] | None = None,
        mask: Bool[Array, "... k"] | None = None,
    ) -> Memory:
        """A Memory of these keys (and values, by default the keys themselves)."""
        mask = jnp.ones(keys.shape[:-1], bool) if mask is None else mask
        return Memory(self.score.project_keys(keys), keys if values is None else values, mask)

    def __call__(
        self,
        query: Float[Array, "... q dq"],
        memory: Memory,
        mask: Bool[Array, "... #q k"] | None = None,
        positions: Int[Array, "... q"] | None = None,
    ) -> Attended:
        """Reads the memory. `mask` narrows it per query; `positions` of the queries are for a window."""
        allowed = memory.mask[..., None, :] if mask is None else memory.mask[..., None, :] & mask
        scores = self.score(query, memory.keys)
        if self.window is None:
            weights = self.normalize(scores, allowed)
        else:
            near, factor = self.window(query, positions, memory.mask)
            weights = self.normalize(scores, allowed & near) * factor.astype(scores.dtype)
        return Attended(self.read(weights, memory.values), weights)
