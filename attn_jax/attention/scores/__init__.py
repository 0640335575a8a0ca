"""Scores: how well a query and a key match. SCORES maps names to scores."""

from attn_jax.attention.scores.base import Score
from attn_jax.attention.scores.bounded import BOUNDED, QKNorm, Softcap
from attn_jax.attention.scores.kernels import KERNELS, Boxcar, Constant, Epanechnikov, Gaussian, Kernel, Triangular
from attn_jax.attention.scores.products import (
    PRODUCTS,
    Additive,
    Concat,
    Dot,
    General,
    Location,
    Norm,
    ScaledDot,
    TanhKey,
)
from attn_jax.attention.scores.random_features import RANDOM, RandomFeatures

SCORES: dict[str, type[Score]] = PRODUCTS | BOUNDED | RANDOM | KERNELS

__all__ = [
    "KERNELS",
    "SCORES",
    "Additive",
    "Boxcar",
    "Concat",
    "Constant",
    "Dot",
    "Epanechnikov",
    "Gaussian",
    "General",
    "Kernel",
    "Location",
    "Norm",
    "QKNorm",
    "RandomFeatures",
    "ScaledDot",
    "Score",
    "Softcap",
    "TanhKey",
    "Triangular",
]
