"""Loops that may start from constants, also within `jax.shard_map` and its default checks.

There the type of an array says over which axes of the mesh it varies, and a loop carries one type. Zeros vary over
none, and what a step adds to them varies as its data do.
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
    """Returns the start of a loop in the types of what `body` makes of it."""
    if not _on_mesh():
        return start
    for _ in range(3):  # what one step carries over may be made of constants, too
        after = jax.eval_shape(body, start)
        start = jax.tree.map(lambda x, like: _same(jnp.zeros_like(like, bool, shape=()), x), start, after)
    return start


def vary(tree: PyTree, *like: PyTree) -> PyTree:
    """Returns arrays that vary over all axes over which other ones do, so that a rule of derivatives may add to them.

    Their gradient is summed over these axes.
    """
    if not _on_mesh():
        return tree
    flags = [jnp.zeros_like(x, bool, shape=()) for x in jax.tree.leaves((tree, *like))]
    return jax.tree.map(functools.partial(_same, functools.reduce(jnp.logical_or, flags)), tree)


def _on_mesh() -> bool:
    return not jax.sharding.get_abstract_mesh().empty


def _same(where: Array, x: Any) -> Array:
    """Returns x, in a type that varies as `where` does as well."""
    return jnp.where(where, x, x)
