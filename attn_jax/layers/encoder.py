"""The interface of all encoders.

    encoder(embedded [b, s, e], mask [b, s], train=train) -> (last, states [b, s, d])

`last` summarizes the source: the final states of each layer of an RNN, otherwise the mean of the states [b, d].
"""

import flax.linen as nn

from attn_jax.attention.masks import checked_masks
from attn_jax.types import Array, Bool, Float, Int


class Encoder(nn.Module, kw_only=True):
    """Base of the encoders, without attention maps."""

    @checked_masks
    def maps(
        self, embedded: Float[Array, "b s e"], mask: Bool[Array, "b s"], *, positions: Int[Array, "b s"] | None = None
    ) -> list[Float[Array, "b h s s"]]:
        """Returns the attention map of each layer."""
        return []
