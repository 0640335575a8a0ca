"""Attention as a plain function, for scores and normalizers without parameters."""

from collections.abc import Callable

import flax.linen as nn
from flax.errors import ScopeCollectionNotFound

from attn_jax.attention.blockwise import PositionFunction
from attn_jax.attention.build import build_attention
from attn_jax.attention.core import Attended
from attn_jax.attention.hard.readings import Reading
from attn_jax.attention.masks import checked_masks
from attn_jax.attention.names import construction, required_options
from attn_jax.attention.scores import SCORES
from attn_jax.attention.scores.base import Score, scores_of
from attn_jax.types import Array, Bool, Float, PRNGKeyArray


@checked_masks
def attend(
    query: Float[Array, "... q dq"],
    keys: Float[Array, "... k dk"],
    values: Float[Array, "... k dv"] | None = None,
    *,
    key_mask: Bool[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | PositionFunction | None = None,
    score: Score | str = "scaled_dot",
    normalize: Callable[..., Array] | str = "softmax",
    read: Reading | str = "expectation",
    bias: Float[Array, "... #q k"] | None = None,
    rng: PRNGKeyArray | None = None,
) -> Attended:
    """Computes context = read(normalize(score(query, keys)), values), and the weights.

        >>> attended = attend(query, keys, values, score="scaled_dot", normalize="sparsemax")
        >>> attended.context.shape, attended.weights.shape  # [..., q, dv], [..., q, k]
        ((5, 8), (5, 5))

    A plain function that works with jit, vmap and grad, with or without flax. Leading axes (batch, heads) broadcast:
    heads come before the length. Arrays [b, t, h, d] become [b, h, t, d] by jnp.swapaxes(x, -2, -3).

    Args:
        query: [..., q, dq].
        keys: [..., k, dk].
        values: [..., k, dv], by default the keys.
        key_mask: [..., k], True for keys that every query may attend to, False for padding.
        mask: [..., q, k], True where a query may attend to a key; or a function of indices, such as `causal`. A key
            needs to be True in both masks; masks.py has the rule for their axes. A query without any key has zero
            weights and a zero context.
        score: an object such as ScaledDot(), or a name from SCORES.
        normalize: a function such as sparsemax, or a name from NORMALIZERS.
        read: a reading of one row such as top(num_samples=2), or a name from READINGS. With reinforce, stratified,
            systematic and top, the context has no gradient with respect to the weights: see combine. With the relaxed
            and straight-through readings it has one.
        bias: added to the scores; a key with bias -inf is masked.
        rng: for a reading that samples; without it, the most probable key is read.

    Raises:
        ValueError: an unknown name; shapes do not fit; the score or normalizer has parameters, which a plain function
            cannot hold.
        TypeError: a score, normalizer or reading of the wrong kind.
    """
    if isinstance(score, str) and score in SCORES and required_options(SCORES[score]):
        raise _has_parameters(f"the score {score!r}", f"score={construction(SCORES[score])}")
    free = [part.clone(parent=None) if isinstance(part, nn.Module) else part for part in (score, normalize)]
    attention = build_attention(score=free[0], normalize=free[1], read=read)
    try:
        return attention.apply({}, query, keys, values, key_mask=key_mask, mask=mask, bias=bias, rng=rng)
    except ScopeCollectionNotFound:
        pass
    kind = type(attention.score)
    try:
        attention.score.clone(parent=None).apply({}, query, keys, method=scores_of)
        kind = type(attention.normalize)
        raise _has_parameters(f"the normalizer {kind.__name__}", f"score=..., normalize={kind.__name__}(...)")
    except ScopeCollectionNotFound:
        raise _has_parameters(f"the score {kind.__name__}", f"score={kind.__name__}(...)") from None


def _has_parameters(what: str, arguments: str) -> ValueError:
    return ValueError(
        f"{what} has parameters, and attend is a function without any; use the module: "
        f"attn_jax.attention({arguments}).init(rng, query, keys, values)"
    )
