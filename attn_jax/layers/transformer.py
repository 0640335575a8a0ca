"""Transformer layers, and stacks of them. Vaswani 2017 (arXiv 1706.03762), section 3.1.

    self-attention -> attention to the source, if there is one -> feed forward

The output of each part is added to its input. Layer norm follows each sum, as in the paper, or precedes each part
(Xiong 2020, arXiv 2002.04745), with one more norm at the end of the stack. An encoder is a stack, a decoder a causal
stack with a source, a language model a causal stack without one.
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from attn_jax.attention import Attended, Memory, MultiHead
from attn_jax.attention.blockwise import PositionFunction
from attn_jax.attention.convolution import ShortConvolution
from attn_jax.attention.dropout import Dropout
from attn_jax.attention.masks import causal, checked_masks
from attn_jax.attention.written.heads import WrittenHeads, WrittenMemory
from attn_jax.layers.pooling import mean_state
from attn_jax.layers.positions import NoPositions, rotate
from attn_jax.types import Array, Bool, Dtype, Float, Int

NORM_FIRST = {"pre": True, "post": False}  # layer norm before each part, or after each sum
ACTIVATIONS = {"relu": nn.relu, "gelu": nn.gelu}


@struct.dataclass
class RecentMemory:
    """A memory, and the last inputs of the convolution before it."""

    memory: Memory | WrittenMemory
    recent: Float[Array, "b r d"]

    @property
    def num_keys(self) -> int:
        """Number of keys of the memory."""
        return self.memory.num_keys


AnyMemory = Memory | WrittenMemory | RecentMemory  # of keys, or of fixed size; with a convolution


class TransformerLayer(nn.Module, kw_only=True):
    """x + attention(x), x + attention to the source, x + feed_forward(x), with layer norm before or after each.

    `make_attention` makes the module of all heads, and `make_source_attention` that of the attention to a source; None
    for a layer without a source. With a `convolution` of that many positions, the input of causal self-attention is
    x + sum_i w_i x_{t-i} in place of x; padding is then at the end.
    """

    make_attention: Callable[[], MultiHead | WrittenHeads]
    features: int
    feed_forward_size: int
    make_source_attention: Callable[[], MultiHead | WrittenHeads] | None = None
    norm_first: bool = True
    rotary: bool = False
    convolution: int = 0
    activation: Callable = nn.relu
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
        self.inner = nn.Dense(self.feed_forward_size, kernel_init=init, dtype=self.dtype)
        self.outer = nn.Dense(self.features, kernel_init=init, dtype=self.dtype)
        self.feed_forward_norm = norm()
        self.drop = Dropout(rate=self.dropout)

    @checked_masks
    def __call__(
        self,
        x: Float[Array, "b q d"],
        *,
        key_mask: Bool[Array, "b q"],
        mask: PositionFunction | None = None,
        positions: Int[Array, "b q"],
        bias: Float[Array, "..."] | PositionFunction | None = None,
        source: AnyMemory | None = None,
        cache: AnyMemory | None = None,
        train: bool = False,
    ) -> tuple[Float[Array, "b q d"], AnyMemory, Attended]:
        """Returns (x, memory of the self-attention, result of the last attention: to the source, or to x without one).

        `key_mask` is True for positions of x that are no padding, and `mask`, a function of places, for those that a
        query may attend to. `bias`, an array or a function of places, is added to the scores of the self-attention.
        With a `cache`, x is one position, and is written into it.
        """
        turn = partial(rotate, positions=positions) if self.rotary else None
        inner = self.self_norm(x) if self.norm_first else x
        if self.convolution:
            cache, recent = (None, None) if cache is None else (cache.memory, cache.recent)
            mixed, recent = self.convolve(inner, key_mask, recent)
            inner = inner + mixed
        memory, attended = self.self_attention.self_attend(
            inner,
            key_mask=key_mask,
            mask=mask,
            positions=positions,
            cache=cache,
            bias=bias,
            rotate=turn,
            rng=self._sample_rng(self.self_attention, train),
            train=train,
        )
        memory = RecentMemory(memory, recent) if self.convolution else memory
        x = self._add(self.self_norm, x, attended.context, train)
        if source is not None:
            inner = self.source_norm(x) if self.norm_first else x
            attended = self.source_attention(
                inner, source, rng=self._sample_rng(self.source_attention, train), train=train
            )
            x = self._add(self.source_norm, x, attended.context, train)
        inner = self.feed_forward_norm(x) if self.norm_first else x
        hidden = self.drop(self.activation(self.inner(inner)), deterministic=not train)
        return self._add(self.feed_forward_norm, x, self.outer(hidden), train), memory, attended

    def empty_cache(self, batch_size: int, length: int) -> AnyMemory:
        """Makes a memory to which nothing is written, with room for `length` positions."""
        memory = self.self_attention.empty_cache(batch_size, length)
        if not self.convolution:
            return memory
        return RecentMemory(memory, self.convolve.start(jnp.zeros((batch_size, 1, self.features), self.dtype)))

    def _add(self, norm: nn.Module, x: Array, change: Array, train: bool) -> Array:
        x = x + self.drop(change, deterministic=not train)
        return x if self.norm_first else norm(x)

    def _sample_rng(self, attention: MultiHead | WrittenHeads, train: bool):
        """Returns the rng of attention that samples in training; None for any other."""
        return self.make_rng("sample") if train and attention.samples else None


class TransformerStack(nn.Module, kw_only=True):
    """A sequence of layers with one scheme of positions; `make_layer` makes each layer."""

    make_layer: Callable[[], TransformerLayer]
    positions: NoPositions
    num_layers: int
    features: int
    norm_first: bool = True
    causal: bool = False
    remat: bool = False  # compute the activations of each layer again in the backward pass, to save memory
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
        """Encodes: (mean of the states, states), the interface of all encoders; `positions`: see `run`."""
        states, _, _ = self.run(embedded, mask, positions=positions, train=train)
        return mean_state(states, mask), states

    @checked_masks
    def read_source(self, states: Float[Array, "b s d"], mask: Bool[Array, "b s"]) -> tuple[AnyMemory, ...]:
        """Returns the memory of the source for each layer."""
        return tuple(layer.source_attention.prepare(states, key_mask=mask) for layer in self.layers)

    @checked_masks
    def run(
        self,
        embedded: Float[Array, "b n d"],
        mask: Bool[Array, "b n"],
        *,
        positions: Int[Array, "b n"] | None = None,
        source: tuple[AnyMemory, ...] | None = None,
        train: bool = False,
    ) -> tuple[Float[Array, "b n d"], tuple[AnyMemory, ...], Attended]:
        """Computes all positions at once: (states, memory of each self-attention, result of the last attention).

        `positions`, by default 0 ... n - 1, are for schemes that embed positions.
        """
        length = embedded.shape[1]
        if positions is None:
            positions = jnp.broadcast_to(jnp.arange(length), embedded.shape[:2])
        order = causal if self.causal else None
        return self._layers(
            embedded, key_mask=mask, mask=order, positions=positions, length=length, source=source, train=train
        )

    def start(self, batch_size: int, length: int) -> tuple[AnyMemory, ...]:
        """Makes an empty cache of `length` slots for each layer."""
        self.positions.check(length)
        return tuple(layer.empty_cache(batch_size, length) for layer in self.layers)

    def step(
        self,
        embedded: Float[Array, "b d"],
        *,
        position: Int[Array, "b"],
        caches: tuple[AnyMemory, ...],
        source: tuple[AnyMemory, ...] | None = None,
    ) -> tuple[Float[Array, "b d"], tuple[AnyMemory, ...], Attended]:
        """Computes the position after those in the caches: its state, caches with it, result of the last attention."""
        states, caches, attended = self._layers(
            embedded[:, None],
            key_mask=jnp.ones((len(embedded), 1), bool),
            positions=position[:, None],
            length=caches[0].num_keys,
            source=source,
            caches=caches,
        )
        return states[:, 0], caches, attended

    def _layers(self, embedded, *, key_mask, positions, length, mask=None, source=None, caches=None, train=False):
        by_blocks = any(layer.self_attention.by_blocks for layer in self.layers)
        bias = self.positions.bias_at(positions) if by_blocks else self.positions.bias(positions, length)

        def apply(layer, x, **arguments):
            # `train`, `mask` and `bias` are no arguments here: nn.remat traces all arguments.
            return layer(x, **arguments, mask=mask, bias=bias, train=train)

        apply = nn.remat(apply) if self.remat else apply
        x = self.drop(self.positions.embed(embedded, positions), deterministic=not train)
        source = source or (None,) * self.num_layers
        caches = caches or (None,) * self.num_layers
        memories, attended = [], None
        for layer, read, cache in zip(self.layers, source, caches, strict=True):
            x, memory, attended = apply(layer, x, key_mask=key_mask, positions=positions, source=read, cache=cache)
            memories.append(memory)
        return (self.norm(x) if self.norm_first else x), tuple(memories), attended
