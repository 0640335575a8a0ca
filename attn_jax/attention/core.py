"""Attention as one formula, context = read(normalize(score(query, keys)), values), made of a map and a read.

The fused kernel and the block-by-block computation give the same context without an array [q, k]. `Attention` uses
them if the properties that its parts promise allow it. Only this file makes that choice.
"""

from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
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

FEW = 8  # queries


class Attention(nn.Module, kw_only=True):
    """context = read(map(query, keys), values), together with the weights.

        >>> from attn_jax.attention import Normalize, Read
        >>> part = Map(score=attn_jax.ScaledDot(), normalize=Normalize(function=attn_jax.sparsemax))
        >>> Attention(map=part, read=Read()).apply({}, query, keys, values).context.shape
        (5, 8)

    `build_attention` makes one from names and options; the parts are in maps.py, normalizing.py and reads.py. Softmax
    of a scaled dot product or of QK norm, with the mean as read, is computed by the fused kernel (see fused.py). With
    `block_size`, every score and most normalizers are computed block by block (see blockwise.py): under jit, memory is
    linear in the sequence length, without a [q, k] matrix, if mask and bias are functions of positions or arrays of
    keys. The weights are computed separately; under jit unused weights cost nothing. The context has the type of the
    values.

    A reading that samples takes a key sampled with the rng of the call; outside of training, and without an rng, it
    takes the most probable key. With the relaxed and straight-through readings (gumbel_softmax, reinmax, ...) the
    context has a gradient with respect to scores, query and keys. With the other sampling readings (reinforce,
    stratified, systematic) it has none: train with the surrogate loss that estimators.combine computes from
    `Attended.log_prob`, or from a sample of `Attended.weights` (see hard/readings.py). `top`, which does not sample,
    has no such gradient either.

    Attributes:
        map: from maps.py.
        read: from reads.py.
        block_size: number of keys whose scores are in memory at a time; 0: all.

    Raises:
        ValueError: the weights lack a property that the read needs; the block size is below 0, or a part cannot be
            computed block by block.
    """

    map: Part
    read: Part
    block_size: int = 0

    if TYPE_CHECKING:  # of flax it is also a tuple, with `mutable`, so that no attribute would be known

        def apply(self, *args: Any, **kwargs: Any) -> Any: ...

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
        """Tells whether a call changes the stored keys for later calls; see `read_by`."""
        return self.map.keeps_readers

    @property
    def needs_previous(self) -> bool:
        """Tells whether a call needs the weights of the step before."""
        return self.map.needs_previous

    @property
    def sums_to_one(self) -> bool:
        """Tells whether keys can be sampled: weights are not negative, and sum to one for each query with a key."""
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
        """Builds the Memory of these keys; by default values are the keys, and key_mask is True everywhere.

        `inputs`, without an axis of heads, are the inputs from which the keys of heads are computed; forget gates need
        them. `positions` of the keys [..., k] increase, by default 0, 1, 2, ...; a leading axis may be 1. To initialize
        parameters call the module itself: `init` with method="prepare" has no query, and creates only the parameters
        that belong to the keys.

        Raises:
            ValueError: the number of values, or of entries of the mask, differs from the number of keys; the mask is
                not boolean.
            TypeError: an argument is not an array.
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
        """Reads a memory, or keys and values from which it builds one.

        Args:
            query: [..., q, dq].
            memory: a Memory, or keys.
            values: the values of these keys, by default the keys; None with a Memory, which contains its values.
            key_mask: [..., k], True for keys that every query may attend to; None with a Memory.
            mask: [..., q, k], True where a query may attend to a key. Or a function of indices in these arrays, from 0
                (query [q, 1], key [k]), such as `causal`: block by block, and in the fused kernel of a GPU, it needs no
                array of this size. A key is read where both masks are True; see masks.py.
            bias: added to the scores; [..., q, k] or an array that broadcasts to it, or a function of indices, as for
                `mask`. A key with bias -inf is masked, so pass an additive mask as the bias.
            positions: positions of the queries, counted like the positions of the keys; for windows, rotations, forget
                gates.
            previous: weights of the step before, for monotonic attention.
            head_axes: number of axes of heads before the axis of queries, for maps that treat heads differently.
            rng: for a reading that samples; without it, and outside of training, the most probable key is read.
            train: whether to apply dropout to the weights, with the rng stream "dropout".

        Masked keys and values have no effect as long as they are finite.

        Raises:
            TypeError: an argument is not an array.
            ValueError: shapes do not fit; values or key_mask are given with a Memory; a sampling reading has no rng in
                training; the reading has several rows, so must be used outside of Attention (see hard/readings.py);
                parameters come from `init` with method="prepare" alone.
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
        """Returns the memory after these queries have read it; most maps leave it unchanged (`Part.keeps_readers`)."""
        call = _call(floating(query), memory, mask, None)._replace(positions=positions, head_axes=head_axes)
        return memory.replace(keys=self.map.read_by(call))

    def linear(self, query: Float[Array, "... q dq"], memory: Memory) -> Float[Array, "... q dv"]:
        """Computes the context without a normalizer: the weights are the scores."""
        weights = self.map.linear(_call(floating(query), memory, None, None))
        return weighted_sum(weights, memory.values).astype(memory.values.dtype)

    def _attend(self, call: Call, values: Float[Array, "... k dv"], train: bool):
        """Computes (weights, context, log-probability of the read) by the method that takes the least memory."""
        part, last = self.map.last(call)
        weights = part(last)
        if self.block_size and call.key_mask.shape[-1]:  # a block has at least one key
            return weights, _by_blocks(part, last, values, self.block_size), certain(weights)
        if self.fusible and self.read.is_mean(train) and _fits_kernel(last, values):
            return weights, _fused(part, last, values), certain(weights)
        found = self.read.rows(weights, call, train)
        return found.weights, weighted_sum(found.rows, values), found.log_prob


def _call(query: Array, memory: Memory, mask: Any, bias: Any) -> Call:
    """Makes the call: combines the masks and evaluates a bias function to an array; raises if shapes do not fit."""
    # The prepared keys may be any pytree; their mask has the leading axes and the number of keys.
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
    """Tells whether the fused kernel, which computes in float32 at most, accepts the types and widths of the arrays.

    On a CPU the kernel is the plain formula of transposed arrays, which is slower for few queries, as in decoding.
    """
    if call.query.shape[-2] <= FEW and jax.default_backend() == "cpu":
        return False
    one_type = call.query.dtype == call.keys.dtype == values.dtype != jnp.float64
    return one_type and values.shape[-1] == call.query.shape[-1]
