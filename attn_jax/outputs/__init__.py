"""From hidden states to words."""

from attn_jax.outputs.full import OUTPUTS, FullSoftmax

__all__ = ["OUTPUTS", "FullSoftmax"]
