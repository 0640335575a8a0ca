"""Loops whose initial carry may be a constant, also within `jax.shard_map` and its default checks.

Within shard_map the type of an array includes the mesh axes over which it varies, and a loop needs a carry of one type.
Constant zeros vary over no axis, but after a step the carry varies over the axes of the data.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from attn_jax.types import Array, PyTree


def scan(step: Callable, start: PyTree, xs: PyTree, **options: Any) -> tuple[PyTree, PyTree]:
    """Computes `jax.lax.scan`."""
    if jax.tree.leaves(xs)[0].shape[0]:
        start = carried(lambda carry: step(carry, jax.tree.map(lambda x: x[0], xs))[0], start)
    return jax.lax.scan(step, start, xs, **options)


def while_loop(condition: Callable, body: Callable, start: PyTree) -> PyTree:
    """Computes `jax.lax.while_loop`."""
    return jax.lax.while_loop(condition, body, carried(body, start))


def fori_loop(lower: Any, upper: Any, body: Callable, start: PyTree) -> PyTree:
    """Computes `jax.lax.fori_loop`."""
    return jax.lax.fori_loop(lower, upper, body, carried(functools.partial(body, lower), start))


def carried(body: Callable, start: PyTree) -> PyTree:
    """Returns the initial carry of a loop, converted to the type of the carry that `body` returns."""
    if not _on_mesh():
        return start
    for _ in range(3):  # one step may also return constants, whose type changes in the next step
        after = jax.eval_shape(body, start)
        start = jax.tree.map(lambda x, like: _same(jnp.zeros_like(like, bool, shape=()), x), start, after)
    return start


def vary(tree: PyTree, *like: PyTree) -> PyTree:
    """Returns arrays that vary over all mesh axes of `like`, so that a rule of derivatives may add them.

    Their gradient is summed over these axes.
    """
    if not _on_mesh():
        return tree
    flags = [jnp.zeros_like(x, bool, shape=()) for x in jax.tree.leaves((tree, *like))]
    return jax.tree.map(functools.partial(_same, functools.reduce(jnp.logical_or, flags)), tree)


def _on_mesh() -> bool:
    return not jax.sharding.get_abstract_mesh().empty


def _same(where: Array, x: Any) -> Array:
    """Returns x, in a type that also varies over the mesh axes of `where`."""
    return jnp.where(where, x, x)
