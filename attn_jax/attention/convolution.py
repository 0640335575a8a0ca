"""A short causal convolution over positions, with the last inputs as its state."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.masks import checked_masks
from attn_jax.types import Array, Bool, Float


class ShortConvolution(nn.Module, kw_only=True):
    """y_t = activation(sum_i w_i x_{t-i}), i = 0 ... size - 1, with separate weights for each column; causal.

    DeltaNet (Yang 2024, arXiv 2406.06484) and Mamba apply it with silu to queries, keys and values; a Canon layer
    (Allen-Zhu 2025, arXiv 2512.17351) applies it without an activation to the input of a Transformer layer.
    """

    size: int
    activation: Callable[[Array], Array] = nn.silu

    def start(self, x: Float[Array, "b n d"]) -> Float[Array, "b r d"]:
        """Returns the size - 1 inputs before the first input: zeros."""
        return jnp.zeros((len(x), self.size - 1, x.shape[-1]), x.dtype)

    @checked_masks
    @nn.compact
    def __call__(
        self, x: Float[Array, "b n d"], mask: Bool[Array, "b n"], recent: Float[Array, "b r d"] | None = None
    ) -> tuple[Float[Array, "b n d"], Float[Array, "b r d"]]:
        """Returns (y, the last size - 1 inputs).

        Args:
            x: inputs.
            mask: True for real inputs; padding is at the end.
            recent: the size - 1 inputs before `x`; None at the start of a sequence.
        """
        recent = self.start(x) if recent is None else recent
        kernel = self.param("kernel", nn.initializers.normal(self.size**-0.5), (self.size, x.shape[-1]), jnp.float32)
        both = jnp.concatenate([recent.astype(x.dtype), x], axis=1)
        n = x.shape[1]
        y = sum(kernel[self.size - 1 - i, None, None].astype(x.dtype) * both[:, i : i + n] for i in range(self.size))
        index = jnp.sum(mask, axis=1)[:, None] + jnp.arange(self.size - 1)[None]
        return self.activation(y), jnp.take_along_axis(both, index[..., None], axis=1)
