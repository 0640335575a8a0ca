"""Heads of attention with a memory that is written, a replacement of MultiHead with a cache of fixed size."""

from functools import partial
from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.caches import CAUSAL, EVERYWHERE
from attn_jax.attention.convolution import ShortConvolution
from attn_jax.attention.core import Attended
from attn_jax.attention.masks import checked_masks
from attn_jax.attention.mixer import DistanceBias, Mixer, head_width, split
from attn_jax.attention.recurrent.delta import Delta
from attn_jax.attention.recurrent.features import FEATURE_MAPS, FeatureMap, check_feature_map
from attn_jax.attention.recurrent.forms import Rule, chunked, recurrent, write_all
from attn_jax.attention.recurrent.gates import ColumnDecay, FixedDecay, HeadDecay, Rates
from attn_jax.attention.recurrent.linear import Linear
from attn_jax.attention.recurrent.mesa import Mesa
from attn_jax.attention.recurrent.writes import Writes, make_writes
from attn_jax.attention.scores.base import unit
from attn_jax.types import Array, Bool, Float, Int, PRNGKeyArray, PyTree, wide

LOWEST_RIDGE = 0.25  # lower limit of the ridge; bounds the condition number of the system in Mesa


class Kind(NamedTuple):
    """A fixed-size memory: its update rule, and how keys, decays and write strengths are computed.

    The recurrences are the published ones. The projections are the same for all kinds, silu(W x) scaled to unit length,
    so `retention` and `gated_linear` differ from the published blocks.
    """

    rule: type[Linear] | type[Delta] | type[Mesa]
    equation: str  # a write and a read; a = exp(log decay), b the rate, f the feature map, L the ridge
    decay: type[nn.Module] | None = None
    rated: bool = False  # learned rates; False: rates of 1
    maps: bool = False  # queries and keys pass a feature map; False: silu, then scaled to length 1

    @property
    def solves(self) -> bool:
        """Tells whether reading solves a linear system."""
        return self.rule is Mesa

    @property
    def needs_causal(self) -> bool:
        """Tells whether the memory depends on the order of the keys, so that it cannot store a source."""
        return self.rule.ordered or self.decay is not None


RECURRENT = {
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


class RecurrentMemory(struct.PyTreeNode):
    """The stored form of all keys so far: its size does not depend on their number."""

    state: PyTree  # state of the rule, for each head
    recent: Float[Array, "b r d"]  # last inputs of the convolution; r = 0 without a convolution
    writes: Writes | None = None  # for a source: the writes, from which the weights are computed


class RecurrentHeads(Mixer, kw_only=True):
    """[head_1; ...; head_h] W_o + b_o, head_i = read(memory_i, W_i query), where a rule writes memory_i.

    Queries and keys pass a feature map, or are silu(W x) scaled to length 1. The context of each head gets an RMS norm,
    unless the weights sum to one. `Attended.weights` are the weights of the dense form; under jit unused weights are
    not computed.

    Attributes:
        num_heads, features, order, gate, dtype: see Mixer.
        kind: the memory, one of RECURRENT.
        chunk_size: positions computed at once.
        feature_map: of queries and keys, for a kind that maps them.
        normalized: with a feature map: divide weights by their sum.
        convolution: number of positions in the convolution of queries, keys and values; 0: none.
        steps: steps of conjugate gradient; 0: exact.

    Raises:
        ValueError: the chunk size is below 1; the number of heads does not divide the width; the weights of a feature
            map with negative values are to be normalized; the order is neither CAUSAL nor EVERYWHERE, or it is
            EVERYWHERE and the memory depends on the order of the keys.
    """

    kind: Kind
    chunk_size: int = 64
    feature_map: FeatureMap = FEATURE_MAPS["elu_plus_one"]
    normalized: bool = True
    convolution: int = 0
    steps: int = 0
    samples: ClassVar[bool] = False

    def __post_init__(self):
        if self.chunk_size < 1:
            raise ValueError(f"chunk_size is {self.chunk_size}; expected at least 1")
        if self.kind.maps:
            check_feature_map(self.feature_map, self.normalized)
        if self.order not in (EVERYWHERE, CAUSAL):
            raise ValueError(f"a recurrent memory is read in causal order or as a whole; got {self.order}")
        head_width(self.features, self.num_heads)
        super().__post_init__()

    def setup(self):
        super().setup()
        self.query, self.key, self.value = (self._projection(self.features) for _ in range(3))
        heads = dict(num_heads=self.num_heads, dtype=self.dtype)
        width = head_width(self.features, self.num_heads)
        if self.kind.decay is not None:
            self.decay = self.kind.decay(width=width, **heads)
        if self.kind.rated:
            self.rates = Rates(**heads)
        if self.convolution:
            self.convolve = ShortConvolution(size=self.convolution)
        if not self._divided:
            self.norm = nn.RMSNorm(epsilon=1e-5, dtype=self.dtype)
        if self.kind.solves:
            self.ridge = self.param("ridge", nn.initializers.zeros, (self.num_heads, width), jnp.float32)

    def start(self, batch_size: int, length: int) -> RecurrentMemory:
        x = jnp.zeros((batch_size, 1, self.features), self.dtype)
        _, writes, recent = self._project(x, jnp.zeros((batch_size, 1), bool))
        return RecurrentMemory(self._rule().start(writes), recent)

    @nn.nowrap
    def grow(self, cache: RecurrentMemory, length: int) -> RecurrentMemory:
        return cache

    @checked_masks
    def extend(
        self,
        x: Float[Array, "b n d"],
        *,
        key_mask: Bool[Array, "b n"],
        positions: Int[Array, "b n"] | None = None,
        cache: RecurrentMemory | None = None,
        bias: DistanceBias | None = None,
        rng: PRNGKeyArray | None = None,
        train: bool = False,
    ) -> tuple[RecurrentMemory, Attended]:
        """Writes x and reads at x; see Mixer.extend. Padding must be at the end; positions and rng have no effect.

        Raises:
            ValueError: there is a bias, but no scores of single keys; the heads attend everywhere, but the memory
                depends on the order of the keys or is in a cache.
        """
        if bias is not None:
            raise ValueError("a recurrent memory has no scores of single keys; expected no bias")
        query, writes, recent = self._project(x, key_mask, None if cache is None else cache.recent)
        rule, causal = self._rule(), self.order.mask is not None
        if causal:
            one = x.shape[1] == 1
            form = recurrent if one else partial(chunked, chunk_size=self.chunk_size)
            state, context = form(rule, query, writes, state=None if cache is None else cache.state)
        else:
            self._check_order()
            state = write_all(rule, writes)
            context = rule.read(state, query)
        attended = self._attended(x, context, rule.weights(query, writes, causal))
        return RecurrentMemory(state, recent), attended

    @checked_masks
    def prepare(self, keys: Float[Array, "b k d"], *, key_mask: Bool[Array, "b k"]) -> RecurrentMemory:
        """Writes keys without causal order, such as the states of a source.

        Raises:
            ValueError: the memory depends on the order of the keys.
        """
        self._check_order()
        _, writes, recent = self._project(keys, key_mask)
        return RecurrentMemory(write_all(self._rule(), writes), recent, writes)

    def __call__(
        self,
        query: Float[Array, "b q d"],
        memory: RecurrentMemory,
        *,
        rng: PRNGKeyArray | None = None,
        train: bool = False,
    ) -> Attended:
        """Reads a memory from `prepare`; `rng` and `train` have no effect."""
        projected, rule = self._features(split(self.query(query), self.num_heads)), self._rule()
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
        """Returns (queries, writes, last inputs of the convolution)."""
        inputs = jnp.concatenate([self.query(x), self.key(x), self.value(x)], axis=-1)
        inputs, recent = self.convolve(inputs, key_mask, recent) if self.convolution else (inputs, inputs[:, :0])
        query, keys, values = (split(part, self.num_heads) for part in jnp.split(inputs, 3, axis=-1))
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
        return unit(x if self.convolution else nn.silu(x))  # the convolution applies silu

    def _attended(self, x: Array, context: Float[Array, "b h q w"], weights: Float[Array, "b h q k"]) -> Attended:
        context = context if self._divided else self.norm(context)
        context = self._merged(context.astype(self.dtype), x)
        return Attended(context, weights, jnp.zeros(weights.shape[:-1], weights.dtype))

    def _check_order(self) -> None:
        if self.kind.needs_causal:
            raise ValueError("this memory needs causal keys: it depends on the order in which they are written")
