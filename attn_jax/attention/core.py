"""The one formula, context = read(normalize(score(query, keys)), values), and several heads of it side by side."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.fused import fused_attention
from attn_jax.attention.normalizers import softmax
from attn_jax.attention.readings import READINGS, Reading, expectation, log_of
from attn_jax.attention.scores import Dot, ScaledDot, Score
from attn_jax.errors import UserError
from attn_jax.types import Array, Bool, Dtype, Float, Int, PRNGKeyArray


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
        return Attended(expectation(rows, memory.values), weights, log_prob)

    def _normalized(self, scores: Float[Array, "... q k"], allowed: Bool[Array, "..."], query: Array):
        if isinstance(self.normalize, nn.Module):
            return self.normalize(scores, allowed, query=query)
        return self.normalize(scores, allowed)

    def _rows(self, weights: Float[Array, "... q k"], rng: PRNGKeyArray | None):
        if self.read.name == "expectation":
            return weights, jnp.zeros(weights.shape[:-1], weights.dtype)
        # Without noise a sample is the most probable key; what is not random reads as it always does.
        reading = READINGS["top"] if rng is None and self.read.random else self.read
        draw = reading(rng, log_of(weights))
        if draw.rows.shape[-2] != 1:
            raise ValueError(
                f"Attention reads one row of weights, but read={self.read.name} draws {draw.rows.shape[-2]}; take "
                "read=expectation here, draw rows of the weights it returns, evaluate the loss at each of them, and "
                "put the losses together with attn_jax.attention.estimators.combine"
            )
        return draw.rows[..., 0, :], draw.log_prob[..., 0]


class MultiHead(nn.Module):
    """[head_1; ...; head_h] W_o + b_o, head_i = the attention of (W_i query, W_i' keys, W_i'' values).

    Vaswani 2017 (arXiv 1706.03762), section 3.2.2. The heads are a leading axis of one Attention, so every score,
    normalizer and reading works per head; parameters that these have are shared by the heads, unless they say
    otherwise. With `num_kv_heads` < num_heads, groups of heads share their keys and values (Ainslie 2023, arXiv
    2305.13245).
    """

    attention: Attention
    num_heads: int
    features: int  # width of the queries, of the contexts, and of all heads together
    num_kv_heads: int = 0  # 0: num_heads
    dtype: Dtype = jnp.float32

    def setup(self):
        width = head_width(self.features, self.num_heads, self.num_kv_heads)
        groups = self.num_kv_heads or self.num_heads
        options = dict(dtype=self.dtype, kernel_init=nn.initializers.xavier_uniform())
        self.query = nn.Dense(self.features, **options)
        self.key = nn.Dense(width * groups, **options)
        self.value = nn.Dense(width * groups, **options)
        self.out = nn.Dense(self.features, **options)

    def prepare(
        self,
        keys: Float[Array, "... k d"],
        values: Float[Array, "... k dv"] | None = None,
        mask: Bool[Array, "... k"] | None = None,
        rotate: Callable | None = None,
    ) -> Memory:
        """A Memory with an axis of key/value heads before the keys; `rotate` turns the keys by their positions."""
        groups = self.num_kv_heads or self.num_heads
        mask = jnp.ones(keys.shape[:-1], bool) if mask is None else mask
        values = self._split(self.value(keys if values is None else values), groups)
        keys = self._split(self.key(keys), groups)
        keys = keys if rotate is None else rotate(keys)
        return self.attention.prepare(keys, values, jnp.broadcast_to(mask[..., None, :], keys.shape[:-1]))

    def __call__(
        self,
        query: Float[Array, "... q d"],
        memory: Memory,
        mask: Bool[Array, "... #q k"] | None = None,
        bias: Float[Array, "... h #q k"] | None = None,
        rotate: Callable | None = None,
        rng: PRNGKeyArray | None = None,
        train: bool = False,
    ) -> Attended:
        """context [..., q, features]; weights [..., h, q, k] and log_prob [..., h, q] of each head."""
        heads = self._split(self.query(query), self.num_heads)
        heads = heads if rotate is None else rotate(heads)
        mask = None if mask is None else mask[..., None, :, :]
        shared = self.num_heads // (self.num_kv_heads or self.num_heads)
        axis = memory.mask.ndim - 1  # after the heads
        grouped = shared > 1 and not isinstance(self.attention.normalize, nn.Module)
        if grouped:  # [..., g, r, q, d] ask [..., g, 1, k, d]
            heads = _group(heads, shared)
            memory = jax.tree.map(lambda x: jnp.expand_dims(x, axis), memory)
            mask = None if mask is None else mask[..., None, :, :]
            bias = None if bias is None else _group(bias, shared)
        elif shared > 1:  # a normalizer with parameters may have some for each head
            memory = jax.tree.map(lambda x: jnp.repeat(x, shared, axis=axis - 1), memory)
        attended = self.attention(heads, memory, mask=mask, bias=bias, rng=rng, train=train)
        if grouped:
            lead = query.shape[:-2]
            attended = jax.tree.map(lambda x: x.reshape(*lead, self.num_heads, *x.shape[len(lead) + 2 :]), attended)
        context = jnp.swapaxes(attended.context, -3, -2)
        return attended.replace(context=self.out(context.reshape(*context.shape[:-2], -1)))

    def _split(self, x: Float[Array, "... n d"], heads: int) -> Float[Array, "... h n w"]:
        return jnp.swapaxes(x.reshape(*x.shape[:-1], heads, -1), -3, -2)


def _group(x: Float[Array, "... h q d"], size: int) -> Float[Array, "... g r q d"]:
    return x.reshape(*x.shape[:-3], x.shape[-3] // size, size, *x.shape[-2:])


def head_width(features: int, num_heads: int, num_kv_heads: int = 0) -> int:
    """The width of a head; UserError where the heads do not divide the features, or the groups the heads."""
    if num_heads < 1 or features % num_heads:
        near = min((n for n in range(1, features + 1) if features % n == 0), key=lambda n: abs(n - num_heads))
        raise UserError(f"num_heads {num_heads} does not divide the width {features}; the nearest that does is {near}")
    if num_kv_heads < 0 or (num_kv_heads and num_heads % num_kv_heads):
        near = min((n for n in range(1, num_heads + 1) if num_heads % n == 0), key=lambda n: abs(n - num_kv_heads))
        raise UserError(f"num_kv_heads {num_kv_heads} does not divide num_heads {num_heads}; the nearest is {near}")
    return features // num_heads


def causal_mask(length: int) -> Bool[Array, "q k"]:
    """True where a query may attend: at its own position and before."""
    return jnp.tril(jnp.ones((length, length), bool))


def write(cache: Memory, new: Memory, slot: Int[Array, "b"]) -> Memory:
    """The cache with the one key and value of `new` in its own slot of each row."""

    def put(old: Array, one: Array, axis: int) -> Array:
        index = slot.reshape(-1, *[1] * (old.ndim - 1))
        return jnp.where(jax.lax.broadcasted_iota(jnp.int32, old.shape, axis % old.ndim) == index, one, old)

    return Memory(put(cache.keys, new.keys, -2), put(cache.values, new.values, -2), put(cache.mask, new.mask, -1))


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
