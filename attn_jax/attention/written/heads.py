"""Heads of attention whose memory is written: in place of MultiHead, with a cache of fixed size."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.blockwise import PositionFunction
from attn_jax.attention.convolution import ShortConvolution
from attn_jax.attention.core import Attended
from attn_jax.attention.gates import ContextGate
from attn_jax.attention.masks import causal as causal_order
from attn_jax.attention.masks import checked_masks
from attn_jax.attention.multi_head import head_width
from attn_jax.attention.scores.base import unit
from attn_jax.attention.written.delta import Delta
from attn_jax.attention.written.features import FEATURE_MAPS, FeatureMap, check_feature_map
from attn_jax.attention.written.forms import Rule, chunked, recurrent, write_all
from attn_jax.attention.written.gates import ColumnDecay, FixedDecay, HeadDecay, Rates
from attn_jax.attention.written.linear import Linear
from attn_jax.attention.written.mesa import Mesa
from attn_jax.attention.written.writes import Writes, make_writes
from attn_jax.types import Array, Bool, Dtype, Float, Int, PRNGKeyArray, PyTree, wide

LOWEST_RIDGE = 0.25  # bounds the condition number of the system of Mesa


class Kind(NamedTuple):
    """A fixed-size memory: its update rule, and how keys, decays and write strengths are computed.

    The recurrences are those of the papers. The projections are shared, silu(W x) scaled to unit length, so `retention`
    and `gated_linear` are not the published blocks.
    """

    rule: type[Linear] | type[Delta] | type[Mesa]
    equation: str  # of a write and a read; a = exp(log decay), b the rate, f the feature map, L the ridge
    decay: type[nn.Module] | None = None
    rated: bool = False  # learned rates; False: 1
    maps: bool = False  # queries and keys go through a feature map; False: silu, and vectors of length 1

    @property
    def solves(self) -> bool:
        """Tells whether reading solves a system."""
        return self.rule is Mesa

    @property
    def needs_causal(self) -> bool:
        """Tells whether the memory depends on the order of the keys, so that it cannot be that of a source."""
        return self.rule.ordered or self.decay is not None


WRITTEN = {
    "linear": Kind(Linear, "S = S + f(k) v'; f(q)' S / sum of weights", maps=True),
    "retention": Kind(Linear, "S = a S + k v', a fixed for each head; q' S", decay=FixedDecay),
    "gated_linear": Kind(Linear, "S = a S + k v', a of the input for each column; q' S", decay=ColumnDecay),
    "delta": Kind(Delta, "S = S + b k (v - S' k)'; q' S", rated=True),
    "gated_delta": Kind(Delta, "S = a S, S = S + b k (v - S' k)'; q' S", decay=HeadDecay, rated=True),
    "column_gated_delta": Kind(
        Delta, "S = a S, S = S + b k (v - S' k)', a for each column; q' S", decay=ColumnDecay, rated=True
    ),
    "ridge": Kind(Mesa, "H = H + b k k', S = S + b k v'; q' (H + L)^-1 S", rated=True),
    "mesa": Kind(Mesa, "H = a H + b k k', S = a S + b k v'; q' (H + L)^-1 S", decay=HeadDecay, rated=True),
}


@struct.dataclass
class WrittenMemory:
    """All that is kept of the keys so far: its size does not depend on their number."""

    state: PyTree  # of the rule, for each head
    recent: Float[Array, "b r d"]  # the last inputs of the convolution; r = 0 without one
    writes: Writes | None = None  # of a source: what the weights are made of

    @property
    def num_keys(self) -> int:
        """Number of keys that scores may have a bias for: none."""
        return 0


class WrittenHeads(nn.Module, kw_only=True):
    """[head_1; ...; head_h] W_o + b_o, head_i = read(memory_i, W_i query), the memory written by a rule.

    Queries and keys go through a feature map, or are silu(W x) with length 1. The context of each head has an RMS norm,
    except where the weights sum to one. `Attended.weights` are those of the dense form; what does not use them does
    not compute them.

    Raises:
        ValueError: a chunk size below 1; a number of heads that does not divide the width; a feature map with negative
            values whose weights are to be normalized.
    """

    kind: Kind
    num_heads: int
    features: int
    chunk_size: int = 64
    feature_map: FeatureMap = FEATURE_MAPS["elu_plus_one"]
    normalized: bool = True  # of a kind with a feature map: weights are divided by their sum
    convolution: int = 0  # number of positions that queries, keys and values are mixed over; 0: none
    steps: int = 0  # of conjugate gradient; 0: exact
    gate: bool = False  # multiply the contexts by a sigmoid of the query, see attention/gates.py
    dtype: Dtype = jnp.float32

    def __post_init__(self):
        if self.chunk_size < 1:
            raise ValueError(f"chunk_size is {self.chunk_size}; expected at least 1")
        if self.kind.maps:
            check_feature_map(self.feature_map, self.normalized)
        super().__post_init__()

    def setup(self):
        options = dict(dtype=self.dtype, kernel_init=nn.initializers.xavier_uniform())
        self.query, self.key, self.value, self.out = (nn.Dense(self.features, **options) for _ in range(4))
        heads = dict(num_heads=self.num_heads, dtype=self.dtype)
        width = head_width(self.features, self.num_heads)
        if self.kind.decay is not None:
            self.decay = self.kind.decay(width=width, **heads)
        if self.kind.rated:
            self.rates = Rates(**heads)
        if self.convolution:
            self.convolve = ShortConvolution(size=self.convolution)
        if self.gate:
            self.context_gate = ContextGate(dtype=self.dtype)
        if not self._divided:
            self.norm = nn.RMSNorm(epsilon=1e-5, dtype=self.dtype)
        if self.kind.solves:
            self.ridge = self.param("ridge", nn.initializers.zeros, (self.num_heads, width), jnp.float32)

    @property
    def by_blocks(self) -> bool:
        """Tells whether contexts are computed block by block of keys: there are no scores."""
        return False

    @property
    def samples(self) -> bool:
        """Tells whether reading needs an rng in training."""
        return False

    def empty_cache(self, batch_size: int, length: int) -> WrittenMemory:
        """Makes a memory to which nothing is written; it has room for any length."""
        x = jnp.zeros((batch_size, 1, self.features), self.dtype)
        _, writes, recent = self._project(x, jnp.zeros((batch_size, 1), bool))
        return WrittenMemory(self._rule().start(writes), recent)

    @checked_masks
    def self_attend(
        self,
        x: Float[Array, "b n d"],
        *,
        key_mask: Bool[Array, "b n"],
        mask: PositionFunction | None = None,
        positions: Int[Array, "b n"] | None = None,
        cache: WrittenMemory | None = None,
        bias: Float[Array, "..."] | PositionFunction | None = None,
        rotate: Callable | None = None,
        rng: PRNGKeyArray | None = None,
        train: bool = False,
    ) -> tuple[WrittenMemory, Attended]:
        """Writes x, and reads at x: (the memory after it, contexts and weights).

        Args:
            x: inputs; with a convolution, padding is at the end.
            key_mask: [b, n], True for inputs that are written.
            mask: causal, or None: a query reads all of x.
            positions, rng, train: without effect; MultiHead.self_attend has them.
            cache: the memory of earlier inputs, which are then followed by x position by position.
            bias, rotate: None, since a written memory has no score of single keys that they could change.

        Raises:
            ValueError: a memory that depends on the order of the keys, without a causal mask; another mask; a bias or a
                rotation.
        """
        if mask not in (None, causal_order):
            raise ValueError("a written memory is read in causal order or as a whole; expected mask=causal or None")
        if bias is not None or rotate is not None:
            raise ValueError("a written memory has no scores of single keys; expected no bias and no rotation")
        query, writes, recent = self._project(x, key_mask, None if cache is None else cache.recent)
        rule, causal = self._rule(), mask is not None or cache is not None
        if cache is not None:
            state, context = recurrent(rule, query, writes, cache.state)
        elif causal:
            state, context = chunked(rule, query, writes, self.chunk_size)
        else:
            self._check_order()
            state = write_all(rule, writes)
            context = rule.read(state, query)
        attended = self._attended(x, context, rule.weights(query, writes, causal))
        return WrittenMemory(state, recent), attended

    @checked_masks
    def prepare(self, keys: Float[Array, "b k d"], *, key_mask: Bool[Array, "b k"]) -> WrittenMemory:
        """Writes keys without causal order, such as the states of a source.

        Raises:
            ValueError: a memory that depends on the order of the keys.
        """
        self._check_order()
        _, writes, recent = self._project(keys, key_mask)
        return WrittenMemory(write_all(self._rule(), writes), recent, writes)

    def __call__(
        self,
        query: Float[Array, "b q d"],
        memory: WrittenMemory,
        *,
        rng: PRNGKeyArray | None = None,
        train: bool = False,
    ) -> Attended:
        """Reads the memory of `prepare`; `rng` and `train` have no effect."""
        projected, rule = self._features(self._split(self.query(query))), self._rule()
        weights = rule.weights(projected, memory.writes, causal=False)
        return self._attended(query, rule.read(memory.state, projected), weights)

    @property
    def _divided(self) -> bool:
        return self.kind.maps and self.normalized

    def _rule(self) -> Rule:
        if self.kind.rule is Linear:
            return Linear(normalized=self._divided)
        if self.kind.solves:
            return Mesa(ridge=LOWEST_RIDGE + jax.nn.softplus(self.ridge), steps=self.steps)
        return self.kind.rule()

    def _project(
        self, x: Float[Array, "b n d"], key_mask: Bool[Array, "b n"], recent: Float[Array, "b r c"] | None = None
    ) -> tuple[Float[Array, "b h n w"], Writes, Float[Array, "b r c"]]:
        """Returns (queries, what is written, last inputs of the convolution)."""
        inputs = jnp.concatenate([self.query(x), self.key(x), self.value(x)], axis=-1)
        inputs, recent = self.convolve(inputs, key_mask, recent) if self.convolution else (inputs, inputs[:, :0])
        query, keys, values = (self._split(part) for part in jnp.split(inputs, 3, axis=-1))
        writes = make_writes(
            self._features(keys),
            values,
            key_mask=jnp.broadcast_to(key_mask[:, None], keys.shape[:-1]),
            rates=self.rates(x) if self.kind.rated else None,
            log_decay=self.decay(x) if self.kind.decay is not None else None,
        )
        return self._features(query), writes, recent

    def _features(self, x: Float[Array, "b h n w"]) -> Float[Array, "b h n w"]:
        x = wide(x)
        if self.kind.maps:
            return self.feature_map.apply(x)
        return unit(x if self.convolution else nn.silu(x))  # a convolution has its own silu

    def _attended(self, x: Array, context: Float[Array, "b h q w"], weights: Float[Array, "b h q k"]) -> Attended:
        context = context if self._divided else self.norm(context)
        context = jnp.swapaxes(context, -3, -2).astype(self.dtype)
        context = context.reshape(*context.shape[:-2], self.features)
        context = self.context_gate(context, x) if self.gate else context
        attended = Attended(self.out(context), weights, jnp.zeros(weights.shape[:-1], weights.dtype))
        self.sow("intermediates", "__call__", attended)  # for Model.captured_weights, as it keeps those of MultiHead
        return attended

    def _check_order(self) -> None:
        if self.kind.needs_causal:
            raise ValueError("this memory needs causal keys: it depends on the order in which they are written")

    def _split(self, x: Float[Array, "b n d"]) -> Float[Array, "b h n w"]:
        return jnp.swapaxes(x.reshape(*x.shape[:-1], self.num_heads, x.shape[-1] // self.num_heads), -3, -2)
