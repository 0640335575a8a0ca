"""Pytrees as nested dicts of numpy arrays, and back."""

from typing import Any

import flax
import jax
import numpy as np

from attn_jax.errors import UserError
from attn_jax.training.parallel import is_key
from attn_jax.types import PyTree


def flatten(tree: PyTree) -> dict[tuple[str, ...], Any]:
    """Returns {path: leaf}."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {tuple(jax.tree_util.keystr((key,), simple=True) for key in path): x for path, x in leaves}


def to_numpy(x: Any) -> np.ndarray:
    """Returns a numpy array: a copy of a device array, the bits of typed keys."""
    x = jax.random.key_data(x) if is_key(x) else x
    return np.array(x) if isinstance(x, jax.Array) else np.asarray(x)


def fit_into(target: PyTree, stored: dict, where: str) -> PyTree:
    """Puts stored arrays into the structure of `target`.

    Args:
        target: a pytree of arrays or shapes.
        stored: a nested dict of numpy arrays, as `flatten` names them; typed keys are bits.
        where: the checkpoint, for the error.

    Raises:
        UserError: an array is missing, superfluous, or has another shape or type.
    """
    arrays, wanted = flax.traverse_util.flatten_dict(stored), flatten(target)
    for path in sorted(arrays.keys() | wanted.keys()):
        there = describe(arrays[path]) if path in arrays else "nothing"
        here = describe(wanted[path]) if path in wanted else "nothing"
        if there != here:
            raise UserError(f"checkpoint {where} is of another configuration: {'/'.join(path)} is {there}, not {here}")

    def put(path, x):
        if not is_key(x):
            return arrays[path]
        impl = jax.random.key_impl(x) if isinstance(x, jax.Array) else None  # None: the default
        return jax.random.wrap_key_data(arrays[path], impl=impl)

    return jax.tree.unflatten(jax.tree.structure(target), [put(path, x) for path, x in wanted.items()])


def describe(x: Any) -> str:
    """Formats type and shape, such as float32[3,4]; for typed PRNG keys, type and shape of their bits."""
    x = jax.eval_shape(jax.random.key_data, x) if is_key(x) else x
    return f"{np.dtype(x.dtype).name}[{','.join(map(str, np.shape(x)))}]"
