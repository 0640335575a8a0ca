"""From hidden states to words."""

from attn_jax.outputs.full import FullSoftmax

__all__ = ["FullSoftmax"]
