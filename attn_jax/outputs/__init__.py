"""Output layers: from hidden states to words.

    log_probs(hidden [..., d], embedding) -> [..., v]                     exact and normalized: evaluation and decoding
    top_k(hidden [..., d], k, embedding) -> (log_probs, words) [..., k]   exact, most probable first: decoding
    nll_and_correct(hidden, targets [...], embedding) -> each [...]       exact: evaluation
    loss(hidden, targets, embedding, rng) -> (training loss, negative log-likelihood), each [...]

`embedding` is the table of the target tokens, used by a layer that shares it; `rng` is used by a layer that samples
words.
"""

from attn_jax.outputs.adaptive import AdaptiveOptions, AdaptiveSoftmax
from attn_jax.outputs.base import OutputLayer, OutputSetting, nll_and_correct
from attn_jax.outputs.chunked import ChunkedOptions, ChunkedSoftmax
from attn_jax.outputs.full import FullOptions, FullSoftmax
from attn_jax.outputs.hierarchical import HierarchicalOptions, HierarchicalSoftmax
from attn_jax.outputs.sampled import (
    BlackOutOptions,
    NegativeSamplingOptions,
    NoiseContrastiveOptions,
    SampledOptions,
    SampledSoftmax,
)

OUTPUTS = {
    "full": FullOptions,
    "chunked": ChunkedOptions,
    "sampled": SampledOptions,
    "nce": NoiseContrastiveOptions,
    "negative_sampling": NegativeSamplingOptions,
    "blackout": BlackOutOptions,
    "hierarchical": HierarchicalOptions,
    "adaptive": AdaptiveOptions,
}

__all__ = [
    "OUTPUTS",
    "AdaptiveSoftmax",
    "ChunkedSoftmax",
    "FullSoftmax",
    "HierarchicalSoftmax",
    "OutputLayer",
    "OutputSetting",
    "SampledSoftmax",
    "nll_and_correct",
]
