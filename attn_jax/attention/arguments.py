"""Checks of the arrays that attention is called with. Errors name the array, its shape and the expected shape."""

from typing import Any

import jax
import jax.numpy as jnp

from attn_jax.attention.masks import check_additive, check_fits, check_key_mask, scores_shape
from attn_jax.types import Array


def check_array(name: str, x: Any, axes: str) -> None:
    """Checks that x is an array with at least the named axes, such as "queries, features".

    Raises:
        TypeError: x is not an array.
        ValueError: x has too few axes.
    """
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise TypeError(f"{name}: expected an array [..., {axes}], got a {type(x).__name__}; jnp.asarray makes one")
    if len(x.shape) < len(axes.split(", ")):
        raise ValueError(f"{name}: expected [..., {axes}], got the shape {x.shape}")


def check_memory(keys: Any, values: Any, key_mask: Any) -> None:
    """Checks that each key has one value and one entry of the mask.

    Raises:
        TypeError, ValueError: the arrays do not fit; see check_array.
    """
    check_array("keys", keys, "keys, features")
    check_array("values", values, "keys, features")
    if values.shape[-2] != keys.shape[-2]:
        raise ValueError(
            f"values of shape {values.shape} do not fit keys of shape {keys.shape}: {values.shape[-2]} values, "
            f"{keys.shape[-2]} keys; expected one value for each key"
        )
    _check_leading("values", values, keys)
    if key_mask is not None:
        check_key_mask(key_mask, keys)


def check_no_more(values: Any, key_mask: Any) -> None:
    """Raises a ValueError if values or a key mask are passed together with a Memory, which contains both."""
    if values is not None or key_mask is not None:
        raise ValueError("a Memory has its values and its key_mask already; expected values=None and key_mask=None")


def check_query(query: Any, keys: Array) -> None:
    """Checks that queries have an axis of queries, and leading axes that broadcast with the leading axes of the keys.

    Raises:
        TypeError, ValueError: the query does not fit the keys; see check_array.
    """
    check_array("query", query, "queries, features")
    _check_leading("queries", query, keys)


def _check_leading(name: str, x: Array, keys: Array) -> None:
    """Raises a ValueError if the axes before the last two do not broadcast with the leading axes of the keys."""
    try:
        jnp.broadcast_shapes(x.shape[:-2], keys.shape[:-2])
    except ValueError:
        raise ValueError(
            f"{name} of shape {x.shape} and keys of shape {keys.shape}: the axes before the last two do not "
            "broadcast; expected the same batch and heads, or 1"
        ) from None


def check_rng(rng: Any) -> None:
    """Raises a TypeError for an rng that is not a key of jax.random, such as an integer seed."""
    if rng is None or (isinstance(rng, jax.Array) and jnp.issubdtype(rng.dtype, jax.dtypes.prng_key)):
        return
    if not (getattr(rng, "dtype", None) == jnp.uint32 and rng.ndim):  # a key of jax.random.PRNGKey
        raise TypeError(f"rng is {rng!r:.40}; expected a key, such as jax.random.key(0)")


def check_bias(bias: Any, query: Array, keys: Array) -> None:
    """Checks that a bias is not a mask, and broadcasts to the scores [..., queries, keys].

    Raises:
        TypeError: the bias is not an array.
        ValueError: the bias is boolean, or does not broadcast; see check_array.
    """
    check_array("bias", bias, "queries, keys")
    check_additive(bias)
    check_fits("bias", bias.shape, scores_shape(query, keys))
