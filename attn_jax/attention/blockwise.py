"""Attention over many keys, block by block, in memory linear in the sequence length, without a [q, k] matrix.

The normalizer is a function of one score and one number of its row, weights_i = f(scores_i, tau); see
normalizers/forms.py. A first scan over blocks of keys finds tau, and a second one sums f(scores, tau) values; scores of
a block are computed when they are needed, in the derivative as well. Softmax needs one scan for both (Milakov &
Gimelshein 2018, arXiv 1805.02867; Dao 2022, arXiv 2205.14135), entmax one for each step of Newton's method.

The derivative is written once, for every score and normalizer. With w = f(scores, tau) and slope = -df / dtau,

    d tau = sum_i dw_i / sum_i slope_i        dw: the derivative of f at a fixed tau
    d context = sum_i (dw_i values_i + w_i d values_i) - d tau sum_i slope_i values_i

It is made of scans that can be differentiated again, so derivatives of any order are right.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.normalizers.forms import NEGLIGIBLE, Form, form_of
from attn_jax.types import Array, Bool, Float, Int, PyTree

Scores = Float[Array, "... q k"]
PerQuery = Float[Array, "... q"]
ScoreFunction = Callable[[Array, Array], Scores]  # (query, some keys) -> scores
PositionFunction = Callable[[Int[Array, "q 1"], Int[Array, " k"]], Array]  # positions -> [..., q, k]


class Block(NamedTuple):
    """Some keys, with all that belongs to them."""

    keys: Float[Array, "... k d"]
    values: Float[Array, "... k dv"]
    bias: Float[Array, "... #q k"] | None
    mask: Bool[Array, "... #q k"]  # False for keys that only fill the last block
    positions: Int[Array, " k"]


class Blockwise:
    """The result of `blockwise_attention`: the context, and parts of the weights, each in O(q + k) memory."""

    def __init__(self, context: Array, tau: Array, over: Callable, weights: Callable, num_keys: int):
        self.context: Float[Array, "... q dv"] = context
        self.threshold: PerQuery = tau[..., 0]  # tau; for softmax the logsumexp of the scores; 0 where there is none
        self._over, self._weights, self._num_keys = over, weights, num_keys

    def rows(self, queries: Sequence[int] | Int[Array, " r"]) -> Float[Array, "... r k"]:
        """Returns the weights of some queries; -1 is the last."""
        index = jnp.asarray(queries) % self.threshold.shape[-1]
        return self._by_key(lambda block: self._weights(block, index))

    def column_sums(self) -> Float[Array, "... k"]:
        """Returns the sum of the weights of each key over all queries."""
        return self._by_key(lambda block: jnp.sum(self._weights(block), axis=-2))

    def first(self) -> PerQuery:
        """Returns the weight of the first key, the "sink" of many language models."""
        return self._over(lambda block: jnp.sum(jnp.where(block.positions == 0, self._weights(block), 0), axis=-1))

    def entropy(self) -> PerQuery:
        """Returns the entropy of the weights in nats, -sum_i w_i log w_i."""

        def part(block: Block) -> PerQuery:
            w = self._weights(block)
            return -jnp.sum(w * jnp.log(jnp.where(w > 0, w, 1.0)), axis=-1)

        return self._over(part)

    def _by_key(self, part: Callable[[Block], Float[Array, "... k"]]) -> Float[Array, "... k"]:
        found = self._over(part, stacked=True)  # [blocks, ..., block]
        found = jnp.moveaxis(found, 0, -2)
        return found.reshape(*found.shape[:-2], -1)[..., : self._num_keys]


def blockwise_attention(
    score: ScoreFunction,
    query: Float[Array, "... q dq"],
    keys: Float[Array, "... k dk"],
    values: Float[Array, "... k dv"],
    mask: Bool[Array, "... #q k"] | PositionFunction | None = None,
    *,
    normalize: Callable | Form = softmax,
    bias: Float[Array, "... #q k"] | PositionFunction | None = None,
    block_size: int = 512,
) -> Blockwise:
    """Computes context = normalize(score(query, keys) + bias) values in O(q + k) memory.

        >>> score, causal = lambda q, k: q @ k.swapaxes(-1, -2), lambda query, key: key <= query
        >>> found = blockwise_attention(score, query, keys, values, causal, block_size=2)
        >>> found.context.shape, found.entropy().shape
        ((5, 8), (5,))

    Args:
        score: (query [..., q, dq], keys [..., k, dk]) -> [..., q, k], for any part of the keys. It may use parameters;
            they get gradients. Scores should stay below about 1e4: tau is one number as large as they are, so in
            float32 the weights have a relative error of 6e-8 times the largest score.
        query: [..., q, dq].
        keys: [..., k, dk].
        values: [..., k, dv].
        mask: True where a query may attend to a key: an array that broadcasts to [..., q, k], or a function of
            positions (query [q, 1], key [k]), which needs no array of this size.
        normalize: a normalizer of forms.FORMS, an Entmax, or a Form.
        bias: is added to the scores; an array or a function of positions, as for `mask`.
        block_size: number of keys whose scores are computed at a time.

    Raises:
        ValueError: a normalizer that needs more than one number of a row, or a block size below 1.
    """
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}; expected at least 1")
    num_queries, num_keys = query.shape[-2], keys.shape[-2]
    size = max(1, min(block_size, num_keys))
    places = jnp.arange(num_queries)[:, None]
    array_of = lambda x: None if x is None or callable(x) else x  # noqa: E731
    blocks = _split(keys, values, array_of(bias), array_of(mask), size)
    added, allowed = (x if callable(x) else None for x in (bias, mask))

    def scores_of(
        query: Array, positions: Array, block: Block, chosen: Array | None = None
    ) -> tuple[Scores, Bool[Array, "... q k"]]:
        if chosen is not None:  # some of the queries
            block = block._replace(bias=_rows(block.bias, chosen), mask=_rows(block.mask, chosen))
        scores = score(query, block.keys)
        scores = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
        if block.bias is not None:
            scores = scores + block.bias
        if added is not None:
            scores = scores + added(positions, block.positions)
        keep = block.mask if allowed is None else block.mask & allowed(positions, block.positions)
        keep = jnp.broadcast_to(keep, scores.shape)
        scores = form.transform(jnp.where(keep, scores, 0.0))
        return scores, keep & (scores > -jnp.inf)

    form = (
        normalize if isinstance(normalize, Form) else form_of(normalize, jax.eval_shape(score, query, blocks.keys[0]))
    )
    block_at = lambda i: jax.tree.map(lambda x: x[i], blocks)  # noqa: E731
    # Parameters inside `score` and `bias` become arguments, so that the rule can differentiate them.
    all_scores, hoisted = jax.closure_convert(lambda query, block: scores_of(query, places, block), query, block_at(0))
    constants = tuple(hoisted), form.parameters
    attend, weigh = _rule(form, all_scores, num_keys)
    context, tau = attend(constants, query, blocks)
    share = jnp.ones_like(tau) if form.share is None else form.share(tau, *form.parameters)
    context = context if form.share is None else context * share

    def weights(block: Block, queries: Array | None = None) -> Scores:
        if queries is None:
            return weigh(constants, query, tau, block) * share
        scores, keep = scores_of(query[..., queries, :], queries[:, None], block, queries)
        return _weights(form, scores, keep, tau[..., queries, :], form.parameters) * share[..., queries, :]

    def reduced(part: Callable[[Block], Array], stacked: bool = False) -> Array:
        return jax.lax.map(jax.checkpoint(part), blocks) if stacked else _over(part, blocks)

    return Blockwise(context.astype(values.dtype), tau, reduced, weights, num_keys)


def _rule(form: Form, all_scores: Callable, num_keys: int) -> tuple[Callable, Callable]:
    """Returns attend(constants, query, blocks) -> (context, tau), with its derivative, and the weights of a block."""

    def weigh(constants: PyTree, query: Array, tau: Array, block: Block) -> Scores:
        return _weights(form, *all_scores(query, block, *constants[0]), tau, constants[1])

    def merged(floats: PyTree, blocks: Block) -> Block:
        return blocks._replace(keys=floats[0], values=floats[1], bias=floats[2])

    @jax.custom_jvp
    def attend(constants: PyTree, query: Array, blocks: Block) -> tuple[Array, Array]:
        masked = lambda block: _masked(*all_scores(query, block, *constants[0]))  # noqa: E731
        if form.is_softmax:
            return _online_softmax(masked, blocks)
        tau = _threshold(form, masked, blocks, num_keys, constants[1])
        return _over(lambda block: _product(weigh(constants, query, tau, block), block.values), blocks), tau

    @attend.defjvp
    def attend_jvp(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        constants, query, blocks = primals
        context, tau = attend(*primals)
        floats = blocks.keys, blocks.values, blocks.bias
        along = tangents[0], tangents[1], (tangents[2].keys, tangents[2].values, tangents[2].bias)
        fixed = blocks._replace(keys=None, values=None, bias=None)

        def change(part: tuple) -> tuple[Array, Array]:
            floats, along_floats, fixed = part
            block = merged(floats, fixed)
            at = lambda constants, query, floats: weigh(constants, query, tau, merged(floats, fixed))  # noqa: E731
            w, dw = jax.jvp(at, (constants, query, floats), (along[0], along[1], along_floats))
            return jnp.sum(dw, axis=-1, keepdims=True), _product(dw, block.values) + _product(w, along_floats[1])

        dw, moved = _over(change, (floats, along[2], fixed))
        if form.is_softmax:
            return (context, tau), (moved - dw * context, dw)
        if form.solve is None or form.of_mask:
            return (context, tau), (moved, jnp.zeros_like(tau))

        def slopes(block: Block) -> tuple[Array, Array]:
            at = lambda tau: weigh(constants, query, tau, block)  # noqa: E731
            slope = -jax.jvp(at, (tau,), (jnp.ones_like(tau),))[1]
            return jnp.sum(slope, axis=-1, keepdims=True), _product(slope, block.values)

        total, mean = _over(slopes, blocks)
        dtau = dw / jnp.maximum(total, NEGLIGIBLE)
        return (context, tau), (moved - dtau * mean, dtau)

    return attend, weigh


def _weights(form: Form, scores: Scores, keep: Array, tau: Array, parameters: tuple[Array, ...]) -> Scores:
    """Computes f(scores, tau), and 0 for masked keys."""
    return jnp.where(keep, form.weigh(jnp.where(keep, scores, tau), tau, *parameters), 0.0)


def _product(weights: Scores, values: Array) -> Array:
    return jnp.matmul(weights.astype(values.dtype), values, preferred_element_type=weights.dtype)


def _over(part: Callable, blocks: PyTree) -> PyTree:
    """Sums a function of a block over all blocks; it is computed again in a derivative."""
    shapes = jax.eval_shape(part, jax.tree.map(lambda x: x[0], blocks))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    add = lambda so_far, block: (jax.tree.map(jnp.add, so_far, jax.checkpoint(part)(block)), None)  # noqa: E731
    return jax.lax.scan(add, zeros, blocks)[0]


def _split(keys: Array, values: Array, bias: Array | None, mask: Array | None, size: int) -> Block:
    """Cuts the axis of keys into blocks, which become the first axis."""
    num_keys = keys.shape[-2]
    num_blocks = max(1, -(-num_keys // size))
    missing = num_blocks * size - num_keys

    def cut(x: Array, axis: int) -> Array:
        x = jnp.pad(x, [(0, missing if i == axis % x.ndim else 0) for i in range(x.ndim)])
        x = x.reshape(*x.shape[: axis % x.ndim], num_blocks, size, *x.shape[axis % x.ndim + 1 :])
        return jnp.moveaxis(x, axis % (x.ndim - 1), 0)

    per_key = lambda x: jnp.broadcast_to(x, (*x.shape[:-1], num_keys)) if x.ndim else jnp.full(num_keys, x)  # noqa: E731
    mask = jnp.ones((1, num_keys), bool) if mask is None else per_key(jnp.asarray(mask))
    positions = jnp.arange(num_blocks * size).reshape(num_blocks, size)
    return Block(
        keys=cut(keys, -2),
        values=cut(values, -2),
        bias=None if bias is None else cut(per_key(jnp.asarray(bias)), -1),
        mask=cut(mask, -1),
        positions=positions,
    )


def _rows(x: Array | None, chosen: Array) -> Array | None:
    """Returns chosen rows of an array [..., q, k], or all of [..., 1, k] and [k]."""
    return x if x is None or x.ndim < 2 or x.shape[-2] == 1 else x[..., chosen, :]


def _masked(scores: Scores, keep: Array) -> Scores:
    return jnp.where(keep, scores, -jnp.inf)


def _online_softmax(masked: Callable, blocks: Block) -> tuple[Array, Array]:
    """Computes (context, logsumexp) in one scan: sums are rescaled when a larger score comes."""

    def step(so_far, block):
        largest, total, context = so_far
        scores = masked(block)
        new = jnp.maximum(largest, jnp.max(scores, axis=-1, keepdims=True))
        finite = jnp.where(new > -jnp.inf, new, 0.0)
        shrunk, w = jnp.exp(largest - finite), jnp.exp(scores - finite)
        total = total * shrunk + jnp.sum(w, axis=-1, keepdims=True)
        return (new, total, context * shrunk + _product(w, block.values)), None

    first = jax.tree.map(lambda x: x[0], blocks)
    scores = jax.eval_shape(masked, first)
    context = jax.eval_shape(_product, scores, first.values)
    zeros = jnp.zeros((*scores.shape[:-1], 1), scores.dtype)
    start = zeros - jnp.inf, zeros, jnp.zeros(context.shape, context.dtype)
    (largest, total, context), _ = jax.lax.scan(step, start, blocks)
    empty = total == 0
    total = jnp.where(empty, 1.0, total)
    return context / total, jnp.where(empty, 0.0, largest + jnp.log(total))


def _threshold(form: Form, masked: Callable, blocks: Block, num_keys: int, parameters: tuple[Array, ...]) -> Array:
    """Finds tau [..., q, 1]; zeros where the normalizer has none."""
    scores = jax.eval_shape(masked, jax.tree.map(lambda x: x[0], blocks))
    zeros = jnp.zeros((*scores.shape[:-1], 1), scores.dtype)
    if form.solve is None:
        return zeros

    def higher(so_far, block):
        return jnp.maximum(so_far, jnp.max(masked(block), axis=-1, keepdims=True)), None

    largest, _ = jax.lax.scan(higher, zeros - jnp.inf, blocks)
    empty = largest == -jnp.inf
    largest = jnp.where(empty, 0.0, largest)

    def reduce(function: Callable[[Scores], PyTree]) -> PyTree:
        sums = lambda block: jax.tree.map(lambda x: jnp.sum(x, -1, keepdims=True), function(masked(block)))  # noqa: E731
        return _over(sums, blocks)

    return jnp.where(empty, 0.0, form.solve(reduce, largest, num_keys, *parameters))
