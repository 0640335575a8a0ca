"""Output layers: from hidden states to words.

    log_probs(hidden [..., d], embedding) -> [..., v]                     normalized, for evaluation and decoding
    top_k(hidden [..., d], k, embedding) -> (log_probs, tokens) [..., k]  most probable first
    loss(hidden, targets [...], embedding, rng) -> (training loss, negative log-likelihood), each [...]

`embedding` [v, e] is that of the target tokens, for a layer that shares its weights with it; `rng` is for the loss of
a layer that samples words.
"""

from attn_jax.outputs.full import FullSoftmax

OUTPUTS = {"full": FullSoftmax}

__all__ = ["OUTPUTS", "FullSoftmax"]
