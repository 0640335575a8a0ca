"""Local polynomials: attention that reads not the mean of the values near the query but a polynomial fitted there.

    minimize over c   sum_k weights_k |values_k - sum_i c_i P_i(keys_k - query)|^2,        P = 1, z, z^2, ...

and the answer is the polynomial at the query itself, c_0. Of degree 0 it is the mean, so Nadaraya-Watson; of degree 1
it has no bias at the boundary to first order (Fan & Gijbels 1996, chapter 3). It is linear in the values: c_0 is
another set of weights times the values, which sum to one but may be negative.
"""

import itertools
import math

import jax
import jax.numpy as jnp
from flax import struct

from attn_jax.types import Array, Bool, Callable, Float

RIDGE = 1e-4  # on the scaled moments of degree >= 1: where the keys do not determine the polynomial, it is the mean


@struct.dataclass
class Moments:
    """Sums over keys of exp(score - top): P_i P_j in `design`, P_i values in `response`; they add up over chunks."""

    top: Float[Array, "... q"]  # largest score so far, -inf where there was no key
    design: Float[Array, "... q p p"]
    response: Float[Array, "... q p v"]


def monomials(offset: Float[Array, "... d"], degree: int) -> Float[Array, "... p"]:
    """1, z_i, z_i z_j with i <= j, ...: all products of up to `degree` columns."""
    columns = [offset[..., i] for i in range(offset.shape[-1])]
    products = [jnp.ones(offset.shape[:-1], offset.dtype)]
    for size in range(1, degree + 1):
        for chosen in itertools.combinations_with_replacement(columns, size):
            products.append(math.prod(chosen[1:], start=chosen[0]))
    return jnp.stack(products, axis=-1)


def intercept(design: Float[Array, "... p p"]) -> Float[Array, "... p"]:
    """The c with design c = (1, 0, ...): what the monomials are multiplied with to give the polynomial at the query.

    The moments are scaled to a unit diagonal, and a small ridge lies on all but the first, so the weights sum to one
    and there is always a solution: zeros where there are no keys at all.
    """
    diagonal = jnp.diagonal(design, axis1=-2, axis2=-1)
    scale = jnp.where(diagonal > 0, jax.lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1.0)), 0.0)
    size = design.shape[-1]
    if size == 1:
        return jnp.square(scale)
    scaled = design * scale[..., :, None] * scale[..., None, :]
    # Where a moment is zero its row is that of the identity: the coefficient is zero.
    first = jnp.zeros(size, design.dtype).at[0].set(1.0)
    fill = jnp.where(diagonal > 0, RIDGE * (1 - first), 1.0)
    solved = solve(scaled + fill[..., None] * jnp.eye(size, dtype=design.dtype), first)
    return solved * scale * scale[..., :1]


def solve(matrix: Float[Array, "... p p"], right: Float[Array, "p"]) -> Float[Array, "... p"]:
    """matrix^-1 right of positive definite matrices, by elimination, written out: p is small, the axes are many."""
    size = matrix.shape[-1]
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
    """The weights that read the local polynomial: effective @ values is its value at the query. Degree 0: `weights`."""
    if degree == 0:
        return weights
    basis = monomials(keys[..., None, :, :] - query[..., :, None, :], degree)
    design = jnp.einsum("...qki,...qkj->...qij", weights[..., None] * basis, basis)
    return weights * jnp.einsum("...qki,...qi->...qk", basis, intercept(design))


def no_moments(query: Float[Array, "q d"], size: int, num_values: int) -> Moments:
    """Those of no keys."""
    q = len(query)
    shapes = (q,), (q, size, size), (q, size, num_values)
    top, design, response = (jnp.zeros(shape, query.dtype) for shape in shapes)
    return Moments(top - jnp.inf, design, response)


def add_keys(
    moments: Moments,
    scores: Float[Array, "q k"],
    mask: Bool[Array, "q k"],
    basis: Float[Array, "q k p"],
    values: Float[Array, "k v"],
) -> Moments:
    """The moments with some more keys, as a streaming softmax takes them (Milakov & Gimelshein 2018)."""
    mask = mask & (scores > -jnp.inf)
    top = jnp.maximum(moments.top, jnp.max(scores, axis=-1, where=mask, initial=-jnp.inf))
    top = jax.lax.stop_gradient(top)  # any constant near the largest score does
    shift = jnp.where(top > -jnp.inf, top, 0.0)
    before = jnp.exp(moments.top - shift)
    weights = jnp.where(mask, jnp.exp(jnp.where(mask, scores, 0.0) - shift[:, None]), 0.0)
    weighted = weights[..., None] * basis
    design = jnp.einsum("qki,qkj->qij", weighted, basis)
    response = jnp.einsum("qki,kv->qiv", weighted, values)
    return Moments(
        top,
        before[:, None, None] * moments.design + design,
        before[:, None, None] * moments.response + response,
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
    """The moments of all keys, `chunk` of them at a time: nothing of size [q, k] is ever in memory.

    score(query, keys) -> [q, k]. `exclude` [q] is a key that a query does not see: itself, for leave-one-out. In the
    backward pass each chunk is computed again.
    """
    total = len(keys)
    rows = -(-total // chunk) * chunk
    padded = [jnp.pad(x, ((0, rows - total), (0, 0))).reshape(-1, chunk, x.shape[-1]) for x in (keys, values)]
    places = jnp.arange(rows).reshape(-1, chunk)

    @jax.checkpoint
    def body(moments: Moments, part: tuple) -> tuple[Moments, None]:
        some_keys, some_values, place = part
        mask = jnp.broadcast_to(place < total, (len(query), chunk))
        mask = mask if exclude is None else mask & (place != exclude[:, None])
        basis = monomials(some_keys - query[:, None], degree) if degree else jnp.ones((len(query), chunk, 1))
        return add_keys(moments, score(query, some_keys), mask, basis.astype(query.dtype), some_values), None

    size = jax.eval_shape(lambda x: monomials(x, degree), query).shape[-1]
    moments, _ = jax.lax.scan(body, no_moments(query, size, values.shape[-1]), (*padded, places))
    return moments


def read(moments: Moments) -> Float[Array, "q v"]:
    """The local polynomial at each query; zeros where no key was in reach."""
    return jnp.einsum("qp,qpv->qv", intercept(moments.design), moments.response)
