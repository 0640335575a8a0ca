"""Attention as one formula, context = read(normalize(score(query, keys)), values).

A reading (`read`) is the read-out: how the weights and the values become a context, such as their mean or the value of
one sampled key.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from flax.errors import ScopeParamNotFoundError

from attn_jax.attention.arguments import check_bias, check_memory, check_no_more, check_query, check_rng
from attn_jax.attention.blockwise import PositionFunction, blockwise_attention
from attn_jax.attention.dropout import drop
from attn_jax.attention.fields import check_fields
from attn_jax.attention.fused import fused_attention
from attn_jax.attention.gates import ContextGate, forgetting_bias, forgetting_bias_at
from attn_jax.attention.hard.readings import READINGS, Reading, expectation, log_of, top, weighted_sum
from attn_jax.attention.masks import causal, checked_masks, joint_mask, mask_at, places, same_axes, scores_shape
from attn_jax.attention.memory import Attended, Memory
from attn_jax.attention.names import from_name
from attn_jax.attention.normalizers import NORMALIZERS, softmax, sums_to_one
from attn_jax.attention.normalizers.forms import form_of
from attn_jax.attention.scores import SCORES
from attn_jax.attention.scores.base import Score, ScoreError
from attn_jax.attention.selection import top_keys_mask
from attn_jax.attention.signed import halves
from attn_jax.types import Array, Bool, Dtype, Float, Int, PRNGKeyArray, floating, wide

SOFT, MOST_PROBABLE = expectation(), top()


class _Call(NamedTuple):
    """Arguments of a call of Attention, checked."""

    memory: Memory
    mask: Bool[Array, "..."] | PositionFunction | None  # as it was given
    allowed: Bool[Array, "..."]  # of keys and queries together, with as many axes as the scores
    bias: Float[Array, "..."] | None  # with that of forget gates
    bias_by_block: Float[Array, "..."] | PositionFunction | None  # the same, as a function of places where it is one
    positions: Int[Array, "..."] | None
    previous: Float[Array, "..."] | None
    rng: PRNGKeyArray | None

    @property
    def in_reach(self) -> Bool[Array, "..."]:
        """The keys that are allowed and have a bias above -inf."""
        if self.bias is None:
            return self.allowed
        return jnp.logical_and(*same_axes(self.allowed, self.bias > -jnp.inf))


class Attention(nn.Module, kw_only=True):
    """context = read(normalize(score(query, keys)), values), together with the weights.

        >>> attention = Attention(score="scaled_dot", normalize="sparsemax", top_keys=3)
        >>> attention.apply({}, query, keys, values).context.shape
        (5, 8)

    Softmax of a scaled dot product or of QK norm, read by the expectation, is computed by the fused kernel (see
    fused.py). With `block_size` every score and most normalizers are computed block by block, under jit in memory
    linear in the sequence length, without a [q, k] matrix (see blockwise.py), if mask and bias are functions of places
    or arrays of keys; forget gates are such a function. The weights are computed separately; under jit this costs
    nothing where they are not used. The context has the type of the values.

    A reading that samples takes a key sampled with the rng of the call; outside of training, and without an rng, it
    takes the most probable key. With the relaxed and straight-through readings (gumbel_softmax, reinmax, ...) the
    context has a gradient with respect to scores, query and keys. With the others that sample (reinforce, stratified,
    systematic) it has none: train with the surrogate loss that estimators.combine makes of `Attended.log_prob` or of a
    sample of `Attended.weights` (see hard/readings.py). `top`, which does not sample, has none either.

    `iterations` > 1 performs Hopfield retrieval (Ramsauer 2020, arXiv 2008.02217, equation 3):
    query <- normalize(score(query, keys)) keys, and the last iteration reads the values. Each iteration of softmax
    over the dot product lowers the energy |query|^2 / 2 - logsumexp(score), and of any entmax that of a
    Hopfield-Fenchel-Young network (Santos 2024, arXiv 2411.08590). Over a Gaussian kernel it is the mean shift.

    Raises:
        ValueError: an unknown name, or fields that exclude each other.
        TypeError: a field that is neither a name nor an object of the right kind.
    """

    score: Score | str  # an object, or a name of SCORES that needs no options
    normalize: Callable | str = softmax  # a function, a module, or a name of NORMALIZERS
    read: Reading | str = SOFT  # a reading of one row, or a name of READINGS
    window: nn.Module | None = None  # restricts attention to keys near a centre, see local.py
    monotonic: nn.Module | None = None  # replaces normalize: the weights depend on those of the step before
    dropout: float = 0.0  # rate at which weights are dropped in training; `Attended.weights` are those before dropout
    block_size: int = 0  # number of keys whose scores are in memory at a time; 0 is all
    top_keys: int = 0  # number of keys (or blocks) with the largest scores that may be read, see selection.py; 0: all
    keys_per_block: int = 1  # number of keys that top_keys selects together
    iterations: int = 1  # number of reads; after each, the mean of the keys is the next query
    gate: bool = False  # multiply the context by a sigmoid of the query, see gates.py
    fit: nn.Module | None = None  # LocalLine or Parallax (signed.py): a local linear fit to the values, at the query
    difference: nn.Module | None = None  # Difference of signed.py: subtract a second map, each of half of the columns

    def __post_init__(self):
        self.score = from_name("score", self.score, SCORES)
        self.normalize = from_name("normalize", self.normalize, NORMALIZERS)
        self.read = from_name("read", self.read, READINGS)
        check_fields(self)
        super().__post_init__()

    def setup(self):
        if self.gate:
            self.context_gate = ContextGate()

    @property
    def needs_rng(self) -> bool:
        """Tells whether a call in training needs an rng: it samples keys, or adds noise to monotonic scores."""
        return self.read.random or self.monotonic is not None

    @property
    def fusible(self) -> bool:
        """Tells whether the fused kernel computes the same context, except for dropout in training."""
        plain = self._is_plain and self.read.is_soft and not self.top_keys
        return plain and self.normalize is softmax and self.score.fused_scale(1) is not None

    @property
    def _is_plain(self) -> bool:
        """Tells whether the normalizer alone makes the weights of the scores."""
        return all(other is None for other in (self.window, self.monotonic, self.fit, self.difference))

    @property
    def sums_to_one(self) -> bool:
        """Tells whether the weights of every query with a key sum to one, as sampling keys from them needs."""
        return self._is_plain and not getattr(self.score, "compact", False) and sums_to_one(self.normalize)

    @checked_masks
    def prepare(
        self,
        keys: Float[Array, "... k dk"],
        values: Float[Array, "... k dv"] | None = None,
        *,
        key_mask: Bool[Array, "..."] | None = None,
    ) -> Memory:
        """Builds the Memory of these keys; values are the keys themselves where None, and key_mask True everywhere.

        To initialize parameters call the module itself: `init` with method="prepare" has no query, and creates only
        the parameters that belong to the keys.

        Raises:
            ValueError: not one value, or entry of the mask, for each key; the mask is not boolean.
            TypeError: no arrays.
        """
        values = keys if values is None else values
        check_memory(keys, values, key_mask)
        key_mask = jnp.broadcast_to(True if key_mask is None else key_mask, keys.shape[:-1])
        keys, values = floating(keys), floating(values)
        parts = [keys] if self.difference is None else halves(keys)
        projected = [self.score.project_keys(part) for part in parts]
        return Memory(jnp.concatenate(projected, axis=-1), values, key_mask)

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
            positions: of the queries, counted like those of the keys; for a window and for forget gates.
            previous: weights of the step before, for monotonic attention.
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
        check_query(query, memory.keys)
        check_rng(rng)
        if train and rng is None and self.read.random:
            raise ValueError(f"read={self.read.name} samples keys in training, and needs an rng: rng=jax.random.key(0)")
        query = floating(query)
        bias, bias_by_block = _with_gates(bias, query, memory, positions)
        allowed = _allowed(query, memory, mask, bias)
        call = _Call(memory, mask, allowed, bias, bias_by_block, positions, previous, rng)
        state, scores, weights = self._iterate(query, call)
        context, weights, log_prob = self._read(state, scores, weights, call, train)
        context = context.astype(memory.values.dtype)
        return Attended(self.context_gate(context, query) if self.gate else context, weights, log_prob)

    def scores(self, query: Float[Array, "... q dq"], keys: Float[Array, "... k dk"]) -> Float[Array, "... q k"]:
        """Computes the scores of keys of a Memory, without bias.

        Raises:
            ValueError: a difference of two maps, which has two scores for each key.
        """
        if self.difference is not None:
            raise ValueError("the difference of two maps has two scores for each key; selective attention needs one")
        return self._scores(query, keys)

    def _iterate(self, query: Float[Array, "... q dq"], call: _Call):
        """Computes (the query of the last iteration, its scores, its weights)."""
        scores, weights = self._map(query, call)
        for _ in range(self.iterations - 1):
            query = _next_query(weights, call.memory, query)
            scores, weights = self._map(query, call)
        if self.fit is not None:
            weights = self.fit(weights, self.score.place_query(query), call.memory.keys)
        return query, scores, weights

    def _map(self, query: Float[Array, "... q dq"], call: _Call):
        """Computes (scores, weights); of a difference of two maps the scores are None."""
        if self.difference is None:
            return self._single_map(query, call.memory.keys, call)
        both = zip(halves(query), halves(call.memory.keys), strict=True)
        maps = [self._single_map(half, keys, call)[1] for half, keys in both]
        return None, self.difference(*maps, features=query.shape[-1] // 2)

    def _single_map(self, query: Float[Array, "... q dq"], keys: Float[Array, "... k dk"], call: _Call):
        scores = self._scores(query, keys)
        dtype = jnp.promote_types(query.dtype, keys.dtype) if self.score.widens else scores.dtype
        scores = wide(scores)
        scores = scores if call.bias is None else jnp.add(*same_axes(scores, call.bias.astype(scores.dtype)))
        return scores, self._weights(scores, query, call, dtype)

    def _read(
        self,
        query: Float[Array, "... q dq"],
        scores: Float[Array, "... q k"] | None,
        weights: Float[Array, "... q k"],
        call: _Call,
        train: bool,
    ) -> tuple[Float[Array, "... q dv"], Float[Array, "... q k"], Float[Array, "... q"]]:
        """Computes (context, weights, log-probability of what was read), in the way that takes the least memory."""
        dropping = train and self.dropout > 0
        if self.block_size and call.memory.num_keys:  # a block has at least one key
            return self._read_blocks(query, scores, call), weights, _certain(weights)
        if self.fusible and not dropping and _fits_kernel(query, call.memory):
            return self._read_fused(query, call), weights, _certain(weights)
        rows, log_prob = self._rows(weights, call.rng)
        weights = weights if self.read.random else rows  # a fixed choice, such as the largest, is what was read
        if dropping:
            rows = drop(self.make_rng("dropout"), self.dropout, rows)
        return weighted_sum(rows, call.memory.values), weights, log_prob

    def _read_blocks(
        self, query: Float[Array, "... q dq"], scores: Float[Array, "... q k"], call: _Call
    ) -> Float[Array, "... q dv"]:
        """Computes the context block by block; `scores` are used for their shape alone."""
        return blockwise_attention(
            self.score.bound(),
            query,
            call.memory.keys,
            call.memory.values,
            key_mask=call.memory.key_mask,
            mask=call.mask,
            normalize=form_of(self.normalize, scores),
            bias=call.bias_by_block,
            block_size=self.block_size,
        ).context

    def _read_fused(self, query: Float[Array, "... q dq"], call: _Call) -> Float[Array, "... q dv"]:
        """Computes the context with the fused kernel."""
        memory, mask = call.memory, call.mask
        return fused_attention(
            self.score.project_query(query),
            memory.keys,
            memory.values,
            scale=self.score.fused_scale(query.shape[-1]),
            key_mask=memory.key_mask,
            mask=mask_at(mask, *places(query, memory.keys)) if callable(mask) and mask is not causal else mask,
            bias=call.bias,
        )

    def _scores(self, query: Array, keys: Array) -> Float[Array, "... q k"]:
        try:
            return self.score(query, keys)
        except ScopeParamNotFoundError as error:
            raise ValueError(
                f"the {type(self.score).__name__} score lacks parameters that belong to the query; initialize with "
                'init(rng, query, keys, values), not with method="prepare"'
            ) from error

    def _weights(
        self, scores: Float[Array, "... q k"], query: Array, call: _Call, dtype: Dtype
    ) -> Float[Array, "... q k"]:
        """Computes the weights, in this type; those of monotonic attention, which the next step reads, in float32."""
        if self.monotonic is not None:
            if call.previous is None:
                raise ValueError("monotonic attention needs the weights of the step before: previous=...")
            return self.monotonic(scores, call.previous, call.in_reach, call.rng)
        if self.window is None:
            return self._normalized(scores, call.in_reach, query).astype(dtype)
        if call.positions is None:
            raise ValueError("attention with a window needs the positions of the queries: positions=...")
        near, factor = self.window(query, call.positions, key_mask=call.memory.key_mask)
        # The factor is applied after normalizing, without normalizing again (Luong 2015, equation 10).
        in_reach, near, factor = same_axes(call.in_reach, near, factor)
        return (self._normalized(scores, in_reach & near, query) * factor.astype(scores.dtype)).astype(dtype)

    def _normalized(self, scores: Float[Array, "... q k"], allowed: Bool[Array, "..."], query: Array):
        if self.top_keys:
            allowed = top_keys_mask(scores, allowed, self.top_keys, self.keys_per_block)
        if isinstance(self.normalize, nn.Module):
            query = jnp.broadcast_to(query, (*scores.shape[:-1], query.shape[-1]))
            return self.normalize(scores, allowed, query=query)
        return self.normalize(scores, allowed)

    def _rows(self, weights: Float[Array, "... q k"], rng: PRNGKeyArray | None):
        if self.read.is_soft:
            return weights, _certain(weights)
        reading = MOST_PROBABLE if rng is None and self.read.random else self.read
        sample = reading(rng, log_of(weights))
        if sample.rows.shape[-2] != 1:
            raise ValueError(
                f"Attention reads one row of weights, but read={self.read.name} samples {sample.rows.shape[-2]}; take "
                "read=expectation() here, sample rows of the weights it returns, evaluate the loss at each of them, "
                "and combine the losses with attn_jax.combine"
            )
        return sample.rows[..., 0, :], sample.log_prob[..., 0]


def _allowed(
    query: Array, memory: Memory, mask: Bool[Array, "..."] | PositionFunction | None, bias: Array | None
) -> Bool[Array, "..."]:
    """Combines the mask of the keys with that of a call; raises a ValueError where they do not fit."""
    scores = scores_shape(query, memory.keys)
    scores = scores if bias is None else jnp.broadcast_shapes(scores, bias.shape)
    mask = mask_at(mask, *places(query, memory.keys)) if callable(mask) else mask
    return joint_mask(memory.key_mask, mask, scores)


def _with_gates(
    bias: Float[Array, "..."] | PositionFunction | None,
    query: Array,
    memory: Memory,
    positions: Int[Array, "..."] | None,
) -> tuple[Float[Array, "..."] | None, Float[Array, "..."] | PositionFunction | None]:
    """Adds what forget gates add to the scores to a bias: (as an array, as a function of places if it is one).

    Raises:
        ValueError: a bias that does not fit; forget gates without positions.
    """
    of_places = bias
    if callable(bias):
        bias = bias(*places(query, memory.keys))
    if bias is not None:
        check_bias(bias, query, memory.keys)
    if memory.log_gates is None:
        return bias, of_places
    if positions is None:
        raise ValueError("a memory with forget gates needs the positions of the queries: positions=...")
    faded, at = (make(memory.log_gates, positions) for make in (forgetting_bias, forgetting_bias_at))
    if bias is None:
        return faded, at
    both = jnp.add(*same_axes(bias, faded))

    def at_places(query, key):
        return jnp.add(*same_axes(of_places(query, key), at(query, key)))

    return both, at_places if callable(of_places) else both


def _fits_kernel(query: Array, memory: Memory) -> bool:
    """Tells whether the fused kernel, which computes in float32 at most, takes arrays of these types and widths."""
    one_type = query.dtype == memory.keys.dtype == memory.values.dtype != jnp.float64
    return one_type and memory.values.shape[-1] == query.shape[-1]


def _certain(weights: Float[Array, "... q k"]) -> Float[Array, "... q"]:
    """Returns the log-probability of what was read where nothing is sampled: 0."""
    return jnp.zeros(weights.shape[:-1], weights.dtype)


def _next_query(weights: Float[Array, "... q k"], memory: Memory, query: Array) -> Array:
    if memory.keys.shape[-1] != query.shape[-1]:
        raise ScoreError(
            f"iterations need keys that can be queries, of width {query.shape[-1]}; those of this score have "
            f"{memory.keys.shape[-1]} columns; scaled_dot, dot and general have such keys"
        )
    return weighted_sum(weights, memory.keys).astype(query.dtype)
