"""Normalizers: from scores to weights."""

from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.normalizers.constrained import constrained_softmax, constrained_sparsemax
from attn_jax.attention.normalizers.elementwise import ELEMENTWISE, hardmax, kernel_sum, linear, rela, sigmoid
from attn_jax.attention.normalizers.entmax import PROJECTIONS, entmax, entmax15, sparsemax
from attn_jax.attention.normalizers.fusedmax import fusedmax
from attn_jax.attention.normalizers.parametric import (
    PARAMETRIC,
    Entmax,
    Fusedmax,
    LearnedEntmax,
    ScalableEntmax,
    ScalableSoftmax,
)

# A class is a module to construct, with its fields as keyword arguments; all else is called as it is.
NORMALIZERS = {"softmax": softmax, **PROJECTIONS, **PARAMETRIC, **ELEMENTWISE}

__all__ = [
    "NORMALIZERS",
    "Entmax",
    "Fusedmax",
    "LearnedEntmax",
    "ScalableEntmax",
    "ScalableSoftmax",
    "constrained_softmax",
    "constrained_sparsemax",
    "entmax",
    "entmax15",
    "fusedmax",
    "hardmax",
    "kernel_sum",
    "linear",
    "rela",
    "sigmoid",
    "softmax",
    "sparsemax",
]
