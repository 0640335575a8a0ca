"""Multi-head attention, and the cache of keys and values for step by step decoding."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.arguments import check_array, check_memory, check_no_more
from attn_jax.attention.blockwise import PositionFunction
from attn_jax.attention.core import Attended, Attention, Memory
from attn_jax.attention.gates import ContextGate
from attn_jax.attention.masks import check_mask, checked_masks, joint_mask, mask_at, places, same_axes
from attn_jax.attention.parts import Call
from attn_jax.attention.selective import selected_before, selections
from attn_jax.types import Array, Bool, Dtype, Float, Int, PRNGKeyArray, widest


class MultiHead(nn.Module, kw_only=True):
    """[head_1; ...; head_h] W_o + b_o, head_i = attention(W_i query, W_i' keys, W_i'' values).

        >>> heads = MultiHead(attention=attn_jax.attention(score="scaled_dot"), num_heads=4, features=64)
        >>> variables = heads.init(rng, query, keys, values)
        >>> attended = heads.apply(variables, query, keys, values)
        >>> attended.context.shape, attended.weights.shape
        ((5, 64), (4, 5, 5))

    Vaswani 2017 (arXiv 1706.03762), section 3.2.2. The heads are a leading axis of one Attention, so every score,
    normalizer and reading works per head. Parameters of the score and the normalizer are shared by the heads, except
    where a normalizer has an option num_heads. With `num_kv_heads` < num_heads, groups of heads share keys and values
    (Ainslie 2023, arXiv 2305.13245). With `gate`, the contexts become [head_1; ...; head_h] * sigmoid(W_g query + b_g)
    (Qiu 2025, arXiv 2505.06708). With `selective`, the first head selects keys that later queries of all heads attend
    to less (Leviathan 2024, arXiv 2410.02703); what is selected is an array [q, k], also block by block.
    """

    attention: Attention
    num_heads: int
    features: int  # width of the queries, of the contexts, and of all heads together
    num_kv_heads: int = 0  # number of heads of keys and values; 0 is num_heads
    gate: bool = False  # multiply the contexts of all heads by a sigmoid of the query, see gates.py
    selective: bool = False  # of causal self-attention; `positions` are then needed, see selective.py
    dtype: Dtype = jnp.float32  # of the projections

    def __post_init__(self):
        if not isinstance(self.attention, Attention):
            raise TypeError(
                f"attention is {self.attention!r}; expected an Attention, such as build_attention(score='scaled_dot')"
            )
        if self.attention.needs_previous:
            raise ValueError("monotonic attention reads one query after the other, heads all; expected monotonic=None")
        head_width(self.features, self.num_heads, self.num_kv_heads)
        super().__post_init__()

    def setup(self):
        width = head_width(self.features, self.num_heads, self.num_kv_heads)
        groups = self.num_kv_heads or self.num_heads
        options = dict(dtype=self.dtype, kernel_init=nn.initializers.xavier_uniform())
        self.query = nn.Dense(self.features, **options)
        self.key = nn.Dense(width * groups, **options)
        self.value = nn.Dense(width * groups, **options)
        self.out = nn.Dense(self.features, **options)
        if self.gate:
            self.context_gate = ContextGate(dtype=self.dtype)

    @checked_masks
    def prepare(
        self,
        keys: Float[Array, "... k d"],
        values: Float[Array, "... k dv"] | None = None,
        *,
        key_mask: Bool[Array, "..."] | None = None,
        rotate: Callable | None = None,
    ) -> Memory:
        """Builds a Memory with an axis of key/value heads before the keys; `rotate` rotates keys by their positions."""
        groups = self.num_kv_heads or self.num_heads
        values = keys if values is None else values
        check_memory(keys, values, key_mask)
        key_mask = jnp.broadcast_to(True if key_mask is None else key_mask, keys.shape[:-1])[..., None, :]
        values = self._split(self.value(values), groups)
        heads = self._rotated(self._split(self.key(keys), groups), rotate)
        memory = self.attention.prepare(heads, values, key_mask=key_mask, inputs=keys)
        selected = jnp.zeros(memory.key_mask.shape, widest(heads)) if self.selective else None
        return memory.replace(selected=selected)

    @checked_masks
    def __call__(
        self,
        query: Float[Array, "... q d"],
        memory: Memory | Float[Array, "... k d"],
        values: Float[Array, "... k dv"] | None = None,
        *,
        key_mask: Bool[Array, "..."] | None = None,
        mask: Bool[Array, "..."] | PositionFunction | None = None,
        bias: Float[Array, "... #q k"] | PositionFunction | None = None,
        rotate: Callable | None = None,
        positions: Int[Array, "... q"] | None = None,
        rng: PRNGKeyArray | None = None,
        train: bool = False,
    ) -> Attended:
        """Reads a memory, or keys and values of which it builds one.

        Args:
            query: [..., q, d].
            memory: a Memory, or keys.
            values: of these keys, by default the keys themselves; None with a Memory, which has its own.
            key_mask: of these keys, [..., k], True for keys that every query may attend to; None with a Memory.
            mask: True where a query may attend to a key in all heads, [..., q, k] without an axis of heads. Or a
                function of places, see Attention.
            bias: is added to the scores, [..., h, q, k]; one for all heads is [..., 1, q, k] or [q, k]. Or a function
                of places, see Attention.
            rotate: rotates queries (and keys that are not a Memory yet) by their positions.
            positions: of the queries among the keys, for forget gates, windows and selective attention.
            rng: for a reading that samples.
            train: whether weights are dropped, with the rng stream "dropout".

        Returns:
            context [..., q, features]; weights [..., h, q, k] and log_prob [..., h, q] of each head.

        Raises:
            ValueError: as Attention; selective attention without positions; a bias of another number of heads.
        """
        if not isinstance(memory, Memory):
            memory = self.prepare(memory, values, key_mask=key_mask, rotate=rotate)
        else:
            check_no_more(values, key_mask)
        check_array("query", query, "queries, features")
        mask = mask if mask is None or callable(mask) else _for_heads(mask, query, memory)
        heads = self._queries(query, rotate)
        if self.selective:
            left_out = selected_before(self._selections(heads, memory, mask, positions), memory.selected[..., :1, :])
            left_out = jnp.broadcast_to(left_out, (*left_out.shape[:-3], self.num_heads, *left_out.shape[-2:]))
            bias = bias(*places(query, memory.values)) if callable(bias) else bias
            bias = -left_out if bias is None else jnp.add(*same_axes(bias, -left_out))
        positions = None if positions is None else positions[..., None, :]
        if bias is not None:
            self._check_heads(jax.eval_shape(bias, *places(query, memory.values)) if callable(bias) else bias)
        attended = self._attend(heads, memory, mask, bias, positions, rng=rng, train=train)
        context = jnp.swapaxes(self.attention.map.after(attended.context), -3, -2)
        context = context.reshape(*context.shape[:-2], self.features)
        context = self.context_gate(context, query) if self.gate else context
        return attended.replace(context=self.out(context))

    def _attend(
        self,
        heads: Float[Array, "... h q w"],
        memory: Memory,
        mask: Bool[Array, "..."] | PositionFunction | None,
        bias: Float[Array, "..."] | PositionFunction | None,
        positions: Int[Array, "..."] | None,
        **options: Any,
    ) -> Attended:
        """Attends in all heads, groups of which may share keys and values; all arguments have an axis of heads."""
        shared = self.num_heads // (self.num_kv_heads or self.num_heads)
        axis = memory.key_mask.ndim - 1  # after the heads
        if shared > 1 and self.attention.map.per_head:
            # There may be parameters for each head.
            memory = jax.tree.map(lambda x: jnp.repeat(x, shared, axis=axis - 1), memory)
            shared = 1
        if shared == 1:
            return self.attention(heads, memory, mask=mask, bias=bias, positions=positions, **options)
        attended = self.attention(  # queries [..., g, r, q, d] and keys [..., g, 1, k, d]
            _group(heads, shared),
            jax.tree.map(lambda x: jnp.expand_dims(x, axis), memory),
            mask=mask if mask is None or callable(mask) or mask.ndim == 2 else mask[..., None, :, :],
            bias=_grouped_bias(bias, shared),
            positions=None if positions is None else positions[..., None, :],
            **options,
        )
        return Attended(_ungroup(attended.context, -4), _ungroup(attended.weights, -4), _ungroup(attended.log_prob, -3))

    @nn.nowrap
    def _check_heads(self, bias: Array | jax.ShapeDtypeStruct) -> None:
        """Raises a ValueError for a bias of another number of heads."""
        if bias.ndim > 2 and bias.shape[-3] not in (1, self.num_heads):
            raise ValueError(
                f"a bias of shape {bias.shape} does not fit [..., heads, queries, keys]; expected {self.num_heads} "
                "heads, or 1 for all"
            )

    @property
    def by_blocks(self) -> bool:
        """Tells whether contexts are computed block by block, for which a bias should be a function of places."""
        return self.attention.block_size > 0

    @property
    def samples(self) -> bool:
        """Tells whether reading needs an rng in training."""
        return self.attention.needs_rng

    def empty_cache(self, batch_size: int, length: int) -> Memory:
        """Makes a memory of `length` masked keys, into which `self_attend` writes."""
        nothing = jnp.zeros((batch_size, length, self.features), self.dtype)
        return self.prepare(nothing, key_mask=jnp.zeros((batch_size, length), bool))

    @checked_masks
    def self_attend(
        self,
        x: Float[Array, "b n d"],
        *,
        key_mask: Bool[Array, "b n"],
        mask: PositionFunction | None = None,
        positions: Int[Array, "b n"],
        cache: Memory | None = None,
        bias: Float[Array, "..."] | PositionFunction | None = None,
        rotate: Callable | None = None,
        rng: PRNGKeyArray | None = None,
        train: bool = False,
    ) -> tuple[Memory, Attended]:
        """Attends from x to x: (its memory, contexts and weights); see `__call__`.

        Args:
            x: inputs.
            key_mask: [b, n], True for inputs that are keys.
            mask: keys that a query may attend to, as a function of places in x; None: all. A cache holds earlier inputs
                alone, so with a cache it is None.
            positions: of x; with a cache, below its length, since an input beyond it is not written.
            cache: memory of earlier inputs; x is then one position, and is written into it and attends to all of it.
            bias, rotate, rng, train: see `__call__`.

        Raises:
            ValueError: selective attention without causal order: `mask` and `cache` are None; a cache with `mask` or
                with several positions.
        """
        if cache is not None and (mask is not None or x.shape[1] != 1):
            raise ValueError(
                "a cache takes one position at a time, which attends to all earlier ones: expected x of shape "
                f"[batch, 1, features] and mask=None, got {x.shape} and mask={mask}"
            )
        if self.selective and mask is None and cache is None:
            raise ValueError("selective attention needs causal keys: a query selects for later ones")
        memory = self.prepare(x, key_mask=key_mask, rotate=rotate)
        memory = memory if cache is None else write(cache, memory, positions[:, 0])
        attended = self(x, memory, mask=mask, bias=bias, rotate=rotate, positions=positions, rng=rng, train=train)
        if self.selective:
            chosen = self._selections(self._queries(x, rotate), memory, mask, positions)
            memory = memory.replace(selected=memory.selected + jnp.sum(chosen, axis=-2))
        return memory, attended

    def _selections(
        self,
        heads: Float[Array, "... h q w"],
        memory: Memory,
        mask: Bool[Array, "..."] | PositionFunction | None,
        positions: Int[Array, "... q"] | None,
    ) -> Float[Array, "... 1 q k"]:
        """Computes what the first head selects, for all heads; the mask has an axis of heads, or is [q, k]."""
        if positions is None:
            raise ValueError("selective attention needs the positions of the queries: positions=...")
        first = jax.tree.map(lambda x: x[..., :1, :, :], memory.keys)
        key_mask = memory.key_mask[..., :1, :]
        scores = self.attention.map.scores(Call(heads[..., :1, :, :], first, key_mask, key_mask))
        mask = mask_at(mask, *places(heads, memory.values)) if callable(mask) else mask
        allowed = joint_mask(key_mask, mask, scores.shape)
        return selections(scores, allowed, positions[..., None, :])

    def _queries(self, query: Float[Array, "... q d"], rotate: Callable | None) -> Float[Array, "... h q w"]:
        return self._rotated(self._split(self.query(query), self.num_heads), rotate)

    def _rotated(self, heads: Float[Array, "... h n w"], rotate: Callable | None) -> Float[Array, "... h n w"]:
        """Rotates heads by their positions, and each piece of the columns that is compared by itself."""
        pieces = self.attention.map.num_pieces
        if rotate is None or pieces == 1:
            return heads if rotate is None else rotate(heads)
        return jnp.concatenate([rotate(x) for x in jnp.split(heads, pieces, axis=-1)], axis=-1)

    def _split(self, x: Float[Array, "... n d"], heads: int) -> Float[Array, "... h n w"]:
        return jnp.swapaxes(x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads), -3, -2)


def _for_heads(mask: Bool[Array, "..."], query: Float[Array, "... q d"], memory: Memory) -> Bool[Array, "..."]:
    """Gives a mask an axis of heads, but for [q, k], which is for all; raises a ValueError where it does not fit."""
    lead = jnp.broadcast_shapes(query.shape[:-2], memory.values.shape[:-3])
    check_mask(mask, (*lead, query.shape[-2], memory.num_keys))
    return mask if mask.ndim == 2 else mask[..., None, :, :]


def _group(x: Float[Array, "... q d"], size: int) -> Float[Array, "... q d"]:
    """Cuts the axis of heads, [..., h, q, d], into groups of `size`; [..., 1, q, d] and [q, d] belong to all heads."""
    if x.ndim < 3 or x.shape[-3] == 1:
        return jnp.expand_dims(x, -3)
    return x.reshape(*x.shape[:-3], x.shape[-3] // size, size, *x.shape[-2:])


def _grouped_bias(
    bias: Float[Array, "..."] | PositionFunction | None, size: int
) -> Float[Array, "..."] | PositionFunction | None:
    """Cuts the axis of heads of a bias, or of what it is as a function of places."""
    if bias is None:
        return None
    return (lambda query, key: _group(bias(query, key), size)) if callable(bias) else _group(bias, size)


def _ungroup(x: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """Merges the axis of groups, `axis`, counted from the end, with that of the heads of a group."""
    place = x.ndim + axis
    return x.reshape(*x.shape[:place], x.shape[place] * x.shape[place + 1], *x.shape[place + 2 :])


def head_width(features: int, num_heads: int, num_kv_heads: int = 0) -> int:
    """Computes the width of a head.

    Raises:
        ValueError: num_heads does not divide features, or num_kv_heads does not divide num_heads.
    """
    if features < 1:
        raise ValueError(f"features is {features}; expected at least 1")
    if num_heads < 1 or features % num_heads:
        near = min((n for n in range(1, features + 1) if features % n == 0), key=lambda n: abs(n - num_heads))
        raise ValueError(f"num_heads {num_heads} does not divide the width {features}; the nearest that does is {near}")
    if num_kv_heads < 0 or (num_kv_heads and num_heads % num_kv_heads):
        near = min((n for n in range(1, num_heads + 1) if num_heads % n == 0), key=lambda n: abs(n - num_kv_heads))
        raise ValueError(f"num_kv_heads {num_kv_heads} does not divide num_heads {num_heads}; the nearest is {near}")
    return features // num_heads


def write(cache: Memory, new: Memory, slot: Int[Array, "b"]) -> Memory:
    """Writes the single key and value of `new` into one slot of each row of a cache, and returns the cache.

    A slot that the cache does not have is not written.
    """

    def put(old: Array, one: Array, axis: int) -> Array:
        index = slot.reshape(-1, *[1] * (old.ndim - 1))
        return jnp.where(jax.lax.broadcasted_iota(jnp.int32, old.shape, axis % old.ndim) == index, one, old)

    keys = jax.tree.map(lambda old, one: put(old, one, -2), cache.keys, new.keys)
    values, key_mask = put(cache.values, new.values, -2), put(cache.key_mask, new.key_mask, -1)
    return Memory(keys, values, key_mask, cache.selected)
