"""Masks of attention: how those of keys and of queries combine, and the error messages for masks of the wrong shape."""

from typing import Any

import jax.numpy as jnp

from attn_jax.types import Array, Bool, Int


def check_boolean(mask: Any) -> None:
    """Raises a ValueError for a mask that is not boolean, a TypeError for one that is no array."""
    if not hasattr(mask, "dtype"):
        raise TypeError(
            "mask: expected a boolean array, or where attention takes one a function such as attn_jax.causal; got "
            f"{mask!r:.40}"
        )
    if mask.dtype != jnp.bool_:
        raise ValueError(f"mask must be boolean (True = may attend), got {mask.dtype}")


def check_additive(bias: Array) -> None:
    """Raises a ValueError for a bias of truth values, which is a mask in the wrong place."""
    if bias.dtype == jnp.bool_:
        raise ValueError(
            "bias is boolean; expected numbers that are added to the scores. True where a query may attend to a key is "
            "a mask: mask=..."
        )


def joint_mask(memory_mask: Bool[Array, "... k"], mask: Array) -> Bool[Array, "... q k"]:
    """Combines the mask of a memory with one for each query.

    Raises:
        ValueError: the shapes do not broadcast, or the mask is not boolean.
    """
    check_boolean(mask)
    try:
        return memory_mask[..., None, :] & mask
    except (TypeError, ValueError):
        raise ValueError(
            f"a mask of shape {mask.shape} does not broadcast with that of the memory, {memory_mask.shape} for "
            f"[..., keys]; expected [..., queries, keys]{mask_hint(mask, memory_mask)}"
        ) from None


def check_mask(mask: Array, query: Array, keys: Array, hint: str) -> None:
    """Checks that a mask broadcasts to the scores of these queries and keys.

    Raises:
        ValueError: it does not.
    """
    expected = (*jnp.broadcast_shapes(query.shape[:-2], keys.shape[:-2]), query.shape[-2], keys.shape[-2])
    check_fits("mask", mask.shape, expected, f" [..., queries, keys]{hint}")


def check_fits(
    name: str, shape: tuple[int, ...], expected: tuple[int, ...], hint: str = "", leading: bool = False
) -> None:
    """Checks that an array of this shape broadcasts to scores of the expected one.

    Args:
        name: what array it is, for the message.
        shape: of the array.
        expected: shape of the scores.
        hint: follows the expected shape in the message.
        leading: whether the array may have more leading axes [...] than the scores [..., q, k].

    Raises:
        ValueError: it does not.
    """
    try:
        joint = jnp.broadcast_shapes(shape, expected)
    except ValueError:
        joint = None
    if joint is None or (joint[-2:] != expected[-2:] if leading else joint != expected):
        raise ValueError(f"a {name} of shape {shape} does not broadcast to the scores, {expected}{hint}")


def mask_hint(mask: Array, memory_mask: Array) -> str:
    """Says how a mask of keys alone is given, if this is one."""
    return "; a mask of keys alone is mask[..., None, :]" if mask.shape == memory_mask.shape else ""


def places(query: Array, keys: Array) -> tuple[Int[Array, "q 1"], Int[Array, " k"]]:
    """Returns the places of queries [..., q, d] and keys [..., k, d], from 0: for a mask or bias that is a function."""
    return jnp.arange(query.shape[-2])[:, None], jnp.arange(keys.shape[-2])


def causal(query: Int[Array, "q 1"], key: Int[Array, " k"]) -> Bool[Array, "q k"]:
    """Returns whether a key is at the position of the query or before: a mask as a function of positions.

    `Attention` recognizes this function by identity and then lets the fused kernel apply the causal mask, so no [q, k]
    array is made.
    """
    return key <= query


def causal_mask(length: int, num_keys: int | None = None) -> Bool[Array, "q k"]:
    """Returns a mask that is True at the position of the query and before; num_keys None: as many keys as queries.

    >>> causal_mask(3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return jnp.tril(jnp.ones((length, length if num_keys is None else num_keys), bool))
