"""Loops whose initial carry may be a constant, also within `jax.shard_map` and on meshes of Explicit axes.

There the type of an array includes the mesh axes over which it varies or is divided, and a loop needs a carry of one
type. Constant zeros vary over no axis, but after a step the carry varies over the axes of the data.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

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
        after, flags = jax.eval_shape(lambda start: (after := body(start), jax.tree.map(_flag, after)), start)
        start = jax.tree.map(_typed, start, after, flags)
    return start


def vary(tree: PyTree, *like: PyTree) -> PyTree:
    """Returns arrays that vary over all mesh axes of `like`, so that a rule of derivatives may add them.

    Their gradient is summed over these axes.
    """
    if not _on_mesh():
        return tree
    flags = [_flag(x) for x in jax.tree.leaves((tree, *like))]
    return jax.tree.map(functools.partial(_same, functools.reduce(jnp.logical_or, flags)), tree)


def by_compiler(function: Callable, *, whole: bool = False) -> Callable:
    """Lets the compiler place the arrays within a pure function of arrays, on a mesh of Explicit axes too.

    What it returns lies where its first argument on such an axis does, with the same leading axes; or `whole` on each
    device.
    """

    @functools.wraps(function)
    def call(*arrays: Any) -> PyTree:
        specs = [_explicit(x) for x in jax.tree.leaves(arrays)]
        spec = next((spec for spec in specs if spec), None)
        if spec is None:
            return function(*arrays)
        return jax.sharding.auto_axes(function, out_sharding=P() if whole else spec)(*arrays)

    return call


def lookup(table: Array | np.ndarray, index: Array) -> Array:
    """Computes table[index], where the index is."""
    return by_compiler(lambda index, table: jnp.asarray(table)[index])(index, table)


def everywhere(x: Array) -> Array:
    """Returns x whole on each device of a mesh of Explicit axes."""
    return jax.reshard(x, P()) if _explicit(x) else x


def _explicit(x: Any) -> P:
    """Returns the axes of an Explicit mesh that x lies on, without the last ones that it is not divided by."""
    spec = jax.typeof(x).sharding.spec
    return P(*spec[: max((i + 1 for i, axis in enumerate(spec) if axis is not None), default=0)])


def _on_mesh() -> bool:
    return not jax.sharding.get_abstract_mesh().empty


def _flag(x: Any) -> Array:
    """Returns a number that varies over the mesh axes that x does."""
    return jnp.zeros_like(x, bool, shape=())


def _typed(x: Any, like: jax.ShapeDtypeStruct, flag: jax.ShapeDtypeStruct) -> Array:
    """Returns x where `like` is: it varies over the same axes, and lies on the same Explicit ones."""
    x = _same(jnp.zeros_like(flag), x)
    return jax.reshard(x, like.sharding.spec) if like.sharding is not None else x


def _same(where: Array, x: Any) -> Array:
    """Returns x, in a type that also varies over the mesh axes of `where`."""
    return jnp.where(where, x, x)
