"""The one formula, context = read(normalize(score(query, keys)), values), and several heads of it side by side."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.fused import fused_attention
from attn_jax.attention.hard.readings import READINGS, Reading, log_of, weighted_sum
from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.scores import Dot, ScaledDot
from attn_jax.attention.scores.base import Score
from attn_jax.errors import UserError
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
    used: see MonotonicSelection. A normalizer with parameters is a module, and is given the query as well. Weights
    are dropped in training at the rate `dropout`; those returned are the whole ones.

    Softmax of a dot product, read as the expectation, is computed by the fused kernel (see fused.py). Its weights
    are computed beside it, which costs nothing under jit where nobody looks at them.
    """

    score: Score
    normalize: Callable = softmax
    read: Reading = READINGS["expectation"]
    window: nn.Module | None = None
    monotonic: nn.Module | None = None
    dropout: float = 0.0

    @property
    def fusible(self) -> bool:
        """Whether the fused kernel computes the same, but for dropout in training."""
        plain = self.window is None and self.monotonic is None and self.read.name == "expectation"
        return plain and self.normalize is softmax and type(self.score) in (Dot, ScaledDot)

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
        mask: Bool[Array, "..."] | None = None,  # [..., q or 1, k]
        positions: Int[Array, "... q"] | None = None,
        previous: Float[Array, "... q k"] | None = None,
        rng: PRNGKeyArray | None = None,
        bias: Float[Array, "... #q k"] | None = None,
        train: bool = False,
    ) -> Attended:
        """Reads the memory. `mask` narrows it per query; `positions` of the queries are for a window, and the
        `previous` weights for monotonic attention; `rng` is for a reading that samples; `bias` is added to the
        scores.

        Raises:
            UserError: a mask whose shape does not fit.
            ValueError: a reading of several rows, whose losses have to be put together outside (see estimators.py).
        """
        allowed = memory.mask[..., None, :] if mask is None else joint_mask(memory.mask, mask)
        _check_mask(allowed, query, memory)
        scores = self.score(query, memory.keys)
        scores = scores if bias is None else scores + bias.astype(scores.dtype)
        if self.monotonic is not None:
            weights = self.monotonic(scores, previous, allowed, rng)
        elif self.window is not None:
            near, factor = self.window(query, positions, memory.mask)
            weights = self._normalized(scores, allowed & near, query) * factor.astype(scores.dtype)
        else:
            weights = self._normalized(scores, allowed, query)
        dropping = train and self.dropout > 0
        if self.fusible and not dropping and memory.values.shape[-1] == query.shape[-1]:
            scale = 1.0 if type(self.score) is Dot else query.shape[-1] ** -0.5
            context = fused_attention(query, memory.keys, memory.values, allowed, bias, scale)
            return Attended(context, weights, jnp.zeros(weights.shape[:-1], weights.dtype))
        rows, log_prob = self._rows(weights, rng)
        if dropping:
            keep = jax.random.bernoulli(self.make_rng("dropout"), 1 - self.dropout, rows.shape)
            rows = jnp.where(keep, rows / (1 - self.dropout), 0)
        return Attended(weighted_sum(rows, memory.values), weights, log_prob)

    def _normalized(self, scores: Float[Array, "... q k"], allowed: Bool[Array, "..."], query: Array):
        if isinstance(self.normalize, nn.Module):
            return self.normalize(scores, allowed, query=query)
        return self.normalize(scores, allowed)

    def _rows(self, weights: Float[Array, "... q k"], rng: PRNGKeyArray | None):
        if self.read.name == "expectation":
            return weights, jnp.zeros(weights.shape[:-1], weights.dtype)
        # Without noise a sample is the most probable key; what is not random reads as it always does.
        reading = READINGS["top"] if rng is None and self.read.random else self.read
        sample = reading(rng, log_of(weights))
        if sample.rows.shape[-2] != 1:
            raise ValueError(
                f"Attention reads one row of weights, but read={self.read.name} samples {sample.rows.shape[-2]}; take "
                "read=expectation here, sample rows of the weights it returns, evaluate the loss at each of them, and "
                "put the losses together with attn_jax.attention.hard.estimators.combine"
            )
        return sample.rows[..., 0, :], sample.log_prob[..., 0]


def joint_mask(memory_mask: Bool[Array, "... k"], mask: Bool[Array, "..."]) -> Bool[Array, "... q k"]:
    """The keys that both allow.

    Raises:
        UserError: the shapes do not broadcast.
    """
    try:
        return memory_mask[..., None, :] & mask
    except (TypeError, ValueError):
        raise UserError(
            f"a mask of shape {mask.shape} does not broadcast with that of the memory, {memory_mask.shape} for "
            "[..., keys]; expected [..., queries, keys]"
        ) from None


def _check_mask(mask: Array, query: Array, memory: Memory) -> None:
    expected = (*jnp.broadcast_shapes(query.shape[:-2], memory.keys.shape[:-2]), query.shape[-2], memory.keys.shape[-2])
    try:
        fits = jnp.broadcast_shapes(mask.shape, expected) == expected
    except ValueError:
        fits = False
    if not fits:
        raise UserError(
            f"a mask of shape {mask.shape} does not broadcast to the scores, {expected} [..., queries, keys]"
        )
