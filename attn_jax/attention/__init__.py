"""The mechanism: scores, normalizers, readings, windows, and the formula that joins them."""

from attn_jax.attention.core import Attended, Attention, Memory, MultiHead
from attn_jax.attention.normalizers import NORMALIZERS
from attn_jax.attention.readings import READINGS
from attn_jax.attention.scores import SCORES, Score
from attn_jax.attention.windows import WINDOWS

__all__ = ["NORMALIZERS", "READINGS", "SCORES", "WINDOWS", "Attended", "Attention", "Memory", "MultiHead", "Score"]
