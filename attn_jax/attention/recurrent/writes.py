"""Writes of each position to a memory of fixed size, and products of queries and keys that decay with distance."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from attn_jax.attention.masks import check_key_mask, checked_masks
from attn_jax.types import Array, Bool, Float, widest

# Least log decay: e^-30 is less than the last digit of float32. Differences of cumulative sums of n log decays have an
# error of about 2e-6 n, and so have the decayed products.
STRONGEST = -30.0


class Writes(NamedTuple):
    """Keys, values, rates and log decays of positions; "..." are any leading axes, such as batch and heads.

    Masked keys have a key, a value, a rate and a log decay of zero, which equals deleting them.

    Attributes:
        keys: [..., k, dk].
        values: [..., k, dv].
        rates: factor of each value.
        log_decay: at most 0; the memory is multiplied by exp(log_decay) first; g: 1 or dk.
    """

    keys: Float[Array, "... k dk"]
    values: Float[Array, "... k dv"]
    rates: Float[Array, "... k"]
    log_decay: Float[Array, "... k g"]


@checked_masks
def make_writes(
    keys: Float[Array, "... k dk"],
    values: Float[Array, "... k dv"],
    *,
    key_mask: Bool[Array, "..."] | None = None,
    rates: Float[Array, "... k"] | None = None,
    log_decay: Float[Array, "... k g"] | None = None,
) -> Writes:
    """Makes writes from keys and values, all of the same type, float32 or wider.

    Args:
        keys: [..., k, dk].
        values: [..., k, dv].
        key_mask: [..., k], True for keys that are written; None: all.
        rates: factor of each value; None: 1.
        log_decay: log of the factor of the memory at each position, the same for all columns of the keys (g = 1) or for
            each column (g = dk); None: no decay. At STRONGEST or below, such as -inf, the memory is erased.

    Raises:
        ValueError: the last axis of log_decay is neither 1 nor dk; the mask is not boolean, or does not fit the keys.
    """
    keys, values = (x.astype(widest(keys, values)) for x in (keys, values))
    rates = jnp.ones(keys.shape[:-1], keys.dtype) if rates is None else rates.astype(keys.dtype)
    log_decay = jnp.zeros((*keys.shape[:-1], 1), keys.dtype) if log_decay is None else log_decay.astype(keys.dtype)
    if log_decay.shape[-1] not in (1, keys.shape[-1]):
        raise ValueError(f"log_decay has {log_decay.shape[-1]} columns; expected 1, or {keys.shape[-1]} as the keys")
    log_decay = jnp.maximum(log_decay, STRONGEST)
    if key_mask is not None:
        check_key_mask(key_mask, keys)
        written = jnp.broadcast_to(key_mask, keys.shape[:-1])
        keys, values, log_decay = (jnp.where(written[..., None], x, 0) for x in (keys, values, log_decay))
        rates = jnp.where(written, rates, 0)
    return Writes(keys, values, rates, log_decay)


def map_writes(function: Callable[[Array, int], Array], writes: Writes) -> Writes:
    """Applies function(array, its axis of positions counted from the end) to each array."""
    return Writes(*(function(x, axis) for x, axis in zip(writes, (-2, -2, -1, -2), strict=True)))


def faded_products(
    query: Float[Array, "... n dk"], keys: Float[Array, "... n dk"], total: Float[Array, "... n g"]
) -> Float[Array, "... n n"]:
    """Computes A_ij = sum_d query_id key_jd exp(c_id - c_jd) for j <= i, and 0 for j > i; c is `total`.

    With c the cumulative log decay, this is the weight with which query i reads key j. The exponents are never
    positive, so no decay causes an overflow (Yang 2023, arXiv 2312.06635).
    """
    n = total.shape[-2]
    before = jnp.tril(jnp.ones((n, n), bool))[..., None]
    gaps = jnp.where(before, total[..., :, None, :] - total[..., None, :, :], 0)
    fading = jnp.where(before, jnp.exp(gaps), 0)
    if total.shape[-1] == 1:
        return jnp.einsum("...qd,...kd->...qk", query, keys) * jnp.squeeze(fading, -1)
    return jnp.einsum("...qd,...kd,...qkd->...qk", query, keys, fading)
