"""Attention as one formula, context = read(normalize(score(query, keys)), values), made of a map and a read.

The fused kernel and blocks of keys compute the same context without an array [q, k]. `Attention` takes them where the
promises of its parts allow it, and this file is the only place that does.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.arguments import check_bias, check_memory, check_no_more, check_query, check_rng
from attn_jax.attention.blockwise import PositionFunction, blockwise_attention
from attn_jax.attention.fused import fused_attention
from attn_jax.attention.hard.readings import READINGS, Reading, expectation, weighted_sum
from attn_jax.attention.maps import Difference, Fitted, Hopfield, Map
from attn_jax.attention.masks import causal, checked_masks, joint_mask, mask_at, scores_shape
from attn_jax.attention.memory import Attended
from attn_jax.attention.names import from_name
from attn_jax.attention.normalizers import NORMALIZERS, softmax
from attn_jax.attention.normalizing import Monotonic, Normalize, TopKeys, Windowed
from attn_jax.attention.parts import BY_BLOCKS, FUSIBLE, MEAN, Call, Part, check_slot
from attn_jax.attention.reads import Dropped, Gated, Read, certain
from attn_jax.attention.scores import SCORES
from attn_jax.attention.scores.base import Score
from attn_jax.types import Array, Bool, Float, Int, PRNGKeyArray, PyTree, floating


@struct.dataclass
class Memory:
    """What attention reads: built once by `Attention.prepare`, read many times."""

    keys: PyTree  # what the map keeps of the keys
    values: Float[Array, "... k dv"]
    key_mask: Bool[Array, "... k"]  # True where a key may be attended to

    @property
    def num_keys(self) -> int:
        """Number of keys, masked ones included."""
        return self.key_mask.shape[-1]


class Attention(nn.Module, kw_only=True):
    """context = read(map(query, keys), values), together with the weights.

    Raises:
        ValueError: weights that do not promise what the read needs; a block size below 0, or parts that cannot be
            computed block by block.
    """

    map: Part  # of maps.py
    read: Part  # of reads.py
    block_size: int = 0  # number of keys whose scores are in memory at a time; 0 is all

    def __post_init__(self):
        check_slot(self.read.label, self.read.needs, self.map)
        if self.block_size < 0:
            raise ValueError(f"block_size is {self.block_size}; expected at least 1, or 0 for all keys at once")
        if self.block_size:
            check_slot("block_size", {BY_BLOCKS}, self.map)
            check_slot("block_size", {MEAN}, self.read)
        super().__post_init__()

    @property
    def needs_rng(self) -> bool:
        """Whether a call in training needs an rng."""
        return self.map.needs_rng or self.read.needs_rng

    @checked_masks
    def prepare(
        self,
        keys: Float[Array, "... k dk"],
        values: Float[Array, "... k dv"] | None = None,
        *,
        key_mask: Bool[Array, "..."] | None = None,
    ) -> Memory:
        """Builds the Memory of these keys; values are the keys themselves where None, and key_mask True everywhere.

        Raises:
            ValueError: not one value, or entry of the mask, for each key; the mask is not boolean.
            TypeError: no arrays.
        """
        values = keys if values is None else values
        check_memory(keys, values, key_mask)
        key_mask = jnp.broadcast_to(True if key_mask is None else key_mask, keys.shape[:-1])
        return Memory(self.map.prepare(floating(keys)), floating(values), key_mask)

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
        rng: PRNGKeyArray | None = None,
        train: bool = False,
    ) -> Attended:
        """Reads a memory, or keys and values of which it builds one."""
        if not isinstance(memory, Memory):
            memory = self.prepare(memory, values, key_mask=key_mask)
        else:
            check_no_more(values, key_mask)
        check_query(query, memory.values)
        check_rng(rng)
        call = _call(floating(query), memory, mask, bias)
        call = call._replace(positions=positions, previous=previous, rng=rng)
        weights, context, log_prob = self._attend(call, memory.values, train)
        return Attended(self.read.after(context.astype(memory.values.dtype), call), weights, log_prob)

    def _attend(self, call: Call, values: Float[Array, "... k dv"], train: bool):
        """Computes (weights, context, log-probability of what was read), in the way that takes the least memory."""
        part, last = self.map.last(call)
        weights = part(last)
        if self.block_size and call.key_mask.shape[-1]:  # a block has at least one key
            return weights, _by_blocks(part, last, values, self.block_size), certain(weights)
        if FUSIBLE in self.map.promises and self.read.is_mean(train) and _fits_kernel(last, values):
            return weights, _fused(part, last, values), certain(weights)
        found = self.read.rows(weights, call, train)
        return found.weights, weighted_sum(found.rows, values), found.log_prob


def _call(query: Array, memory: Memory, mask: Any, bias: Any) -> Call:
    """Makes the call: masks combined, and a bias of places as an array as well; raises where they do not fit."""
    places = jnp.arange(query.shape[-2])[:, None], jnp.arange(memory.num_keys)
    bias_at = bias
    if callable(bias):
        bias = bias(*places)
    if bias is not None:
        check_bias(bias, query, memory.values)
    scores = scores_shape(query, memory.values)
    scores = scores if bias is None else jnp.broadcast_shapes(scores, bias.shape)
    allowed = joint_mask(memory.key_mask, mask_at(mask, *places) if callable(mask) else mask, scores)
    return Call(query, memory.keys, memory.key_mask, allowed, mask, bias, bias_at)


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
        mask=_array_of(call) if callable(call.mask) and call.mask is not causal else call.mask,
        bias=call.bias,
    )


def _array_of(call: Call) -> Array:
    """Returns a mask of places as an array."""
    return mask_at(call.mask, jnp.arange(call.query.shape[-2])[:, None], jnp.arange(call.key_mask.shape[-1]))


def _fits_kernel(call: Call, values: Array) -> bool:
    """Whether the fused kernel, which computes in float32 at most, takes arrays of these types and widths."""
    one_type = call.query.dtype == call.keys.dtype == values.dtype != jnp.float64
    return one_type and values.shape[-1] == call.query.shape[-1]


def attention(
    *,
    score: Score | str,
    normalize: Callable | str = softmax,
    read: Reading | str = "expectation",
    window: nn.Module | None = None,
    monotonic: nn.Module | None = None,
    dropout: float = 0.0,
    block_size: int = 0,
    top_keys: int = 0,
    keys_per_block: int = 1,
    iterations: int = 1,
    gate: bool = False,
    fit: nn.Module | None = None,
    difference: nn.Module | None = None,
) -> Attention:
    """Builds an Attention from the names of its parts and the options of the wrappers around them.

        >>> attention(score="scaled_dot", normalize="sparsemax", top_keys=3)

    The wrappers of the normalizer are, from the inside, top_keys and the window; those of the map are difference,
    iterations and fit. What is to be wrapped in another order is built from the parts themselves.
    """
    part: Part = Normalize(function=from_name("normalize", normalize, NORMALIZERS))
    if top_keys:
        part = TopKeys(of=part, count=top_keys, keys_per_block=keys_per_block)
    if window is not None:
        part = Windowed(of=part, window=window)
    part = part if monotonic is None else Monotonic(selection=monotonic)
    part = Map(score=from_name("score", score, SCORES), normalize=part)
    part = part if difference is None else Difference(of=part, subtract=difference)
    part = part if iterations == 1 else Hopfield(of=part, iterations=iterations)
    part = part if fit is None else Fitted(of=part, fit=fit)
    reading: Part = Read(reading=expectation() if read is None else from_name("read", read, READINGS))
    reading = Dropped(of=reading, rate=dropout) if dropout else reading
    reading = Gated(of=reading) if gate else reading
    return Attention(map=part, read=reading, block_size=block_size)
