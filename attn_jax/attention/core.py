"""The one formula: context = read(normalize(score(query, keys)), values)."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.normalizers import softmax
from attn_jax.attention.readings import READINGS, Reading, expectation, log_of
from attn_jax.attention.scores import Score
from attn_jax.types import Array, Bool, Float, Int, PRNGKeyArray


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
    log_prob: Float[Array, "... q"]  # log weight of the key that was chosen; 0 where none was


class Attention(nn.Module):
    """context = read(normalize(score(query, keys)), values), and the weights beside it.

    `read` is a reading that needs one row: the expectation (soft attention), or a key sampled with the rng of the
    call; without an rng that is the most probable key. `window` (see windows.py) narrows the keys to the
    neighbourhood of a position, and multiplies the weights by its factor without normalizing again (Luong 2015,
    equation 10). With `monotonic` the weights of a query depend on those of the one before, and `normalize` is not
    used: see MonotonicSelection.
    """

    score: Score
    normalize: Callable = softmax
    read: Reading = READINGS["expectation"]
    window: nn.Module | None = None
    monotonic: nn.Module | None = None

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
        previous: Float[Array, "... q k"] | None = None,
        rng: PRNGKeyArray | None = None,
    ) -> Attended:
        """Reads the memory. `mask` narrows it per query; `positions` of the queries are for a window, and the
        `previous` weights for monotonic attention; `rng` is for a reading that samples."""
        allowed = memory.mask[..., None, :] if mask is None else memory.mask[..., None, :] & mask
        scores = self.score(query, memory.keys)
        if self.monotonic is not None:
            weights = self.monotonic(scores, previous, allowed, rng)
        elif self.window is not None:
            near, factor = self.window(query, positions, memory.mask)
            weights = self.normalize(scores, allowed & near) * factor.astype(scores.dtype)
        else:
            weights = self.normalize(scores, allowed)
        rows, log_prob = self._rows(weights, rng)
        return Attended(expectation(rows, memory.values), weights, log_prob)

    def _rows(self, weights: Float[Array, "... q k"], rng: PRNGKeyArray | None):
        if self.read.name == "expectation":
            return weights, jnp.zeros(weights.shape[:-1], weights.dtype)
        # Without noise a sample is the most probable key; what is not random reads as it always does.
        reading = READINGS["top"] if rng is None and self.read.random else self.read
        draw = reading(rng, log_of(weights))
        return draw.rows[..., 0, :], draw.log_prob[..., 0]
