"""Multi-head attention, and its cache of keys and values."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import caches
from attn_jax.attention.arguments import check_array, check_memory, check_no_more
from attn_jax.attention.blockwise import PositionFunction
from attn_jax.attention.caches import Branch, Entries
from attn_jax.attention.core import Attended, Attention, Memory
from attn_jax.attention.masks import check_mask, checked_masks, places
from attn_jax.attention.mixer import DistanceBias, Mixer, head_width, split
from attn_jax.attention.parts import describe
from attn_jax.types import Array, Bool, Float, Int, PRNGKeyArray, PyTree


class MultiHead(Mixer, kw_only=True):
    """[head_1; ...; head_h] W_o + b_o, head_i = attention(W_i query, W_i' keys, W_i'' values).

        >>> heads = MultiHead(attention=attn_jax.attention(score="scaled_dot"), num_heads=4, features=64)
        >>> variables = heads.init(rng, query, keys, values)
        >>> attended = heads.apply(variables, query, keys, values)
        >>> attended.context.shape, attended.weights.shape
        ((5, 64), (4, 5, 5))

    Vaswani 2017 (arXiv 1706.03762), section 3.2.2. Heads are a leading axis of one Attention, so every score,
    normalizer and reading works per head. Heads share the parameters of the score and the normalizer, unless a
    normalizer has the option num_heads. With `num_kv_heads` < num_heads, groups of heads share keys and values (Ainslie
    2023, arXiv 2305.13245).

    Attributes:
        num_heads, features, order, gate, dtype: see Mixer.
        attention: the attention of each head.
        num_kv_heads: number of key and value heads; 0: num_heads.
    """

    attention: Attention
    num_kv_heads: int = 0

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
        super().setup()
        width = head_width(self.features, self.num_heads, self.num_kv_heads) * self._num_kv
        self.query, self.key, self.value = map(self._projection, (self.features, width, width))

    @property
    def _num_kv(self) -> int:
        return self.num_kv_heads or self.num_heads

    @property
    def branches(self) -> bool:
        return not (self.order.latest or self.attention.block_size or self.attention.map.needs_all_keys)

    @property
    def samples(self) -> bool:
        """Tells whether a call in training needs an rng."""
        return self.attention.needs_rng

    @checked_masks
    def prepare(
        self,
        keys: Float[Array, "... k d"],
        values: Float[Array, "... k dv"] | None = None,
        *,
        key_mask: Bool[Array, "..."] | None = None,
        positions: Int[Array, "... k"] | None = None,
    ) -> Memory:
        """Builds a Memory with an axis of key/value heads before the keys; `positions` of the keys increase."""
        values = keys if values is None else values
        check_memory(keys, values, key_mask)
        key_mask = jnp.broadcast_to(True if key_mask is None else key_mask, keys.shape[:-1])[..., None, :]
        return self.attention.prepare(
            split(self.key(keys), self._num_kv),
            split(self.value(values), self._num_kv),
            key_mask=key_mask,
            inputs=keys,
            positions=None if positions is None else positions[..., None, :],
        )

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
        positions: Int[Array, "... q"] | None = None,
        rng: PRNGKeyArray | None = None,
        train: bool = False,
    ) -> Attended:
        """Reads a memory, or keys and values from which it builds one.

        Args:
            query: [..., q, d].
            memory: a Memory, or keys.
            values: the values of these keys, by default the keys; None with a Memory, which contains its values.
            key_mask: [..., k], True for keys that every query may attend to; None with a Memory.
            mask: [..., q, k] without an axis of heads, True where a query may attend to a key in all heads. Or a
                function of indices, see Attention.
            bias: added to the scores; [..., h, q, k], or the same for all heads: [..., 1, q, k] or [q, k]. Or a
                function of indices, see Attention.
            positions: positions of the queries, counted like the positions of the keys; see Attention.
            rng: for a reading that samples.
            train: whether to apply dropout to the weights, with the rng stream "dropout".

        Returns:
            context [..., q, features]; weights [..., h, q, k] and log_prob [..., h, q] of each head.

        Raises:
            ValueError: as in Attention; the bias has another number of heads.
        """
        if not isinstance(memory, Memory):
            memory = self.prepare(memory, values, key_mask=key_mask)
        else:
            check_no_more(values, key_mask)
        check_array("query", query, "queries, features")
        if bias is not None:
            self._check_heads(jax.eval_shape(bias, *places(query, memory.values)) if callable(bias) else bias)
        heads = split(self.query(query), self.num_heads)
        mask = mask if mask is None or callable(mask) else _for_heads(mask, query, memory)
        positions = None if positions is None else positions[..., None, :]
        attended = self._attend(heads, memory, mask, bias, positions, rng=rng, train=train)
        return attended.replace(context=self._merged(self.attention.map.after(attended.context), query))

    def start(self, batch_size: int, length: int) -> Entries:
        nothing = jnp.zeros((batch_size, 0, self.features), self.dtype)
        positions = jnp.zeros((batch_size, 0), jnp.int32)
        memory = self.prepare(nothing, key_mask=positions == 0, positions=positions)
        return self.grow(Entries.of(memory), length)

    @nn.nowrap
    def grow(self, cache: Entries, length: int) -> Entries:
        return caches.grow(cache, self.order, length)

    @checked_masks
    def extend(
        self,
        x: Float[Array, "b n d"],
        *,
        key_mask: Bool[Array, "b n"],
        positions: Int[Array, "b n"],
        cache: Entries | None = None,
        branch: Branch | None = None,
        bias: DistanceBias | None = None,
        rng: PRNGKeyArray | None = None,
        train: bool = False,
    ) -> tuple[Entries, Attended]:
        """Attends from x to x and to the cache; see Mixer.extend.

        With a `branch`, x are the next tokens of n beams at the same position, each of which reads its own keys.

        Raises:
            ValueError: the map changes when it is read, such as Selective, and the heads are not causal; the cache is
                full, see caches.check_room.
        """
        if self.attention.keeps_readers and self.order.mask is None:
            raise ValueError(f"{describe(self.attention.map)} needs causal keys: a query changes what later ones read")
        memory = self.prepare(x, key_mask=key_mask, positions=positions)
        entries, mask = Entries.of(memory), self.order.mask
        if cache is not None and branch is not None:
            entries = caches.add_at(cache, entries, branch.place)
            memory, mask = entries.memory(), branch.seen
        elif cache is not None:
            entries = caches.add(cache, entries, self.order)
            memory = entries.memory()
            # A cache contains no key after a single query, unless the query is padding.
            one = x.shape[1] == 1 and not self.order.latest
            mask = None if one else self.order.allowed(positions, entries.positions[:, 0, :, 0])
        at_places = bias and self._of_places(bias, positions, entries.positions[:, 0, :, 0])
        attended = self(x, memory, mask=mask, bias=at_places, positions=positions, rng=rng, train=train)
        if self.attention.keeps_readers:
            entries = entries.replace(keys=self._read_by(x, memory, mask, positions))
        if cache is not None and self.order.latest:
            entries = caches.latest_of(entries, cache.positions.shape[-2])
        return entries, attended

    def _attend(
        self,
        heads: Float[Array, "... h q w"],
        memory: Memory,
        mask: Bool[Array, "..."] | PositionFunction | None,
        bias: Float[Array, "..."] | PositionFunction | None,
        positions: Int[Array, "..."] | None,
        **options: Any,
    ) -> Attended:
        """Attends in all heads; groups of heads may share keys and values. All arguments have an axis of heads."""
        shared = self.num_heads // self._num_kv
        if shared > 1 and self.attention.map.per_head:
            # The parts may have parameters for each head, so keys are repeated instead of grouped.
            axis = memory.key_mask.ndim - 2
            memory = jax.tree.map(lambda x: jnp.repeat(x, shared, axis=axis) if x.shape[axis] > 1 else x, memory)
            shared = 1
        if shared == 1:
            return self.attention(heads, memory, mask=mask, bias=bias, positions=positions, head_axes=1, **options)
        query, memory, given = _grouped(heads, memory, mask, positions, shared)
        attended = self.attention(query, memory, **given, bias=_grouped_bias(bias, shared), **options)
        return Attended(_ungroup(attended.context, -4), _ungroup(attended.weights, -4), _ungroup(attended.log_prob, -3))

    def _read_by(self, x: Float[Array, "b n d"], memory: Memory, mask: Any, positions: Int[Array, "b n"]) -> PyTree:
        """Returns the stored form of the keys after these queries have read them."""
        mask = mask if mask is None or callable(mask) else mask[:, None]
        heads, shared = split(self.query(x), self.num_heads), self.num_heads // self._num_kv
        query, grouped, given = _grouped(heads, memory, mask, positions[:, None], shared)
        keys = self.attention.read_by(query, grouped, **given).keys
        return jax.tree.map(lambda x: jnp.squeeze(x, memory.key_mask.ndim - 1), keys)

    def _of_places(
        self, bias: DistanceBias, positions: Int[Array, "b q"], key_positions: Int[Array, "b k"]
    ) -> Float[Array, "b h q k"] | PositionFunction:
        """Returns the bias as an array or, for computation in blocks, as a function of indices."""
        if not self.attention.block_size:
            return bias(key_positions[:, None] - positions[..., None])
        return lambda query, key: bias(key_positions[:, None, key] - positions[:, query])

    @nn.nowrap
    def _check_heads(self, bias: Array | jax.ShapeDtypeStruct) -> None:
        """Raises a ValueError if the number of heads of the bias does not fit."""
        if bias.ndim > 2 and bias.shape[-3] not in (1, self.num_heads):
            raise ValueError(
                f"a bias of shape {bias.shape} does not fit [..., heads, queries, keys]; expected {self.num_heads} "
                "heads, or 1 for all"
            )


def _for_heads(mask: Bool[Array, "..."], query: Float[Array, "... q d"], memory: Memory) -> Bool[Array, "..."]:
    """Adds an axis of heads to a mask, except to [q, k], for all heads; raises a ValueError if it does not fit."""
    lead = jnp.broadcast_shapes(query.shape[:-2], memory.values.shape[:-3])
    of_heads = "MultiHead adds the axis of heads by itself, expected a mask without it"
    check_mask(mask, (*lead, query.shape[-2], memory.num_keys), of_heads=of_heads)
    return mask if mask.ndim == 2 else mask[..., None, :, :]


def _grouped(
    heads: Float[Array, "... h q w"], memory: Memory, mask: Any, positions: Any, shared: int
) -> tuple[Float[Array, "... g r q w"], Memory, dict[str, Any]]:
    """Returns queries [..., g, r, q, d] of groups that share keys [..., g, 1, k, d], the memory, and arguments."""
    axis = memory.key_mask.ndim - 1  # place of the new axis, after the axis of heads
    memory = jax.tree.map(lambda x: jnp.expand_dims(x, axis), memory)
    mask = mask if mask is None or callable(mask) or mask.ndim == 2 else mask[..., None, :, :]
    positions = None if positions is None else positions[..., None, :]
    return _group(heads, shared), memory, dict(mask=mask, positions=positions, head_axes=2)


def _group(x: Float[Array, "... q d"], size: int) -> Float[Array, "... q d"]:
    """Splits the axis of heads, [..., h, q, d], into groups of `size`; [..., 1, q, d] and [q, d] serve all heads."""
    if x.ndim < 3 or x.shape[-3] == 1:
        return jnp.expand_dims(x, -3)
    return x.reshape(*x.shape[:-3], x.shape[-3] // size, size, *x.shape[-2:])


def _grouped_bias(
    bias: Float[Array, "..."] | PositionFunction | None, size: int
) -> Float[Array, "..."] | PositionFunction | None:
    """Splits the axis of heads of a bias, or of the result of a bias function."""
    if bias is None:
        return None
    return (lambda query, key: _group(bias(query, key), size)) if callable(bias) else _group(bias, size)


def _ungroup(x: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """Merges the axis of groups (`axis`, counted from the end) with the following axis of heads in a group."""
    place = x.ndim + axis
    return x.reshape(*x.shape[:place], x.shape[place] * x.shape[place + 1], *x.shape[place + 2 :])
