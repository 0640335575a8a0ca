"""Interface of normalizers, softmax, and three properties that a normalizer may have.

A normalizer is a function normalize(scores [..., k], mask [..., k] or None) -> weights [..., k], or a module with
parameters or options that is also given the query, normalize(scores, mask, query=query). Its contract:

- weights >= 0, exactly 0 where the mask is False, and each row sums to one. A normalizer that does not promise the
  sum has the attribute `sums_to_one` = False, and one whose weights may be negative `is_negative` = True.
- A row with no key left gives zeros with a zero gradient, never NaN.
- A mask is boolean, and True means "may attend"; whatever score a masked key has, even NaN, changes nothing. It has as
  many axes as the scores, each of their size or 1, or is [k], for all rows; `Attention` gives one of as many axes.
- float16 and bfloat16 scores are computed in float32, and give weights of their own type. `Attention` hands over
  float32 scores, which are not rounded before, and casts the weights.
- Scores are finite, except for a normalizer with the attribute `takes_infinite` = True, where a score of -inf is a key
  out of reach and a row of them gives zeros.
"""

import functools
import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp

from attn_jax.attention.masks import check_mask, checked_masks
from attn_jax.types import Array, Bool, Float, floating, wide

Scores = Float[Array, "... k"]
Weights = Float[Array, "... k"]
Mask = Bool[Array, "... #k"] | None


def takes_mask(normalize: Callable) -> bool:
    """Tells whether a function may be called as normalize(scores, mask): jax.nn.softmax(scores, axis) may not."""
    try:
        parameters = inspect.signature(normalize).parameters.values()
    except ValueError:  # some functions have none that is known
        return True
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return True
    names = [x.name for x in parameters if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    return len(names) > 1 and names[1] != "axis"


def sums_to_one(normalize: Callable) -> bool:
    """Tells whether the weights of every row that has a key sum to one, which sampling keys from them needs."""
    return _property(normalize, "sums_to_one", True)


def is_negative(normalize: Callable) -> bool:
    """Tells whether weights may be negative, of which no line can be fitted."""
    return _property(normalize, "is_negative", False)


def takes_infinite(normalize: Callable) -> bool:
    """Tells whether the scores may be -inf, as those of compact kernels are."""
    return _property(normalize, "takes_infinite", False)


def _property(normalize: Callable, name: str, default: bool) -> bool:
    # functools.partial does not have the attributes of its function.
    inside = normalize.func if isinstance(normalize, functools.partial) else normalize
    return getattr(normalize, name, getattr(inside, name, default))


@checked_masks
def full_mask(scores: Scores, mask: Mask) -> Bool[Array, "... k"]:
    """Returns the mask in the shape of the scores, True everywhere for None; raises as `masks.check_mask` does."""
    if mask is not None:
        check_mask(mask, scores.shape, axes=1)
    return jnp.ones(scores.shape, bool) if mask is None else jnp.broadcast_to(mask, scores.shape)


def normalizer(normalize: Callable) -> Callable:
    """Wraps a normalizer to check its mask, and to compute float16 and bfloat16 scores in float32.

    The weights have the scores' type; of integers they are float32.
    """

    @functools.wraps(normalize)
    def checked(scores, mask=None, *args, **kwargs):
        if mask is not None:
            check_mask(mask, scores.shape, axes=1)
        scores = floating(scores)
        if not scores.size:  # not every step below can be taken without a key
            return scores
        return normalize(wide(scores), mask, *args, **kwargs).astype(scores.dtype)

    return checked


@normalizer
def softmax(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = exp(scores_i) / sum_j exp(scores_j), the sum over the keys where the mask is True. Bridle 1990.

    >>> softmax(jnp.zeros(4), jnp.array([True, True, False, False])).tolist()
    [0.5, 0.5, 0.0, 0.0]
    """
    if mask is None:
        return jax.nn.softmax(scores, axis=-1)
    mask = jnp.broadcast_to(mask, scores.shape)
    some = mask | ~jnp.any(mask, axis=-1, keepdims=True)  # a row without keys masks nothing, so that no NaN is made
    # An inner `where` keeps NaN and inf of masked keys out of the gradient as well.
    return jnp.where(mask, jax.nn.softmax(jnp.where(mask, scores, 0.0), axis=-1, where=some), 0.0)
