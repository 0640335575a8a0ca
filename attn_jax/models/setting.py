"""Facts that a model is built from besides its own options."""

from typing import NamedTuple

import jax.numpy as jnp

from attn_jax.types import Dtype

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


class Setting(NamedTuple):
    """Options of other sections that a model depends on."""

    dtype: Dtype = jnp.float32  # of the computation
    label_smoothing: float = 0.0
    max_decode_length: int = 100  # target tokens of decoding, for which caches are made
