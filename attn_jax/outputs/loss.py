"""The loss of a given distribution over words."""

import jax.numpy as jnp

from attn_jax.types import Array, Float, Int


def nll_and_correct(log_probs: Float[Array, "... v"], targets: Int[Array, "..."]):
    """Returns (-log p(target), 1 where no token is more probable than the target, else 0), each [...]."""
    target = jnp.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0]
    return -target, (target >= jnp.max(log_probs, axis=-1)).astype(jnp.float32)
