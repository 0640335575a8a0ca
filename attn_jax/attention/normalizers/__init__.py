"""Normalizers: from scores to weights. NORMALIZERS has all of them by name; base.py has their contract."""

from attn_jax.attention.normalizers.base import is_negative, softmax, sums_to_one, takes_infinite, takes_mask
from attn_jax.attention.normalizers.constrained import constrained_softmax, constrained_sparsemax
from attn_jax.attention.normalizers.contextual import CONTEXTUAL, ContextualSoftmax
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
from attn_jax.attention.normalizers.sinks import (
    SINKS,
    LearnedSink,
    softmax_one,
    softmax_with_sink,
    softpick,
    stick_breaking,
    unnormalized_sigmoid,
)
from attn_jax.attention.normalizers.structured import STRUCTURED, Chain, Segments, chain_marginals, segment_marginals

# Functions are called as they are; classes are modules, to be constructed with their options.
NORMALIZERS = {"softmax": softmax, **PROJECTIONS, **PARAMETRIC, **ELEMENTWISE, **SINKS, **STRUCTURED, **CONTEXTUAL}

__all__ = [
    "NORMALIZERS",
    "Chain",
    "ContextualSoftmax",
    "Entmax",
    "Fusedmax",
    "LearnedEntmax",
    "LearnedSink",
    "ScalableEntmax",
    "ScalableSoftmax",
    "Segments",
    "chain_marginals",
    "constrained_softmax",
    "constrained_sparsemax",
    "entmax",
    "entmax15",
    "fusedmax",
    "hardmax",
    "is_negative",
    "kernel_sum",
    "linear",
    "rela",
    "segment_marginals",
    "sigmoid",
    "softmax",
    "softmax_one",
    "softmax_with_sink",
    "softpick",
    "sparsemax",
    "stick_breaking",
    "sums_to_one",
    "takes_infinite",
    "takes_mask",
    "unnormalized_sigmoid",
]
