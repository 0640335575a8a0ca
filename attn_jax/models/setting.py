"""Settings from other sections that a model is built with."""

from typing import NamedTuple

import jax.numpy as jnp

from attn_jax.types import Dtype

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


class Setting(NamedTuple):
    """Options of other sections that the model depends on."""

    dtype: Dtype = jnp.float32  # type of the computation
