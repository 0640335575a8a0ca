"""Interface of normalizers, and softmax.

A normalizer is a function normalize(scores [..., k], mask [..., k] or None) -> weights [..., k], wrapped with its
properties in a `Normalizer`; or a `NormalizerModule`, with parameters or options, which also takes the query:
normalize(scores, mask, query=query). The contract:

- Weights are >= 0, exactly 0 where the mask is False, and each row sums to one, unless `negative` or `sums_to_one`
  says otherwise.
- A row without any key gives zeros with a zero gradient, never NaN.
- A mask is boolean, and True means "may attend". The score of a masked key has no effect, even if it is NaN. The mask
  has as many axes as the scores, each of their size or 1, or is [k], for all rows; `Attention` passes the former.
- float16 and bfloat16 scores are computed in float32, and give weights of their own type. `Attention` passes float32
  scores, which were not rounded before, and casts the weights.
- Scores are finite, unless the normalizer is `infinite`: then a score of -inf is a key out of reach, and a row of -inf
  gives zeros.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import ClassVar, ParamSpec

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.masks import check_mask, checked_masks
from attn_jax.attention.normalizers.forms import Form
from attn_jax.types import Array, Bool, Float, floating, wide

Scores = Float[Array, "... k"]
Weights = Float[Array, "... k"]
Mask = Bool[Array, "... #k"] | None
Query = Float[Array, "... q d"] | None
P = ParamSpec("P")


@dataclasses.dataclass(frozen=True)
class Normalizer:
    """A normalizer without parameters: a function of scores and mask, and the properties of its weights.

    It can be called like the function. It is not a NamedTuple, since jax.jit refuses to call one.

    Attributes:
        function: the function itself.
        form: as a function of one score, for blocks of keys; None: needs the whole row.
        sums_to_one: the weights of each row with a key sum to one.
        negative: weights may be negative.
        infinite: scores may be -inf.
    """

    function: Callable[[Scores, Mask], Weights]
    form: Form | None = None
    sums_to_one: bool = True
    negative: bool = False
    infinite: bool = False

    @property
    def per_head(self) -> bool:
        """Tells whether the normalizer may have parameters for each head: False."""
        return False

    @property
    def label(self) -> str:
        """Name of the function."""
        inside = self.function.func if isinstance(self.function, functools.partial) else self.function
        return getattr(inside, "__name__", type(inside).__name__)

    @property
    def has_form(self) -> bool:
        """Tells whether weights can be computed block by block."""
        return self.form is not None

    def form_of(self, scores: Scores | jax.ShapeDtypeStruct) -> Form:
        """Returns the form for scores of this shape.

        Raises:
            ValueError: the normalizer has none.
        """
        if self.form is None:
            raise ValueError(f"{self.label} needs a whole row of scores: it has no form for blocks of keys")
        return self.form

    @checked_masks
    def __call__(self, scores: Scores, mask: Mask = None, query: Query = None) -> Weights:
        return self.function(scores, mask)


class NormalizerModule(nn.Module, kw_only=True):
    """Base of normalizers with options or parameters: normalize(scores, mask, query=query) -> weights.

    With parameters for each head the scores are [..., h, q, k]. The properties are the same as in `Normalizer`.
    """

    sums_to_one: ClassVar[bool] = True
    negative: ClassVar[bool] = False
    infinite: ClassVar[bool] = False
    per_head: ClassVar[bool] = True
    has_form: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """Name of the class."""
        return type(self).__name__

    @nn.nowrap
    def form_of(self, scores: Scores | jax.ShapeDtypeStruct) -> Form:
        """Returns the form for scores of this shape, if `has_form`."""
        raise NotImplementedError


def takes_mask(normalize: Callable) -> bool:
    """Tells whether a function can be called as normalize(scores, mask); jax.nn.softmax(scores, axis) cannot."""
    try:
        parameters = inspect.signature(normalize).parameters.values()
    except ValueError:  # some functions have no known signature
        return True
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return True
    names = [x.name for x in parameters if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    return len(names) > 1 and names[1] != "axis"


@checked_masks
def full_mask(scores: Scores, mask: Mask) -> Bool[Array, "... k"]:
    """Returns the mask in the shape of the scores, True everywhere if it is None; raises like `masks.check_mask`."""
    if mask is not None:
        check_mask(mask, scores.shape, axes=1)
    everywhere = jnp.ones_like(scores, bool)
    return everywhere if mask is None else everywhere & mask


def normalizer(normalize: Callable[P, Weights]) -> Callable[P, Weights]:
    """Wraps a normalizer to check its mask, and to compute float16 and bfloat16 scores in float32.

    The weights have the type of the scores; integer scores give float32.
    """

    @functools.wraps(normalize)
    def checked(scores, mask=None, *args, **kwargs):
        if mask is not None:
            check_mask(mask, scores.shape, axes=1)
        scores = floating(scores)
        if not scores.size:  # some normalizers fail without a key
            return scores
        return normalize(wide(scores), mask, *args, **kwargs).astype(scores.dtype)

    return checked


@normalizer
def softmax(scores: Scores, mask: Mask = None) -> Weights:
    """weights_i = exp(scores_i) / sum_j exp(scores_j), with the sum over unmasked keys. Bridle 1990.

    >>> softmax(jnp.zeros(4), jnp.array([True, True, False, False])).tolist()
    [0.5, 0.5, 0.0, 0.0]
    """
    if mask is None:
        return jax.nn.softmax(scores, axis=-1)
    mask = jnp.broadcast_to(mask, scores.shape)
    some = mask | ~jnp.any(mask, axis=-1, keepdims=True)  # a row without keys is not masked, to avoid NaN
    # The inner `where` also keeps NaN and inf of masked keys out of the gradient.
    return jnp.where(mask, jax.nn.softmax(jnp.where(mask, scores, 0.0), axis=-1, where=some), 0.0)
