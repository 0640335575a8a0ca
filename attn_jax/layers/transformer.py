"""Transformer layers, and stacks of them. Vaswani 2017 (arXiv 1706.03762), section 3.1.

    self-attention -> attention to the source, if there is one -> feed forward

The output of each part is added to its input. Layer norm follows each sum, as in the paper, or precedes each part
(Xiong 2020, arXiv 2002.04745), with one more norm at the end of the stack. An encoder is a stack, a decoder a causal
stack with a source, a language model a causal stack without one. The heads determine which positions a query reads.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from attn_jax.attention import Attended
from attn_jax.attention.caches import Branch
from attn_jax.attention.convolution import ShortConvolution
from attn_jax.attention.dense import Dense
from attn_jax.attention.dropout import Dropout
from attn_jax.attention.masks import checked_masks
from attn_jax.attention.mixer import DistanceBias, Mixer
from attn_jax.layers.encoder import Encoder
from attn_jax.layers.pooling import mean_state
from attn_jax.layers.positions import NoPositions
from attn_jax.types import Array, Bool, Dtype, Float, Int, PyTree

NORM_FIRST = {"pre": True, "post": False}  # layer norm before each part, or after each sum
ACTIVATIONS = {"relu": nn.relu, "gelu": nn.gelu}


class Convolved(struct.PyTreeNode):
    """The cache of self-attention with a convolution before it: `heads`' cache and the convolution's last inputs."""

    cache: PyTree
    recent: Float[Array, "b ... r d"]


class Reads(NamedTuple):
    """Results of self-attention, and of attention to the source if there is one."""

    own: Attended
    source: Attended | None = None

    @property
    def last(self) -> Attended:
        """Result of attention to the source; of self-attention without a source."""
        return self.own if self.source is None else self.source


class TransformerLayer(nn.Module, kw_only=True):
    """x + attention(x), x + attention to the source, x + feed_forward(x), with layer norm before or after each.

    `make_attention` makes the module of all heads of self-attention, and `make_source_attention` the module of
    attention to a source; None for a layer without a source. With `convolution` > 0, the input of causal self-attention
    is x + sum_i w_i x_{t-i}, over that many positions, instead of x; padding then has to be at the end.
    """

    make_attention: Callable[[], Mixer]
    features: int
    feed_forward_size: int
    make_source_attention: Callable[[], Mixer] | None = None
    norm_first: bool = True
    convolution: int = 0
    activation: Callable[[Array], Array] = nn.relu
    dropout: float = 0.0
    dtype: Dtype = jnp.float32

    def setup(self):
        norm = partial(nn.LayerNorm, epsilon=1e-5, dtype=self.dtype)
        init = nn.initializers.xavier_uniform()
        self.self_attention, self.self_norm = self.make_attention(), norm()
        if self.convolution:
            self.convolve = ShortConvolution(size=self.convolution, activation=lambda x: x)
        if self.make_source_attention is not None:
            self.source_attention, self.source_norm = self.make_source_attention(), norm()
        self.inner = Dense(features=self.feed_forward_size, kernel_init=init, dtype=self.dtype)
        self.outer = Dense(features=self.features, kernel_init=init, dtype=self.dtype)
        self.feed_forward_norm = norm()
        self.drop = Dropout(rate=self.dropout)

    @checked_masks
    def __call__(
        self,
        x: Float[Array, "b q d"],
        *,
        key_mask: Bool[Array, "b q"],
        positions: Int[Array, "b q"],
        bias: DistanceBias | None = None,
        source: PyTree = None,
        cache: PyTree = None,
        branch: Branch | None = None,
        train: bool = False,
    ) -> tuple[Float[Array, "b q d"], PyTree, Reads]:
        """Returns (new x, cache extended by x, results of attention); see `before_source`."""
        x, cache, own = self.before_source(
            x, key_mask=key_mask, positions=positions, bias=bias, cache=cache, branch=branch, train=train
        )
        if source is None:
            return self.feed_forward(x, train=train), cache, Reads(own)
        attended = self.read_source(x, source, train=train)
        return self.after_source(x, attended.context, train=train), cache, Reads(own, attended)

    @checked_masks
    def before_source(
        self,
        x: Float[Array, "b q d"],
        *,
        key_mask: Bool[Array, "b q"],
        positions: Int[Array, "b q"],
        bias: DistanceBias | None = None,
        cache: PyTree = None,
        branch: Branch | None = None,
        train: bool = False,
    ) -> tuple[Float[Array, "b q d"], PyTree, Attended]:
        """Self-attention of x: returns (new x, cache extended by x, contexts and weights).

        `key_mask` is False at padding of x; `bias` is added to the scores of self-attention. With a `cache`, x follows
        the positions in it; with a `branch` as well, x is the next position of each beam.
        """
        inner = self.self_norm(x) if self.norm_first else x
        if self.convolution:
            cache, recent = (None, None) if cache is None else (cache.cache, cache.recent)
            mixed, recent = self.convolve(inner, key_mask, recent)
            inner = inner + mixed
        cache, attended = self.self_attention.extend(
            inner,
            key_mask=key_mask,
            positions=positions,
            cache=cache,
            bias=bias,
            rng=self._sample_rng(self.self_attention, train),
            train=train,
            **({} if branch is None else {"branch": branch}),
        )
        cache = Convolved(cache, recent) if self.convolution else cache
        return self._add(self.self_norm, x, attended.context, train), cache, attended

    def source_query(self, x: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """Returns the input from which the queries of attention to the source are projected."""
        return self.source_norm(x) if self.norm_first else x

    def read_source(self, x: Float[Array, "b q d"], source: PyTree, *, train: bool = False) -> Attended:
        """Attends from x to a prepared source."""
        rng = self._sample_rng(self.source_attention, train)
        return self.source_attention(self.source_query(x), source, rng=rng, train=train)

    def after_source(self, x: Float[Array, "... d"], context: Float[Array, "... d"], *, train: bool = False) -> Array:
        """Adds the context of the source to x, then the output of the feed-forward part."""
        return self.feed_forward(self._add(self.source_norm, x, context, train), train=train)

    def feed_forward(self, x: Float[Array, "... d"], *, train: bool = False) -> Float[Array, "... d"]:
        """Adds the output of the feed-forward part to x."""
        inner = self.feed_forward_norm(x) if self.norm_first else x
        hidden = self.drop(self.activation(self.inner(inner)), deterministic=not train)
        return self._add(self.feed_forward_norm, x, self.outer(hidden), train)

    @property
    def branches(self) -> bool:
        """Tells whether the beams of a search can share a cache."""
        return not self.convolution and self.make_attention().branches

    def start(self, batch_size: int, length: int) -> PyTree:
        """Makes a cache with room for `length` positions."""
        cache = self.self_attention.start(batch_size, length)
        if not self.convolution:
            return cache
        return Convolved(cache, self.convolve.start(jnp.zeros((batch_size, 1, self.features), self.dtype)))

    def grow(self, cache: PyTree, length: int) -> PyTree:
        """Enlarges a cache to `length` positions."""
        if not self.convolution:
            return self.self_attention.grow(cache, length)
        return cache.replace(cache=self.self_attention.grow(cache.cache, length))

    def _add(self, norm: nn.Module, x: Array, change: Array, train: bool) -> Array:
        x = x + self.drop(change, deterministic=not train)
        return x if self.norm_first else norm(x)

    def _sample_rng(self, attention: Mixer, train: bool):
        """Returns the rng for attention that samples in training; None for other attention."""
        return self.make_rng("sample") if train and attention.samples else None


class TransformerStack(Encoder, kw_only=True):
    """A sequence of layers with one positional encoding; `make_layer` makes each layer."""

    make_layer: Callable[[], TransformerLayer]
    positions: NoPositions
    num_layers: int
    features: int
    norm_first: bool = True
    remat: bool = False  # recompute the activations of each layer in the backward pass, to save memory
    dropout: float = 0.0
    dtype: Dtype = jnp.float32

    def setup(self):
        self.layers = [self.make_layer() for _ in range(self.num_layers)]
        self.drop = Dropout(rate=self.dropout)
        if self.norm_first:
            self.norm = nn.LayerNorm(epsilon=1e-5, dtype=self.dtype)

    @checked_masks
    def __call__(
        self,
        embedded: Float[Array, "b n d"],
        mask: Bool[Array, "b n"],
        *,
        positions: Int[Array, "b n"] | None = None,
        train: bool = False,
    ) -> tuple[Float[Array, "b d"], Float[Array, "b n d"]]:
        """Returns (mean of the states, states), the interface of all encoders; `positions`: see `run`."""
        states, _, _ = self.run(embedded, mask, positions=positions, train=train)
        return mean_state(states, mask), states

    @checked_masks
    def maps(
        self, embedded: Float[Array, "b n d"], mask: Bool[Array, "b n"], *, positions: Int[Array, "b n"] | None = None
    ) -> list[Float[Array, "b h n n"]]:
        """Returns the map of each layer."""
        return [read.own.weights for read in self.run(embedded, mask, positions=positions)[2]]

    @checked_masks
    def read_source(self, states: Float[Array, "b s d"], mask: Bool[Array, "b s"]) -> tuple[PyTree, ...]:
        """Returns the memory of the source for each layer."""
        return tuple(layer.source_attention.prepare(states, key_mask=mask) for layer in self.layers)

    def start(self, batch_size: int, length: int, beams: int = 1) -> tuple[PyTree, ...]:
        """Makes an empty cache for each layer, with room for `length` positions of so many beams."""
        self.positions.check(length)
        return tuple(layer.start(batch_size, length * beams) for layer in self.layers)

    def grow(self, caches: tuple[PyTree, ...], length: int, places: int = 0) -> tuple[PyTree, ...]:
        """Enlarges the caches to `length` positions, in as many `places` unless there are more."""
        self.positions.check(length)
        return tuple(layer.grow(cache, places or length) for layer, cache in zip(self.layers, caches, strict=True))

    @checked_masks
    def run(
        self,
        embedded: Float[Array, "b n d"],
        mask: Bool[Array, "b n"],
        *,
        positions: Int[Array, "b n"] | None = None,
        caches: tuple[PyTree, ...] | None = None,
        source: tuple[PyTree, ...] | None = None,
        branch: Branch | None = None,
        train: bool = False,
    ) -> tuple[Float[Array, "b n d"], tuple[PyTree, ...], tuple[Reads, ...]]:
        """Computes n positions at once: returns (states, extended caches, results of attention of each layer).

        Args:
            embedded: one position or many.
            mask: False at padding.
            positions: increasing, after the positions in the caches; None: 0 ... n - 1.
            caches: cache of earlier positions for each layer; None: there are none.
            source: result of `read_source`.
            branch: the n positions are the next one of n beams, see attention/caches.py.
            train: whether to apply dropout.
        """
        if positions is None:
            positions = jnp.broadcast_to(jnp.arange(embedded.shape[1]), embedded.shape[:2])
        bias = self.positions.of_distance if self.positions.biased else None

        def apply(layer, x, **arguments):
            # `train` and `bias` are closed over, since nn.remat traces all arguments.
            return layer(x, **arguments, bias=bias, branch=branch, train=train)

        apply = nn.remat(apply) if self.remat else apply
        x = self.drop(self.positions.embed(embedded, positions), deterministic=not train)
        source, caches = (given or (None,) * self.num_layers for given in (source, caches))
        after, reads = [], []
        for layer, read, cache in zip(self.layers, source, caches, strict=True):
            x, cache, found = apply(layer, x, key_mask=mask, positions=positions, source=read, cache=cache)
            after.append(cache)
            reads.append(found)
        return (self.norm(x) if self.norm_first else x), tuple(after), tuple(reads)

    def step(
        self,
        embedded: Float[Array, "b d"],
        *,
        position: Int[Array, "b"],
        caches: tuple[PyTree, ...],
        source: tuple[PyTree, ...] | None = None,
    ) -> tuple[Float[Array, "b d"], tuple[PyTree, ...], tuple[Reads, ...]]:
        """Computes the next position: returns (state, extended caches, results of attention of each layer)."""
        mask = jnp.ones((len(embedded), 1), bool)
        states, caches, reads = self.run(
            embedded[:, None], mask, positions=position[:, None], caches=caches, source=source
        )
        return states[:, 0], caches, reads
