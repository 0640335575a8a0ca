"""Attention over many keys, block by block, in memory linear in the sequence length, without a [q, k] matrix.

A weight is a function of its score and of one number tau per query, weights_i = f(scores_i, tau); see
normalizers/forms.py. A first scan over blocks of keys finds tau, and a second one sums f(scores, tau) values. The
scores of a block are computed when needed, and again in the derivative. Softmax needs one scan for both (Milakov &
Gimelshein 2018, arXiv 1805.02867; Dao 2022, arXiv 2205.14135), entmax one for each step of Newton's method.

One derivative serves every score and normalizer. With w = f(scores, tau) and slope = -df / dtau,

    d tau = sum_i dw_i / sum_i slope_i        dw: the derivative of f at a fixed tau
    d context = sum_i (dw_i values_i + w_i d values_i) - d tau sum_i slope_i values_i

It consists of scans that can be differentiated again, so derivatives of any order are right.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer, eval_jaxpr

from attn_jax.attention import loops
from attn_jax.attention.arguments import check_memory
from attn_jax.attention.masks import (
    check_additive,
    check_fits,
    check_mask,
    checked_masks,
    joint_mask,
    mask_at,
    same_axes,
)
from attn_jax.attention.names import from_name
from attn_jax.attention.normalizers import NORMALIZERS, Normalizer, NormalizerModule, as_normalizer, with_forms
from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.normalizers.entmax import NEGLIGIBLE
from attn_jax.attention.normalizers.forms import Form
from attn_jax.attention.scores import SCORES
from attn_jax.attention.scores.base import Score, as_function
from attn_jax.types import Array, Bool, Float, Int, PyTree, floating, wide

Scores = Float[Array, "... q k"]
PerQuery = Float[Array, "... q"]
ScoreFunction = Callable[[Array, Array], Scores]  # (query, some keys) -> scores
PositionFunction = Callable[[Int[Array, "q 1"], Int[Array, " k"]], Array]  # positions -> [..., q, k]

ConvertedScores = Callable[..., tuple[Scores, Bool[Array, "... q k"]]]  # (constants, query, block) -> scores, mask


class Block(NamedTuple):
    """A block of keys, with the values, bias, mask and positions of these keys."""

    keys: Float[Array, "... k d"]
    values: Float[Array, "... k dv"]
    bias: Float[Array, "... #q k"] | None
    mask: Bool[Array, "... #q k"]  # False for keys that only fill the last block
    positions: Int[Array, " k"]


class Constants(NamedTuple):
    """Arrays that the custom derivative takes as arguments: arrays that the scores close over, and parameters."""

    floats: tuple[Array, ...]  # floating-point arrays, which have a derivative
    others: tuple[Array, ...]  # other arrays, such as masks and positions
    parameters: tuple[Array, ...]  # of the normalizer


class BlockScores(NamedTuple):
    """The scores of queries against a block of keys, and the mask of keys that may have weight."""

    score: ScoreFunction
    bias_at: PositionFunction | None  # None: the bias is an array in the block, or absent
    mask_at: PositionFunction | None  # combined with the mask of the block
    transform: Callable[[Scores], Scores]  # applied to the scores by the normalizer

    def __call__(self, query: Array, places: Int[Array, "q 1"], block: Block) -> tuple[Scores, Bool[Array, "... q k"]]:
        """Computes the scores of queries at these positions, and a mask that is False for keys without weight."""
        scores = wide(self.score(query, block.keys))
        if block.bias is not None:
            scores = jnp.add(*same_axes(scores, block.bias))
        if self.bias_at is not None:
            bias = self.bias_at(places, block.positions)
            check_additive(bias)
            scores = jnp.add(*same_axes(scores, bias))
        keep = block.mask
        if self.mask_at is not None:
            allowed = mask_at(self.mask_at, places, block.positions)
            check_mask(allowed, scores.shape)
            keep = jnp.logical_and(*same_axes(keep, allowed))
        keep = jnp.broadcast_to(keep, scores.shape) & (scores > -jnp.inf)
        return self.transform(jnp.where(keep, scores, 0.0)), keep

    def of_rows(self, query: Array, block: Block, rows: Int[Array, " r"]) -> tuple[Scores, Bool[Array, "... r k"]]:
        """Computes the scores and mask for the queries with these row numbers."""
        block = block._replace(bias=_rows(block.bias, rows), mask=_rows(block.mask, rows))
        return self(query[..., rows, :], rows[:, None], block)


class Kept(NamedTuple):
    """Blocks of keys and the function of their weights, for statistics; functions cannot leave jax.jit."""

    blocks: Block
    weights: Callable[..., Scores]  # (block, rows=None) -> the weights of its keys
    num_keys: int


@jax.tree_util.register_pytree_node_class
class Blockwise:
    """The result of `blockwise_attention`: the context, and statistics of the weights in O(q block + k) memory.

    The memory is for one block of weights and the result; `rows` returns r x k numbers. As a pytree it is the context
    and the threshold: a function under jit or vmap that needs statistics returns those.

    Attributes:
        context: [..., q, dv].
        threshold: tau [..., q]; for softmax the logsumexp of the scores; 0 if the form has no tau.
    """

    def __init__(self, context: Float[Array, "... q dv"], threshold: PerQuery, kept: Kept | None = None):
        self.context, self.threshold, self._kept = context, threshold, kept

    @property
    def _of(self) -> Kept:
        if self._kept is None:
            raise ValueError(
                "statistics of blockwise attention are computed in the function that calls it, before jit or vmap "
                "returns: return found.context, found.entropy() from there"
            )
        return self._kept

    def tree_flatten(self) -> tuple[tuple[Array, Array], None]:
        return (self.context, self.threshold), None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: tuple[Any, Any]) -> "Blockwise":
        return cls(*leaves)

    def rows(self, queries: Sequence[int] | Int[Array, " r"]) -> Float[Array, "... r k"]:
        """Returns the weights of the given queries; -1 is the last query.

        Raises:
            IndexError: a query does not exist; not checked inside jit, where the numbers are unknown.
        """
        number = self.threshold.shape[-1]
        if not any(isinstance(x, Tracer) for x in jax.tree.leaves(queries)):
            if outside := [int(i) for i in np.asarray(queries) if not -number <= i < number]:
                raise IndexError(f"rows of the queries {outside} are asked for, and there are {number} queries")
        index = jnp.asarray(queries) % number
        return self._by_key(lambda block: self._of.weights(block, index))

    def column_sums(self) -> Float[Array, "... k"]:
        """Returns the sum of the weights of each key over all queries."""
        return self._by_key(lambda block: jnp.sum(self._of.weights(block), axis=-2))

    def first(self) -> PerQuery:
        """Returns the weight of the first key, the attention sink of many language models."""
        return _over(
            lambda block: jnp.sum(jnp.where(block.positions == 0, self._of.weights(block), 0), axis=-1), self._of.blocks
        )

    def entropy(self) -> PerQuery:
        """Returns the entropy of the weights in nats, -sum_i w_i log w_i."""

        def part(block: Block) -> PerQuery:
            w = self._of.weights(block)
            return -jnp.sum(w * jnp.log(jnp.where(w > 0, w, 1.0)), axis=-1)

        return _over(part, self._of.blocks)

    def _by_key(self, part: Callable[[Block], Float[Array, "... k"]]) -> Float[Array, "... k"]:
        found = jax.lax.map(jax.checkpoint(part), self._of.blocks)  # [blocks, ..., block]
        found = jnp.moveaxis(found, 0, -2)
        return found.reshape(*found.shape[:-2], found.shape[-2] * found.shape[-1])[..., : self._of.num_keys]


@checked_masks
def blockwise_attention(
    score: ScoreFunction | Score | str,
    query: Float[Array, "... q dq"],
    keys: Float[Array, "... k dk"],
    values: Float[Array, "... k dv"],
    *,
    key_mask: Bool[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | PositionFunction | None = None,
    normalize: Callable[..., Array] | Form | str = softmax,
    bias: Float[Array, "... #q k"] | PositionFunction | None = None,
    block_size: int = 512,
) -> Blockwise:
    """Computes context = normalize(score(query, keys) + bias) values in O(q block_size + k) memory.

        >>> causal = lambda query, key: key <= query
        >>> found = blockwise_attention("scaled_dot", query, keys, values, mask=causal, block_size=2)
        >>> found.context.shape, found.entropy().shape
        ((5, 8), (5,))

    Padding and a causal order together are key_mask=..., mask=attn_jax.causal.

    Args:
        score: a function (query [..., q, dq], keys [..., k, dk]) -> [..., q, k], for any part of the keys, which may
            use parameters and gives them gradients; or a score without parameters, or its name from SCORES. Scores
            should stay below about 1e4: tau is one number as large as they are, so in float32 the weights have a
            relative error of 6e-8 times the largest score.
        query: [..., q, dq].
        keys: [..., k, dk].
        values: [..., k, dv].
        key_mask: [..., k], True for keys that every query may attend to.
        mask: True where a query may attend to a key: an array [..., q, k], or a function of positions (query [q, 1],
            key [k]), which needs no array of this size. A key needs to be True in both masks; see masks.py.
        normalize: a normalizer that has a form, its name, or a Form.
        bias: added to the scores; an array or a function of positions, as for `mask`. A key with bias -inf is masked.
        block_size: number of keys whose scores are computed at a time.

    Raises:
        ValueError: the normalizer is unknown or needs more than one number per row; the mask is not boolean, or the
            bias is; shapes do not fit; the block size is below 1.
        TypeError: the normalizer is a class instead of an object.
    """
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}; expected at least 1")
    normalizer = from_name("normalize", normalize, NORMALIZERS)
    check_memory(keys, values, key_mask)
    if isinstance(score, Score | str):
        score = as_function(from_name("score", score, SCORES))
    query, keys, values = floating(query), floating(keys), floating(values)
    scores = jax.eval_shape(score, query, keys)
    allowed = jnp.broadcast_to(True if key_mask is None else key_mask, keys.shape[:-1])
    allowed = joint_mask(allowed, None if callable(mask) else mask, _shape_with(bias, scores.shape))
    blocks = _cut(keys, values, bias, allowed, block_size)
    form = normalizer if isinstance(normalizer, Form) else _form_of(as_normalizer(normalizer), scores)
    bias_at, mask_at = (x if callable(x) else None for x in (bias, mask))
    scores_of, places = BlockScores(score, bias_at, mask_at, form.transform), jnp.arange(query.shape[-2])[:, None]
    one = jax.tree.map(lambda x: x[0], blocks)
    all_scores, floats, others = _converted(lambda query, block: scores_of(query, places, block), query, one)
    constants = Constants(floats, others, form.parameters)
    attend, weigh = _rule(form, all_scores, keys.shape[-2])
    context, tau = attend(constants, query, blocks)
    share = jnp.ones_like(tau) if form.share is None else form.share(tau, *form.parameters)
    context = context if form.share is None else context * share

    def weights(block: Block, rows: Array | None = None) -> Scores:
        if rows is None:
            return weigh(constants, query, block, tau) * share
        scores, keep = scores_of.of_rows(query, block, rows)
        return _weights(form, scores, keep, tau[..., rows, :], form.parameters) * share[..., rows, :]

    return Blockwise(context.astype(values.dtype), tau[..., 0], Kept(blocks, weights, keys.shape[-2]))


def _form_of(normalizer: Normalizer | NormalizerModule, scores: jax.ShapeDtypeStruct) -> Form:
    """Returns the form of a normalizer.

    Raises:
        ValueError: the normalizer has no form.
    """
    if not normalizer.has_form:
        raise ValueError(f"{normalizer.label} cannot be computed block by block; expected {with_forms()}")
    return normalizer.form_of(scores)


def _shape_with(bias: Array | PositionFunction | None, scores: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape [..., q, k] of scores plus bias; raises a ValueError if the bias does not fit."""
    if bias is None or callable(bias):
        return scores
    check_additive(bias)
    check_fits("bias", bias.shape, scores)
    return jnp.broadcast_shapes(bias.shape, scores)


def _converted(
    function: Callable[..., PyTree], *example: PyTree
) -> tuple[Callable[..., Any], tuple[Array, ...], tuple[Array, ...]]:
    """Turns the arrays that a function closes over into arguments: (f(constants, *arguments), floats, others).

    The custom derivative can then differentiate parameters inside `score` and `bias`. jax.closure_convert keeps masks
    and positions in the closure. Here they are arguments too, since the derivative may be called after the trace that
    made them has ended, for example in the gradient of a function under jit, scan or remat.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*example)
    traced = [i for i, x in enumerate(closed.consts) if isinstance(x, Tracer)]
    floats = [i for i in traced if jnp.issubdtype(closed.consts[i].dtype, jnp.inexact)]
    others = [i for i in traced if i not in floats]

    def call(constants: Constants, *arguments: PyTree) -> PyTree:
        consts = dict(enumerate(closed.consts))
        consts |= zip(floats + others, constants.floats + constants.others, strict=True)
        leaves = eval_jaxpr(closed.jaxpr, list(consts.values()), *jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

    return call, tuple(closed.consts[i] for i in floats), tuple(closed.consts[i] for i in others)


def _rule(
    form: Form, all_scores: ConvertedScores, num_keys: int
) -> tuple[Callable[..., tuple[Array, Array]], Callable[..., Scores]]:
    """Returns attend(constants, query, blocks) -> (context, tau), with its derivative, and the weights of a block."""

    def weigh(constants: Constants, query: Array, block: Block, tau: Array) -> Scores:
        return _weights(form, *all_scores(constants, query, block), tau, constants.parameters)

    @jax.custom_jvp
    def attend(constants: Constants, query: Array, blocks: Block) -> tuple[Array, Array]:
        masked = lambda block: _masked(*all_scores(constants, query, block))  # noqa: E731
        if form.is_softmax:
            return _online_softmax(masked, blocks)
        tau = _threshold(form, masked, blocks, num_keys, constants.parameters)
        return _over(lambda block: _product(weigh(constants, query, block, tau), block.values), blocks), tau

    @attend.defjvp
    def attend_jvp(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        constants, query, blocks = primals
        context, tau = attend(*primals)
        # The derivative at fixed tau; the module docstring has the equations for the terms of d tau added below.
        dw, moved = _change(lambda *primals: weigh(*primals, tau), primals, tangents)
        # Softmax: weights sum to one, so slope = w: sum_i slope_i = 1 and sum_i slope_i values_i = context.
        if form.is_softmax:
            return (context, tau), (moved - dw * context, dw)
        # Without tau, or with a tau that depends only on the mask, there is no term of d tau.
        if form.solve is None or form.of_mask:
            return (context, tau), (moved, jnp.zeros_like(tau))
        total, mean = _slopes(lambda tau, block: weigh(constants, query, block, tau), tau, blocks)
        dtau = dw / jnp.maximum(total, NEGLIGIBLE)
        return (context, tau), (moved - dtau * mean, dtau)

    return attend, weigh


def _change(weights: Callable[..., Scores], primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """Sums dw and dw values + w d values over all keys at fixed tau, for w = weights(constants, query, block)."""
    # Only floating-point arrays have tangents, so masks and positions are kept outside of jax.jvp.
    (constants, query, blocks), (along_constants, along_query, along_blocks) = primals, tangents
    floats = lambda blocks: (blocks.keys, blocks.values, blocks.bias)  # noqa: E731
    with_floats = lambda fixed, floats: Block(*floats, fixed.mask, fixed.positions)  # noqa: E731
    of = lambda constants: (constants.floats, constants.parameters)  # noqa: E731
    with_constants = lambda moving: Constants(moving[0], constants.others, moving[1])  # noqa: E731

    def change(part: tuple) -> tuple[Array, Array]:
        moving, along, fixed = part
        at = lambda floats, query, moving: weights(with_constants(floats), query, with_floats(fixed, moving))  # noqa: E731
        w, dw = jax.jvp(at, (of(constants), query, moving), (of(along_constants), along_query, along))
        return jnp.sum(dw, axis=-1, keepdims=True), _product(dw, moving[1]) + _product(w, along[1])

    fixed = blocks._replace(keys=None, values=None, bias=None)
    return _over(change, (floats(blocks), floats(along_blocks), fixed))


def _slopes(weights: Callable[..., Scores], tau: Array, blocks: Block) -> tuple[Array, Array]:
    """Sums slope and slope values over all keys: slope = -d weights(tau, block) / d tau."""

    def slopes(block: Block) -> tuple[Array, Array]:
        slope = -jax.jvp(lambda tau: weights(tau, block), (tau,), (jnp.ones_like(tau),))[1]
        return jnp.sum(slope, axis=-1, keepdims=True), _product(slope, block.values)

    return _over(slopes, blocks)


def _weights(form: Form, scores: Scores, keep: Array, tau: Array, parameters: tuple[Array, ...]) -> Scores:
    """Computes f(scores, tau); 0 for masked keys."""
    return jnp.where(keep, form.weigh(jnp.where(keep, scores, tau), tau, *parameters), 0.0)


def _product(weights: Scores, values: Array) -> Array:
    return jnp.matmul(weights.astype(values.dtype), values, preferred_element_type=weights.dtype)


def _over(part: Callable, blocks: PyTree) -> PyTree:
    """Sums a function of a block over all blocks; the derivative computes it again instead of storing it."""
    shapes = jax.eval_shape(part, jax.tree.map(lambda x: x[0], blocks))
    zeros = jax.tree.map(jnp.zeros_like, shapes)
    add = lambda so_far, block: (jax.tree.map(jnp.add, so_far, jax.checkpoint(part)(block)), None)  # noqa: E731
    return loops.scan(add, zeros, blocks)[0]


def _cut(
    keys: Array,
    values: Array,
    bias: Array | PositionFunction | None,
    mask: Array,
    block_size: int,
) -> Block:
    """Splits the axis of keys into blocks, with the axis of blocks first."""
    bias = None if callable(bias) else bias
    num_keys = keys.shape[-2]
    size = max(1, min(block_size, num_keys))
    num_blocks = max(1, -(-num_keys // size))
    missing = num_blocks * size - num_keys

    def cut(x: Array, axis: int) -> Array:
        x = jnp.pad(x, [(0, missing if i == axis % x.ndim else 0) for i in range(x.ndim)])
        x = x.reshape(*x.shape[: axis % x.ndim], num_blocks, size, *x.shape[axis % x.ndim + 1 :])
        return jnp.moveaxis(x, axis % (x.ndim - 1), 0)

    per_key = lambda x: jnp.broadcast_to(x, (*x.shape[:-1], num_keys)) if x.ndim else jnp.full(num_keys, x)  # noqa: E731
    positions = jnp.arange(num_blocks * size).reshape(num_blocks, size)
    return Block(
        keys=cut(keys, -2),
        values=cut(values, -2),
        bias=None if bias is None else cut(per_key(jnp.asarray(bias)), -1),
        mask=cut(per_key(mask), -1),
        positions=positions,
    )


def _rows(x: Array | None, chosen: Array) -> Array | None:
    """Returns the chosen rows of an array [..., q, k]; arrays [..., 1, k] and [k], for all rows, are unchanged."""
    return x if x is None or x.ndim < 2 or x.shape[-2] == 1 else x[..., chosen, :]


def _masked(scores: Scores, keep: Array) -> Scores:
    return jnp.where(keep, scores, -jnp.inf)


def _online_softmax(masked: Callable, blocks: Block) -> tuple[Array, Array]:
    """Computes (context, logsumexp) in one scan, in which sums are rescaled whenever a larger score is found."""

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
    (largest, total, context), _ = loops.scan(step, start, blocks)
    empty = total == 0
    total = jnp.where(empty, 1.0, total)
    return context / total, jnp.where(empty, 0.0, largest + jnp.log(total))


def _threshold(form: Form, masked: Callable, blocks: Block, num_keys: int, parameters: tuple[Array, ...]) -> Array:
    """Finds tau [..., q, 1]; zeros if the form has no tau."""
    scores = jax.eval_shape(masked, jax.tree.map(lambda x: x[0], blocks))
    zeros = jnp.zeros((*scores.shape[:-1], 1), scores.dtype)
    if form.solve is None:
        return zeros

    def higher(so_far, block):
        return jnp.maximum(so_far, jnp.max(masked(block), axis=-1, keepdims=True)), None

    largest, _ = loops.scan(higher, zeros - jnp.inf, blocks)
    empty = largest == -jnp.inf
    largest = jnp.where(empty, 0.0, largest)

    def reduce(function: Callable[[Scores], PyTree]) -> PyTree:
        sums = lambda block: jax.tree.map(lambda x: jnp.sum(x, -1, keepdims=True), function(masked(block)))  # noqa: E731
        return _over(sums, blocks)

    return jnp.where(empty, 0.0, form.solve(reduce, largest, num_keys, *parameters))
