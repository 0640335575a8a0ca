"""Array types and notation for shapes.

Axis names in annotations and einsums (one letter, one meaning):

    b batch    h head    q query    k key    d features    t target time    s source time
    v vocabulary    n candidates

``Float[Array, "... q d"]`` means any leading axes, then queries, then features. beartype checks the annotations while
the tests run; otherwise they cost nothing.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, PRNGKeyArray, PyTree

Params = PyTree  # nested dict of arrays, the "params" that `init` of flax.linen returns
Batch = dict[str, Array | np.ndarray]  # see attn_jax.tasks.batching
Metrics = dict[str, Any]  # name -> attn_jax.models.metrics.Mean
Dtype = Any  # a numpy dtype or its name: jnp.float32, jnp.bfloat16

__all__ = ["Array", "Batch", "Bool", "Callable", "Dtype", "Float", "Int", "Metrics", "PRNGKeyArray", "Params", "PyTree"]
