"""Normalizers: from scores to weights. NORMALIZERS maps names to normalizers; base.py has their contract."""

import dataclasses
import functools
from collections.abc import Callable

import flax.linen as nn

from attn_jax.attention.normalizers.base import Normalizer, NormalizerModule, softmax, takes_mask
from attn_jax.attention.normalizers.constrained import constrained_softmax, constrained_sparsemax
from attn_jax.attention.normalizers.contextual import ContextualSoftmax
from attn_jax.attention.normalizers.elementwise import hardmax, kernel_sum, linear, rela, sigmoid
from attn_jax.attention.normalizers.entmax import entmax, entmax15, sparsemax
from attn_jax.attention.normalizers.entmax_form import LEAST_ALPHA, entmax_form
from attn_jax.attention.normalizers.forms import LINEAR, RELU, SHIFTED_SIGMOID, SIGMOID, SOFTMAX, SOFTMAX_ONE
from attn_jax.attention.normalizers.fusedmax import fusedmax
from attn_jax.attention.normalizers.parametric import (
    Entmax,
    Fusedmax,
    LearnedEntmax,
    ScalableEntmax,
    ScalableSoftmax,
)
from attn_jax.attention.normalizers.sinks import (
    LearnedSink,
    softmax_one,
    softmax_with_sink,
    softpick,
    stick_breaking,
    unnormalized_sigmoid,
)
from attn_jax.attention.normalizers.structured import Chain, Segments, chain_marginals, segment_marginals

# Classes are modules, to be constructed with options.
NORMALIZERS: dict[str, Normalizer | type[NormalizerModule]] = {
    "softmax": Normalizer(softmax, form=SOFTMAX),
    "sparsemax": Normalizer(sparsemax, form=entmax_form(2.0)),
    "entmax15": Normalizer(entmax15, form=entmax_form(1.5)),
    "entmax": Entmax,
    "learned_entmax": LearnedEntmax,
    "fusedmax": Fusedmax,
    "scalable_softmax": ScalableSoftmax,
    "scalable_entmax": ScalableEntmax,
    "kernel_sum": Normalizer(kernel_sum, form=SOFTMAX, infinite=True),
    "sigmoid": Normalizer(sigmoid, form=SIGMOID),
    "rela": Normalizer(rela, form=RELU, sums_to_one=False),
    "hardmax": Normalizer(hardmax),
    "linear": Normalizer(linear, form=LINEAR, sums_to_one=False, negative=True),
    "softmax_one": Normalizer(softmax_one, form=SOFTMAX_ONE, sums_to_one=False),
    "learned_sink": LearnedSink,
    "unnormalized_sigmoid": Normalizer(unnormalized_sigmoid, form=SHIFTED_SIGMOID, sums_to_one=False),
    "softpick": Normalizer(softpick, sums_to_one=False),
    "stick_breaking": Normalizer(stick_breaking, sums_to_one=False),
    "chain": Chain,
    "segments": Segments,
    "contextual_softmax": ContextualSoftmax,
}
# Functions with more arguments than scores and mask, which are not in NORMALIZERS.
_OTHERS = [
    Normalizer(function, sums_to_one=False)
    for function in (softmax_with_sink, chain_marginals, segment_marginals, constrained_softmax, constrained_sparsemax)
]
_KNOWN = {x.function: x for x in (*NORMALIZERS.values(), *_OTHERS) if isinstance(x, Normalizer)}


def as_normalizer(normalize: Callable) -> Normalizer | NormalizerModule:
    """Returns a normalizer with its properties; functions from outside of this package get the default properties.

    A functools.partial has the properties of its function, but no form.

    Raises:
        TypeError: not a function of scores and mask, and no normalizer.
    """
    if isinstance(normalize, Normalizer | NormalizerModule):
        return normalize
    if not callable(normalize):
        raise TypeError(f"normalize is {normalize!r}; expected a function, a module, or a name")
    if isinstance(normalize, nn.Module) or not takes_mask(normalize):
        raise TypeError(
            f"normalize is {normalize!r}; expected a function of scores and mask, such as attn_jax.softmax, or a "
            "NormalizerModule"
        )
    if isinstance(normalize, functools.partial):
        return dataclasses.replace(as_normalizer(normalize.func), function=normalize, form=None)
    return _KNOWN[normalize] if normalize in _KNOWN else Normalizer(normalize)


def with_forms() -> str:
    """Lists the normalizers that can be computed block by block, for messages."""
    names = ", ".join(name for name, x in NORMALIZERS.items() if x.has_form)
    return f"{names}; entmax with alpha 1, or {LEAST_ALPHA} to 2"


__all__ = [
    "NORMALIZERS",
    "Chain",
    "ContextualSoftmax",
    "Entmax",
    "Fusedmax",
    "LearnedEntmax",
    "LearnedSink",
    "Normalizer",
    "NormalizerModule",
    "ScalableEntmax",
    "ScalableSoftmax",
    "Segments",
    "as_normalizer",
    "chain_marginals",
    "constrained_softmax",
    "constrained_sparsemax",
    "entmax",
    "entmax15",
    "fusedmax",
    "hardmax",
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
    "takes_mask",
    "unnormalized_sigmoid",
    "with_forms",
]
