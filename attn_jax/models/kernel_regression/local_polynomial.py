"""Local polynomials: a weighted polynomial fit around each query instead of a weighted mean of the values.

    minimize over c   sum_k weights_k |values_k - sum_i c_i P_i(keys_k - query)|^2,        P = 1, z, z^2, ...

The prediction is c_0, the polynomial at the query. Degree 0 is the weighted mean (Nadaraya-Watson); degree 1 has no
first-order bias at the boundary (Fan & Gijbels 1996, chapter 3). c_0 is linear in the values: c_0 = effective weights
times values, where the effective weights sum to one but can be negative.
"""

import itertools
import math

import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.attention import loops
from attn_jax.attention.masks import checked_masks
from attn_jax.types import Array, Bool, Callable, Float

RIDGE = 1e-4  # added to the scaled moments of degree >= 1; with too few keys for a polynomial the fit is then the mean


class Moments(struct.PyTreeNode):
    """Running sums over keys, weighted by exp(score - max_score)."""

    max_score: Float[Array, "... q"]  # largest score so far; -inf before the first key
    design: Float[Array, "... q p p"]  # sum of P_i P_j
    response: Float[Array, "... q p v"]  # sum of P_i values


def monomials(offset: Float[Array, "... d"], degree: int) -> Float[Array, "... p"]:
    """Returns 1, z_i, z_i z_j with i <= j, ...: all products of up to `degree` columns of the offset z."""
    columns = [offset[..., i] for i in range(offset.shape[-1])]
    products = [jnp.ones(offset.shape[:-1], offset.dtype)]
    for size in range(1, degree + 1):
        for chosen in itertools.combinations_with_replacement(columns, size):
            products.append(math.prod(chosen[1:], start=chosen[0]))
    return jnp.stack(products, axis=-1)


def intercept(design: Float[Array, "... p p"]) -> Float[Array, "... p"]:
    """Solves design c = (1, 0, ...): c . P(keys_k - query) is the effective weight of key k divided by its weight.

    The design is scaled to a unit diagonal, and a small ridge is added to all but the first entry, so a solution always
    exists and the effective weights sum to one. Without keys c is zero.
    """
    diagonal = jnp.diagonal(design, axis1=-2, axis2=-1)
    is_positive = diagonal > 0
    scale = jnp.where(is_positive, jax.lax.rsqrt(jnp.where(is_positive, diagonal, 1.0)), 0.0)
    size = design.shape[-1]
    if size == 1:
        return jnp.square(scale)
    scaled = design * scale[..., :, None] * scale[..., None, :]
    identity = jnp.eye(size, dtype=design.dtype)
    unit = jnp.broadcast_to(identity[0], diagonal.shape)
    # Monomials that are zero at all keys get a row of the identity matrix, and thus the coefficient zero.
    ridge = jnp.where(is_positive, RIDGE * (1 - unit), 1.0)
    solution = solve(scaled + ridge[..., None] * jnp.broadcast_to(identity, design.shape), identity[0])
    return solution * scale * scale[..., :1]


def solve(matrix: Float[Array, "... p p"], right: Float[Array, "p"]) -> Float[Array, "... p"]:
    """matrix^-1 right for positive definite matrices, by unrolled Gaussian elimination; fast for small p."""
    size = matrix.shape[-1]
    # Row i of the augmented matrix is rows[i] = [matrix[i, 0], ..., matrix[i, p - 1], right[i]].
    rows = [
        [matrix[..., i, j] for j in range(size)] + [jnp.broadcast_to(right[i], matrix.shape[:-2])] for i in range(size)
    ]
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [b - factor * a if k > i else b for k, (a, b) in enumerate(zip(rows[i], rows[j], strict=True))]
    solution: list = [None] * size
    for i in reversed(range(size)):
        known = sum((rows[i][j] * solution[j] for j in range(i + 1, size)), 0.0)
        solution[i] = (rows[i][-1] - known) / rows[i][i]
    return jnp.stack(solution, axis=-1)


def effective_weights(
    weights: Float[Array, "... q k"], query: Float[Array, "... q d"], keys: Float[Array, "... k d"], degree: int
) -> Float[Array, "... q k"]:
    """Weights with effective @ values = local polynomial at the query; for degree 0 they equal `weights`."""
    if degree == 0:
        return weights
    basis = monomials(keys[..., None, :, :] - query[..., :, None, :], degree)
    design = jnp.einsum("...qki,...qkj->...qij", weights[..., None] * basis, basis)
    return weights * jnp.einsum("...qki,...qi->...qk", basis, intercept(design))


def no_moments(query: Float[Array, "q d"], size: int, num_values: int) -> Moments:
    """Moments before the first key: zeros."""
    q = len(query)
    return Moments(
        max_score=jnp.full(q, -jnp.inf, query.dtype),
        design=jnp.zeros((q, size, size), query.dtype),
        response=jnp.zeros((q, size, num_values), query.dtype),
    )


@checked_masks
def add_keys(
    moments: Moments,
    scores: Float[Array, "q k"],
    mask: Bool[Array, "q k"],
    basis: Float[Array, "q k p"],
    values: Float[Array, "k v"],
) -> Moments:
    """Adds keys to the moments, with the update of a streaming softmax (Milakov & Gimelshein 2018)."""
    mask = mask & (scores > -jnp.inf)
    max_score = jnp.maximum(moments.max_score, jnp.max(scores, axis=-1, where=mask, initial=-jnp.inf))
    max_score = jax.lax.stop_gradient(max_score)  # the prediction does not depend on it
    shift = jnp.where(max_score > -jnp.inf, max_score, 0.0)
    rescale = jnp.exp(moments.max_score - shift)
    weights = jnp.where(mask, jnp.exp(jnp.where(mask, scores, 0.0) - shift[:, None]), 0.0)
    weighted = weights[..., None] * basis
    design = jnp.einsum("qki,qkj->qij", weighted, basis)
    response = jnp.einsum("qki,kv->qiv", weighted, values)
    return Moments(
        max_score=max_score,
        design=rescale[:, None, None] * moments.design + design,
        response=rescale[:, None, None] * moments.response + response,
    )


def streamed_moments(
    score: Callable,
    query: Float[Array, "q d"],
    keys: Float[Array, "k d"],
    values: Float[Array, "k v"],
    degree: int,
    chunk: int,
    exclude: Array | None = None,
) -> Moments:
    """Moments of all keys, computed in chunks of keys, so that no array of size [q, k] is in memory.

    Args:
        score: (query, keys) -> scores [q, k].
        query: points of the fits.
        keys: inputs of the training points.
        values: targets of the training points.
        degree: degree of the polynomials.
        chunk: number of keys at a time; the backward pass recomputes each chunk.
        exclude: index of a key that each query does not see [q]: itself, for leave-one-out.
    """
    num_keys = len(keys)
    num_rows = -(-num_keys // chunk) * chunk
    pad = ((0, num_rows - num_keys), (0, 0))
    key_chunks, value_chunks = (jnp.pad(x, pad).reshape(-1, chunk, x.shape[-1]) for x in (keys, values))
    index_chunks = jnp.arange(num_rows).reshape(-1, chunk)

    @jax.checkpoint
    def body(moments: Moments, part: tuple) -> tuple[Moments, None]:
        some_keys, some_values, index = part
        mask = jnp.broadcast_to(index < num_keys, (len(query), chunk))
        mask = mask if exclude is None else mask & (index != exclude[:, None])
        basis = monomials(some_keys - query[:, None], degree) if degree else jnp.ones((len(query), chunk, 1))
        moments = add_keys(
            moments, scores=score(query, some_keys), mask=mask, basis=basis.astype(query.dtype), values=some_values
        )
        return moments, None

    size = jax.eval_shape(lambda x: monomials(x, degree), query).shape[-1]
    start = no_moments(query, size=size, num_values=values.shape[-1])
    moments, _ = loops.scan(body, start, (key_chunks, value_chunks, index_chunks))
    return moments


def read(moments: Moments) -> Float[Array, "q v"]:
    """Local polynomial at each query; zero if no key is in reach."""
    return jnp.einsum("qp,qpv->qv", intercept(moments.design), moments.response)
