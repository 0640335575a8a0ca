"""The delta rule: before a value is written under a key, the value that the memory has under this key is removed.

    S_t = a_t S_{t-1} + b_t k_t (v_t - (a_t S_{t-1})' k_t)'        a_t = exp(g_t)        context_t = S_t' q_t

One step of gradient descent, with rate b_t, on |S' k_t - v_t|^2 / 2 from the decayed memory (Widrow & Hoff 1960; Schlag
2021, arXiv 2102.11174). With g = 0 this is DeltaNet (Yang 2024, arXiv 2406.06484), with one g for all columns of a key
gated DeltaNet (Yang 2024, arXiv 2412.06464), with one g per column Kimi's delta attention (2025, arXiv 2510.26692).

It is linear attention with other values, u_j = b_j (v_j - value stored under k_j). One triangular system gives u for
all positions at once. With A the decayed products of keys with keys, below the diagonal,

    (I + diag(b) A) U = diag(b) V        W = tril(decayed products of queries and keys) (I + diag(b) A)^-1 diag(b)
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.loops import by_compiler
from attn_jax.attention.recurrent.linear import empty, products_of, write_and_read
from attn_jax.attention.recurrent.writes import Writes, faded_products
from attn_jax.types import Array, Float


class Delta(struct.PyTreeNode):
    """The delta rule, for keys of length 1: then the memory stays bounded with rates from 0 to 2."""

    ordered: ClassVar[bool] = True  # an update depends on the earlier updates

    def start(self, writes: Writes) -> Float[Array, "... dk dv"]:
        """Returns the empty memory for writes of these shapes."""
        return empty(writes, writes.values.shape[-1])

    def write(self, state: Float[Array, "... dk dv"], one: Writes) -> Float[Array, "... dk dv"]:
        """Writes one position: keys [..., dk], values [..., dv], rates [...], log_decay [..., g]."""
        faded = jnp.exp(one.log_decay)[..., None] * state
        error = one.values - jnp.einsum("...dv,...d->...v", faded, one.keys)
        return faded + one.keys[..., :, None] * (one.rates[..., None] * error)[..., None, :]

    def read(self, state: Float[Array, "... dk dv"], query: Float[Array, "... q dk"]) -> Float[Array, "... q dv"]:
        """Reads the memory at queries."""
        return query @ state

    def weights(self, query: Float[Array, "... q dk"], writes: Writes, causal: bool = True) -> Float[Array, "... q k"]:
        """Computes the weights W with context = W values.

        Raises:
            ValueError: not causal.
        """
        if not causal:
            raise ValueError("the delta rule needs causal keys: what it writes depends on the keys before")
        total = jnp.cumsum(writes.log_decay, axis=-2)
        return products_of(query, writes, True) @ updates_of_values(writes, total)

    def chunk(self, state: Float[Array, "... dk dv"] | None, query: Float[Array, "... n dk"], writes: Writes):
        """Writes and reads n positions at once; returns (the state after them, their contexts)."""
        total = jnp.cumsum(writes.log_decay, axis=-2)
        already = 0.0 if state is None else (writes.keys * jnp.exp(total)) @ state
        updates = updates_of_values(writes, total) @ (writes.values - already)
        return write_and_read(state, query, writes.keys, updates, total)


def updates_of_values(writes: Writes, total: Float[Array, "... n g"]) -> Float[Array, "... n n"]:
    """Computes (I + diag(b) A)^-1 diag(b), A_ji = k_j . (exp(c_j - c_i) k_i) for i < j; maps values to updates.

    Yang 2024 (arXiv 2406.06484).
    """
    lower = writes.rates[..., None] * jnp.tril(faded_products(writes.keys, writes.keys, total), -1)
    return by_compiler(unit_lower_inverse)(lower) * writes.rates[..., None, :]


@jax.custom_jvp
def unit_lower_inverse(lower: Float[Array, "... n n"]) -> Float[Array, "... n n"]:
    """Computes (I + L)^-1 for L with zeros on and above the diagonal, from blocks of 1, 2, 4 ... rows.

        [[P, 0], [R, Q]]^-1 = [[P^-1, 0], [-Q^-1 R P^-1, Q^-1]]        d M = -M dL M for M = (I + L)^-1

    Uses only matrix products: on a CPU with few cores, LAPACK's triangular solve can deadlock a training program.
    """
    *lead, n, _ = lower.shape
    full = 1 << (n - 1).bit_length()
    lower = jnp.pad(lower, [(0, 0)] * len(lead) + [(0, full - n)] * 2)
    inverse, size = jnp.ones_like(lower[..., :1, None]), 1  # inverses of the blocks on the diagonal
    while size < full:
        grid = lower.reshape(*lead, full // (2 * size), 2 * size, full // (2 * size), 2 * size)
        blocks = jnp.moveaxis(jnp.diagonal(grid, axis1=-4, axis2=-2), -1, -3)
        upper, under = (inverse[..., first::2, :, :] for first in (0, 1))
        corner = -under @ blocks[..., size:, :size] @ upper
        inverse = jnp.block([[upper, jnp.zeros_like(upper)], [corner, under]])
        size *= 2
    return inverse[..., 0, :n, :n]


@unit_lower_inverse.defjvp
def _unit_lower_inverse_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Array, Array]:
    inverse = unit_lower_inverse(*primals)  # recursive, for derivatives of any order
    return inverse, -inverse @ jnp.tril(tangents[0], -1) @ inverse
