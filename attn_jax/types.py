"""Array types and notation for shapes.

Axis names in annotations and einsums (one letter, one meaning):

    b batch    h head    q query    k key    d features    t target time    s source time
    v vocabulary    n candidates

``Float[Array, "... q d"]`` means any leading axes, then queries, then features. beartype checks the annotations while
the tests run; otherwise they cost nothing.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, PRNGKeyArray, PyTree, UInt8

Params = PyTree  # nested dict of arrays, the "params" that `init` of flax.linen returns
Metrics = dict[str, Any]  # name -> attn_jax.models.metrics.Mean
Dtype = Any  # a numpy dtype or its name: jnp.float32, jnp.bfloat16


class Picture(NamedTuple):
    """A source that is an image, with the words of a question (s = 0: no question)."""

    pixels: UInt8[Array, "b y x c"]
    words: Int[Array, "b s"]


def floating(x: Array | np.ndarray) -> Array:
    """Converts integers and booleans to float32; returns other arrays unchanged."""
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.asarray(x, jnp.float32)


def widest(*arrays: Any) -> Dtype:
    """Returns the promoted dtype of arrays, at least float32, in which scores, weights and sums are computed."""
    return functools.reduce(jnp.promote_types, (x.dtype for x in arrays), jnp.dtype(jnp.float32))


def wide(x: Array) -> Array:
    """Converts an array to at least float32: half precision is widened, float64 is unchanged."""
    return x.astype(widest(x))


Batch = dict[str, Array | np.ndarray | Picture]  # see attn_jax.data.batching
Source = Int[Array, "b s"] | Picture  # of a sequence model: tokens, or an image

__all__ = [
    "Array",
    "Batch",
    "Bool",
    "Callable",
    "Dtype",
    "Float",
    "Int",
    "Metrics",
    "PRNGKeyArray",
    "Params",
    "Picture",
    "PyTree",
    "Source",
    "floating",
    "wide",
    "widest",
]
