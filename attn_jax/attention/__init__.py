"""Attention: scores, normalizers, readings and windows, and the formula that combines them."""

from attn_jax.attention.core import Attended, Attention, Memory
from attn_jax.attention.functional import attend
from attn_jax.attention.hard.readings import READINGS, Reading
from attn_jax.attention.local import WINDOWS
from attn_jax.attention.multi_head import MultiHead
from attn_jax.attention.normalizers import NORMALIZERS
from attn_jax.attention.scores import SCORES
from attn_jax.attention.scores.base import Score

__all__ = [
    "NORMALIZERS",
    "READINGS",
    "SCORES",
    "WINDOWS",
    "Attended",
    "Attention",
    "Memory",
    "MultiHead",
    "Reading",
    "Score",
    "attend",
]
