"""Masks of attention: their meaning, how they combine, and the errors for masks that do not fit.

True means "may be attended to". There are two masks, which are keyword arguments:

    key_mask [..., k]    True: every query may attend to this key; False for padding
    mask [..., q, k]     True: this query may attend to this key; an array, or a function of indices such as `causal`

If both are given, a key must be True in both. The meaning of a mask is never guessed from its shape. A mask has one of
two shapes. It has only the axes above, [k] or [q, k], and then serves the whole batch and all heads; or it has as many
axes as the keys without their last axis (key_mask) or as the scores (mask), each of the same size or 1. Any number of
axes in between is an error, since an axis of the batch could match an axis of heads by chance.

Functions of scores [..., k], such as the normalizers, have one mask: [k], or with as many axes as the scores, by the
same rule. Layers of sequences (attn_jax.layers) have a mask [b, n], False for padding. A mask of numbers is never used
as a boolean mask: every function with a mask is decorated with `checked_masks`, and a test checks this.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax.numpy as jnp

from attn_jax.types import Array, Bool, Int

P = ParamSpec("P")
R = TypeVar("R")

AXES = {"key_mask": ("keys",), "mask": ("queries", "keys")}  # last axes of each mask


def checked_masks(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a function refuse masks that are not boolean, and positional masks if its masks are keyword arguments.

    Raises:
        TypeError: too many positional arguments; a mask is not an array (the keyword argument `mask` may be a
            function).
        ValueError: a mask of numbers, such as 0 and -inf for adding to the scores.
    """
    parameters = inspect.signature(function).parameters
    by_place = [name for name, x in parameters.items() if x.kind is x.POSITIONAL_OR_KEYWORD]
    by_name = [name for name in AXES if name in parameters and name not in by_place]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if by_name and len(args) > len(by_place):
            raise TypeError(
                f"{function.__qualname__}: a mask is given by its name, key_mask=... for [..., keys] or mask=... for "
                "[..., queries, keys]"
            )
        given = dict(zip(by_place, args, strict=False)) | kwargs
        for name in AXES:
            mask = given.get(name)
            if mask is not None and not (name == "mask" in by_name and callable(mask)):
                check_boolean(mask, name)
        return function(*args, **kwargs)

    return checked


def check_boolean(mask: Any, name: str = "mask") -> None:
    """Raises a ValueError for a mask that is not boolean, a TypeError for a mask that is not an array."""
    if not hasattr(mask, "dtype"):
        raise TypeError(
            f"{name}: expected a boolean array, or where attention takes one a function such as attn_jax.causal; got "
            f"{mask!r:.40}"
        )
    if mask.dtype != jnp.bool_:
        raise ValueError(
            f"{name} must be boolean (True = may attend), got {mask.dtype}; of ones and zeros it is {name}=x > 0, and "
            "numbers that are added to the scores are bias=..."
        )


def check_additive(bias: Array) -> None:
    """Raises a ValueError for a boolean bias: it should be passed as a mask."""
    if bias.dtype == jnp.bool_:
        raise ValueError(
            "bias is boolean; expected numbers that are added to the scores. True where a query may attend to a key is "
            "a mask: mask=..."
        )


def check_key_mask(key_mask: Any, keys: Array) -> None:
    """Checks that a mask of keys [..., k, d] is boolean, and fits the shape of the keys without the last axis.

    Raises:
        TypeError, ValueError: the mask is not boolean, or does not fit.
    """
    check_boolean(key_mask, "key_mask")
    if key_mask.shape[-1:] != keys.shape[-2:-1] or not _fits(key_mask.shape, keys.shape[:-1], 1):
        raise ValueError(
            f"key_mask of shape {key_mask.shape} does not fit keys of shape {keys.shape}; expected {keys.shape[:-1]}, "
            f"or {keys.shape[-2:-1]} for all; "
            + (_swapped(key_mask, keys.shape) or "a mask of queries and keys is mask=...")
        )


def check_mask(mask: Any, scores: tuple[int, ...], axes: int = 2, of_heads: str = "") -> None:
    """Checks that a mask is boolean and fits scores of this shape: it has their last `axes` (1 or 2) axes, or all.

    `of_heads` completes the message for a mask with one axis more.

    Raises:
        TypeError, ValueError: the mask is not boolean, or does not fit.
    """
    check_boolean(mask)
    if not _fits(mask.shape, scores, axes):
        names = "queries and keys" if axes == 2 else "keys"
        hint = of_heads if mask.ndim == len(scores) + 1 else _swapped(mask, scores)
        hint = hint or ("a mask of keys alone is key_mask=..." if axes == 2 else "")
        raise ValueError(
            f"mask of shape {mask.shape} does not fit {scores}, whose last axes are {names}; expected {scores[-axes:]} "
            f"for all, or {len(scores)} axes, each of this size or 1{hint and '; '}{hint}"
        )


def _swapped(mask: Array, shape: tuple[int, ...]) -> str:
    """Returns advice if the mask would fit with the axes of heads and positions exchanged."""
    if len(shape) < 4 or mask.shape[-1] != shape[-3]:
        return ""
    return "heads come before positions: [batch, positions, heads, features] is jnp.swapaxes(x, -2, -3)"


def _fits(shape: tuple[int, ...], whole: tuple[int, ...], axes: int) -> bool:
    """Tells whether a mask has `axes` axes, or as many as the whole shape, each of the same size or 1."""
    sizes = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) in (axes, len(whole)) and all(size in (1, expected) for size, expected in sizes)


def joint_mask(key_mask: Bool[Array, "... k"], mask: Any, scores: tuple[int, ...]) -> Bool[Array, "... #q k"]:
    """Combines a mask of keys with a mask of queries and keys; the result has as many axes as scores of this shape.

    Raises:
        TypeError, ValueError: the mask is not boolean, or does not fit; see check_mask.
    """
    check_boolean(key_mask, "key_mask")
    allowed = with_axes(key_mask[..., None, :], len(scores))
    if mask is None:
        return allowed
    check_mask(mask, scores)
    return allowed & with_axes(mask, len(scores))


def with_axes(x: Array, number: int) -> Array:
    """Returns x with this number of axes: leading axes of size 1 are added."""
    return jnp.expand_dims(x, range(number - x.ndim))


def same_axes(*arrays: Array) -> list[Array]:
    """Returns the arrays with equal numbers of axes, the largest number of all; see with_axes."""
    return [with_axes(x, max(x.ndim for x in arrays)) for x in arrays]


def scores_shape(query: Array, keys: Array) -> tuple[int, ...]:
    """Returns the shape [..., q, k] of the scores of queries [..., q, d] and keys [..., k, d]."""
    return (*jnp.broadcast_shapes(query.shape[:-2], keys.shape[:-2]), query.shape[-2], keys.shape[-2])


def check_fits(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Checks that an array of this shape, such as a bias, broadcasts to scores of the expected shape.

    It may have more leading axes [...] than the scores [..., q, k].

    Raises:
        ValueError: the array does not broadcast.
    """
    try:
        joint = jnp.broadcast_shapes(shape, expected)
    except ValueError:
        joint = None
    if joint is None or joint[-2:] != expected[-2:]:
        raise ValueError(f"a {name} of shape {shape} does not broadcast to the scores, {expected}")


def places(query: Array, keys: Array) -> tuple[Int[Array, "q 1"], Int[Array, " k"]]:
    """Returns the indices of queries [..., q, d] and keys [..., k, d], as arguments of a mask or bias function."""
    return jnp.arange(query.shape[-2])[:, None], jnp.arange(keys.shape[-2])


def mask_at(mask: Callable, query: Int[Array, "q 1"], key: Int[Array, " k"]) -> Array:
    """Evaluates a mask function at these indices; the result has at least the axes of queries and keys."""
    return jnp.atleast_2d(mask(query, key))


def causal(query: Int[Array, "... q 1"], key: Int[Array, "... k"]) -> Bool[Array, "... q k"]:
    """Returns whether a key is at the position of the query or before it: a mask as a function of positions.

    `Attention` recognizes this function by identity and then lets the fused kernel apply the causal mask, so no [q, k]
    array is made.
    """
    return jnp.less_equal(*same_axes(key, query))


def causal_mask(length: int, num_keys: int | None = None) -> Bool[Array, "q k"]:
    """Returns a mask that is True up to the position of the query; num_keys None: as many keys as queries.

    >>> causal_mask(3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return jnp.tril(jnp.ones((length, length if num_keys is None else num_keys), bool))
