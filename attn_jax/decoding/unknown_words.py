"""Replacement of unknown words by the source words that they were translated from."""

from collections.abc import Sequence

import numpy as np

from attn_jax.types import Float


def replace_unk(
    tokens: Sequence[str], weights: Float[np.ndarray, "t s"], source_tokens: Sequence[str], unk: str
) -> list[str]:
    """Replaces each token `unk` by the source token with the largest weight (Jean et al. 2015; Luong et al. 2015).

    Args:
        tokens: target tokens, without bos and eos.
        weights: row t has the attention weights of token t; further rows (eos, padding) and columns (beyond the source
            tokens) are not used. A token whose weights are all 0 is not replaced.

    Raises:
        ValueError: there are fewer rows of weights than tokens.
    """
    weights = np.asarray(weights)[:, : len(source_tokens)]
    if len(weights) < len(tokens):
        raise ValueError(f"replace_unk: expected weights of {len(tokens)} tokens, got {len(weights)} rows")
    replaced = []
    for token, row in zip(tokens, weights, strict=False):
        attended = token == unk and row.max(initial=0.0) > 0
        replaced.append(source_tokens[int(row.argmax())] if attended else token)
    return replaced
