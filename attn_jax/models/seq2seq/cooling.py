"""A temperature that decreases during training, so that relaxed samples change from soft to hard."""

import dataclasses

import jax.numpy as jnp

from attn_jax.types import Array, Float, Int


@dataclasses.dataclass(frozen=True)
class Cooling:
    """Computes start (end / start)^min(1, step / num_steps): equal ratios, as Jang 2017 (arXiv 1611.01144) anneals."""

    start: float
    end: float
    num_steps: int

    def __call__(self, step: Int[Array, ""] | int) -> Float[Array, ""]:
        done = jnp.minimum(1.0, jnp.asarray(step, jnp.float32) / self.num_steps)
        return self.start * (self.end / self.start) ** done
