"""Attention: scores, normalizers, readings and windows, and the formula that combines them.

The package can be called like `build_attention`: attn_jax.attention(score="scaled_dot", normalize="sparsemax").
"""

import sys
import types

from attn_jax.attention.build import build_attention
from attn_jax.attention.caches import CAUSAL, EVERYWHERE, Order, latest
from attn_jax.attention.core import Attended, Attention, Memory
from attn_jax.attention.forgetting import Forgetting
from attn_jax.attention.functional import attend
from attn_jax.attention.hard.readings import READINGS, Reading
from attn_jax.attention.local import WINDOWS, LocalM, LocalP
from attn_jax.attention.maps import Difference, Fitted, Hopfield, Map
from attn_jax.attention.mixer import Mixer
from attn_jax.attention.multi_head import MultiHead
from attn_jax.attention.normalizers import NORMALIZERS
from attn_jax.attention.normalizing import Monotonic, Normalize, TopKeys, Windowed
from attn_jax.attention.reads import Dropped, Gated, Read
from attn_jax.attention.rotary import Rotary
from attn_jax.attention.scores import SCORES
from attn_jax.attention.scores.base import Score
from attn_jax.attention.selective import Selective
from attn_jax.attention.signed import LocalLine, Parallax, Subtract

__all__ = [
    "CAUSAL",
    "EVERYWHERE",
    "NORMALIZERS",
    "READINGS",
    "SCORES",
    "WINDOWS",
    "Attended",
    "Attention",
    "Difference",
    "Dropped",
    "Fitted",
    "Forgetting",
    "Gated",
    "Hopfield",
    "LocalLine",
    "LocalM",
    "LocalP",
    "Map",
    "Memory",
    "Mixer",
    "Monotonic",
    "MultiHead",
    "Normalize",
    "Order",
    "Parallax",
    "Read",
    "Reading",
    "Rotary",
    "Score",
    "Selective",
    "Subtract",
    "TopKeys",
    "Windowed",
    "attend",
    "build_attention",
    "latest",
]


class _Package(types.ModuleType):
    """This package as a callable module."""

    def __call__(self, **parts):
        return build_attention(**parts)


sys.modules[__name__].__class__ = _Package
