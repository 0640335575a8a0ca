"""Attention as one formula, context = read(normalize(score(query, keys)), values), made of a map and a read.

The fused kernel and blocks of keys compute the same context without an array [q, k]. `Attention` takes them where the
promises of its parts allow it, and this file is the only place that does.
"""

from collections.abc import Callable
from numbers import Integral
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.arguments import check_bias, check_memory, check_no_more, check_query, check_rng
from attn_jax.attention.blockwise import PositionFunction, blockwise_attention
from attn_jax.attention.fused import fused_attention
from attn_jax.attention.hard.readings import weighted_sum
from attn_jax.attention.maps import Map
from attn_jax.attention.masks import causal, checked_masks, joint_mask, mask_at, places, scores_shape
from attn_jax.attention.memory import Attended, Memory
from attn_jax.attention.parts import (
    BY_BLOCKS,
    FUSIBLE,
    MEAN,
    NOT_NEGATIVE,
    SUMS_TO_ONE,
    Call,
    NewKeys,
    Part,
    check_kind,
    check_slot,
)
from attn_jax.attention.reads import certain
from attn_jax.attention.scores.base import Score
from attn_jax.types import Array, Bool, Float, Int, PRNGKeyArray, floating


class Attention(nn.Module, kw_only=True):
    """context = read(map(query, keys), values), together with the weights.

        >>> from attn_jax.attention import Normalize, Read
        >>> part = Map(score=attn_jax.ScaledDot(), normalize=Normalize(function=attn_jax.sparsemax))
        >>> Attention(map=part, read=Read()).apply({}, query, keys, values).context.shape
        (5, 8)

    `build_attention` makes one from names and options; the parts themselves are in maps.py, normalizing.py and
    reads.py. Softmax of a scaled dot product or of QK norm, read as it is, is computed by the fused kernel (see
    fused.py). With `block_size` every score and most normalizers are computed block by block, under jit in memory
    linear in the sequence length, without a [q, k] matrix (see blockwise.py), if mask and bias are functions of places
    or arrays of keys. The weights are computed separately; under jit this costs nothing where they are not used. The
    context has the type of the values.

    A reading that samples takes a key sampled with the rng of the call; outside of training, and without an rng, it
    takes the most probable key. With the relaxed and straight-through readings (gumbel_softmax, reinmax, ...) the
    context has a gradient with respect to scores, query and keys. With the others that sample (reinforce, stratified,
    systematic) it has none: train with the surrogate loss that estimators.combine makes of `Attended.log_prob` or of a
    sample of `Attended.weights` (see hard/readings.py). `top`, which does not sample, has none either.

    Raises:
        ValueError: weights that do not promise what the read needs; a block size below 0, or parts that cannot be
            computed block by block.
    """

    map: Part  # of maps.py
    read: Part  # of reads.py
    block_size: int = 0  # number of keys whose scores are in memory at a time; 0 is all

    def __post_init__(self):
        check_slot(self.read.label, self.read.needs, self.map)
        check_kind("block_size", self.block_size, Integral, "a whole number")
        if self.block_size < 0:
            raise ValueError(f"block_size is {self.block_size}; expected at least 1, or 0 for all keys at once")
        if self.block_size:
            check_slot("block_size", {BY_BLOCKS}, self.map)
            check_slot("block_size", {MEAN}, self.read)
        super().__post_init__()

    @property
    def needs_rng(self) -> bool:
        """Tells whether a call in training needs an rng."""
        return self.map.needs_rng or self.read.needs_rng

    @property
    def keeps_readers(self) -> bool:
        """Tells whether a call changes what is kept of the keys, for later ones; see `read_by`."""
        return self.map.keeps_readers

    @property
    def needs_previous(self) -> bool:
        """Tells whether a call needs the weights of the step before."""
        return self.map.needs_previous

    @property
    def sums_to_one(self) -> bool:
        """Tells whether the weights of every query with a key sum to one and are not negative: keys can be sampled."""
        return self.map.promises >= {SUMS_TO_ONE, NOT_NEGATIVE} and not self.score.compact

    @property
    def fusible(self) -> bool:
        """Tells whether the fused kernel computes the same context, except for dropout in training."""
        return FUSIBLE in self.map.promises and self.read.is_mean(train=False)

    @property
    def score(self) -> Score:
        """The score of the innermost map."""
        return self.map.base.score

    @property
    def normalize(self) -> Callable:
        """The normalizer of the innermost map, as a function or module."""
        return self.map.base.normalize.function

    @checked_masks
    def prepare(
        self,
        keys: Float[Array, "... k dk"],
        values: Float[Array, "... k dv"] | None = None,
        *,
        key_mask: Bool[Array, "..."] | None = None,
        inputs: Float[Array, "... n d"] | None = None,
        positions: Int[Array, "... k"] | None = None,
    ) -> Memory:
        """Builds the Memory of these keys; values are the keys themselves where None, and key_mask True everywhere.

        `inputs` are what the keys of heads are made of, without an axis of heads; forget gates are made of them.
        `positions` of the keys [..., k] increase, by default 0, 1, 2, ...; a leading axis may be 1. To initialize
        parameters call the module itself: `init` with method="prepare" has no query, and creates only the parameters
        that belong to the keys.

        Raises:
            ValueError: not one value, or entry of the mask, for each key; the mask is not boolean.
            TypeError: no arrays.
        """
        values = keys if values is None else values
        check_memory(keys, values, key_mask)
        key_mask = jnp.broadcast_to(True if key_mask is None else key_mask, keys.shape[:-1])
        prepared = self.map.prepare(NewKeys(floating(keys), key_mask, inputs, positions))
        return Memory(prepared, floating(values), key_mask, positions)

    @checked_masks
    def __call__(
        self,
        query: Float[Array, "... q dq"],
        memory: Memory | Float[Array, "... k dk"],
        values: Float[Array, "... k dv"] | None = None,
        *,
        key_mask: Bool[Array, "..."] | None = None,
        mask: Bool[Array, "..."] | PositionFunction | None = None,
        bias: Float[Array, "... #q k"] | PositionFunction | None = None,
        positions: Int[Array, "... q"] | None = None,
        previous: Float[Array, "... q k"] | None = None,
        head_axes: int = 0,
        rng: PRNGKeyArray | None = None,
        train: bool = False,
    ) -> Attended:
        """Reads a memory, or keys and values of which it builds one.

        Args:
            query: [..., q, dq].
            memory: a Memory, or keys.
            values: of these keys, by default the keys themselves; None with a Memory, which has its own.
            key_mask: of these keys, [..., k], True for keys that every query may attend to; None with a Memory.
            mask: True where a query may attend to a key, [..., q, k]. Or a function of places in these arrays, counted
                from 0 (query [q, 1], key [k]), such as `causal`, which block by block, and in the fused kernel of a
                GPU, needs no array of this size. A key is read where both masks are True; see masks.py.
            bias: is added to the scores, [..., q, k] or what broadcasts to it, or a function of places, as for `mask`;
                -inf leaves a key out, as the mask does, so a mask that is added to the scores is a bias.
            positions: of the queries, counted like those of the keys; for windows, rotations and forget gates.
            previous: weights of the step before, for monotonic attention.
            head_axes: number of axes of heads before that of the queries, for maps that tell heads apart.
            rng: for a reading that samples; without it, and not in training, it reads the most probable key.
            train: whether weights are dropped, with the rng stream "dropout".

        Masked keys and values have no effect as long as they are finite.

        Raises:
            TypeError: no arrays.
            ValueError: shapes that do not fit; values or key_mask with a Memory; training without the rng of a reading
                that samples; a reading of several rows, which is used outside (see hard/readings.py); parameters made
                by `init` with method="prepare" alone.
        """
        if not isinstance(memory, Memory):
            memory = self.prepare(memory, values, key_mask=key_mask)
        else:
            check_no_more(values, key_mask)
        check_query(query, memory.key_mask[..., None])
        check_rng(rng)
        call = _call(floating(query), memory, mask, bias)
        call = call._replace(positions=positions, previous=previous, head_axes=head_axes, rng=rng)
        weights, context, log_prob = self._attend(call, memory.values, train)
        return Attended(self.read.after(context.astype(memory.values.dtype), call), weights, log_prob)

    @checked_masks
    def read_by(
        self,
        query: Float[Array, "... q dq"],
        memory: Memory,
        *,
        mask: Bool[Array, "..."] | PositionFunction | None = None,
        positions: Int[Array, "... q"] | None = None,
        head_axes: int = 0,
    ) -> Memory:
        """Returns the memory after these queries have read it; most maps leave it as it is (`Part.keeps_readers`)."""
        call = _call(floating(query), memory, mask, None)._replace(positions=positions, head_axes=head_axes)
        return memory.replace(keys=self.map.read_by(call))

    def linear(self, query: Float[Array, "... q dq"], memory: Memory) -> Float[Array, "... q dv"]:
        """Computes the context without a normalizer: the scores are the weights."""
        weights = self.map.linear(_call(floating(query), memory, None, None))
        return weighted_sum(weights, memory.values).astype(memory.values.dtype)

    def _attend(self, call: Call, values: Float[Array, "... k dv"], train: bool):
        """Computes (weights, context, log-probability of what was read), in the way that takes the least memory."""
        part, last = self.map.last(call)
        weights = part(last)
        if self.block_size and call.key_mask.shape[-1]:  # a block has at least one key
            return weights, _by_blocks(part, last, values, self.block_size), certain(weights)
        if self.fusible and self.read.is_mean(train) and _fits_kernel(last, values):
            return weights, _fused(part, last, values), certain(weights)
        found = self.read.rows(weights, call, train)
        return found.weights, weighted_sum(found.rows, values), found.log_prob


def _call(query: Array, memory: Memory, mask: Any, bias: Any) -> Call:
    """Makes the call: masks combined, and a bias of places as an array as well; raises where they do not fit."""
    # The prepared keys may be any pytree; their mask has the axes of the keys.
    keys, bias_at = memory.key_mask[..., None], bias
    at = places(query, keys)
    if callable(bias):
        bias = bias(*at)
    if bias is not None:
        check_bias(bias, query, keys)
    scores = scores_shape(query, keys)
    scores = scores if bias is None else jnp.broadcast_shapes(scores, bias.shape)
    allowed = joint_mask(memory.key_mask, mask_at(mask, *at) if callable(mask) else mask, scores)
    return Call(query, memory.keys, memory.key_mask, allowed, mask, bias, bias_at, key_positions=memory.positions)


def _by_blocks(part: Map, call: Call, values: Array, block_size: int) -> Float[Array, "... q dv"]:
    """Computes the context block by block; see blockwise.py."""
    return blockwise_attention(
        part.score.bound(),
        call.query,
        call.keys,
        values,
        key_mask=call.key_mask,
        mask=call.mask,
        normalize=part.normalize.form(part.scores(call)),
        bias=call.bias_at,
        block_size=block_size,
    ).context


def _fused(part: Map, call: Call, values: Array) -> Float[Array, "... q dv"]:
    """Computes the context with the fused kernel; see fused.py."""
    return fused_attention(
        part.score.project_query(call.query),
        call.keys,
        values,
        scale=part.score.fused_scale(call.query.shape[-1]),
        key_mask=call.key_mask,
        mask=call.mask if call.mask is causal or not callable(call.mask) else mask_at(call.mask, *_places(call)),
        bias=call.bias,
    )


def _places(call: Call) -> tuple[Int[Array, "q 1"], Int[Array, " k"]]:
    return places(call.query, call.key_mask[..., None])


def _fits_kernel(call: Call, values: Array) -> bool:
    """Tells whether the fused kernel, which computes in float32 at most, takes arrays of these types and widths."""
    one_type = call.query.dtype == call.keys.dtype == values.dtype != jnp.float64
    return one_type and values.shape[-1] == call.query.shape[-1]
