"""A short causal convolution over positions, with the last inputs as its state."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.types import Array, Float, Int


class ShortConvolution(nn.Module, kw_only=True):
    """y_t = activation(sum_i w_i x_{t-i}), i = 0 ... size - 1, with weights for each column: it sees no later position.

    Of queries, keys and values in DeltaNet (Yang 2024, arXiv 2406.06484) and Mamba, with silu; of the input of a
    Transformer layer, as a Canon layer (Allen-Zhu 2025, arXiv 2512.17351), without.
    """

    size: int
    activation: Callable = nn.silu

    def start(self, x: Float[Array, "b n d"]) -> Float[Array, "b r d"]:
        """Returns the size - 1 inputs before the first one: zeros."""
        return jnp.zeros((len(x), self.size - 1, x.shape[-1]), x.dtype)

    @nn.compact
    def __call__(
        self, x: Float[Array, "b n d"], recent: Float[Array, "b r d"], length: Int[Array, "b"]
    ) -> tuple[Float[Array, "b n d"], Float[Array, "b r d"]]:
        """Returns (y, the last size - 1 inputs).

        Args:
            x: inputs; padding is at the end.
            recent: the size - 1 inputs before them; zeros at the start of a sequence.
            length: number of inputs of each row that are no padding.
        """
        kernel = self.param("kernel", nn.initializers.normal(self.size**-0.5), (self.size, x.shape[-1]))
        both = jnp.concatenate([recent.astype(x.dtype), x], axis=1)
        n = x.shape[1]
        y = sum(kernel[self.size - 1 - i].astype(x.dtype) * both[:, i : i + n] for i in range(self.size))
        index = length[:, None] + jnp.arange(self.size - 1)
        return self.activation(y), jnp.take_along_axis(both, index[..., None], axis=1)
