"""Normalizers: from scores to weights. NORMALIZERS has all of them by name; base.py has their contract."""

from attn_jax.attention.normalizers.base import softmax, sums_to_one, takes_infinite
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

# Functions are called as they are; classes are modules, to be constructed with their options.
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
    "sums_to_one",
    "takes_infinite",
]
