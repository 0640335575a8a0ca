"""A convolutional encoder."""

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.dense import Dense
from attn_jax.attention.dropout import Dropout
from attn_jax.attention.masks import checked_masks
from attn_jax.layers.encoder import Encoder
from attn_jax.layers.pooling import mean_state
from attn_jax.layers.positions import NoPositions
from attn_jax.layers.windows import Conv
from attn_jax.types import Array, Bool, Dtype, Float


class Convolution(Encoder, kw_only=True):
    """Layers of x + glu(W * norm(x)), where * is a convolution over `kernel_size` positions, followed by a norm.

    A state of layer l depends on the l (kernel_size - 1) + 1 tokens centred at its position. Gated linear units:
    Gehring 2017 (arXiv 1705.03122), section 3.2. Masked inputs are set to zero before each convolution, so padding has
    no effect.
    """

    features: int
    num_layers: int
    kernel_size: int
    positions: NoPositions
    dropout: float = 0.0
    dtype: Dtype = jnp.float32

    @checked_masks
    @nn.compact
    def __call__(
        self, embedded: Float[Array, "b s e"], mask: Bool[Array, "b s"], *, train: bool = False
    ) -> tuple[Float[Array, "b d"], Float[Array, "b s d"]]:
        places = jnp.broadcast_to(jnp.arange(embedded.shape[1]), embedded.shape[:2])
        x = self.positions.embed(embedded, places)
        x = x if x.shape[-1] == self.features else Dense(features=self.features, dtype=self.dtype, name="input")(x)
        x = Dropout(rate=self.dropout)(x, deterministic=not train)
        for index in range(self.num_layers):
            inner = nn.LayerNorm(dtype=self.dtype, name=f"norm_{index}")(x)
            inner = jnp.where(mask[..., None], inner, 0)
            size = (self.kernel_size,)
            layer = Conv(features=2 * self.features, sizes=size, dtype=self.dtype, name=f"layer_{index}")
            x = x + Dropout(rate=self.dropout)(nn.glu(layer(inner)), deterministic=not train)
        x = nn.LayerNorm(dtype=self.dtype, name="norm")(x)
        return mean_state(x, mask), x
