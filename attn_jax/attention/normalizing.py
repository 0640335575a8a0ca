"""Normalizers as parts, and their wrappers: normalize(scores [..., q, k], call) -> weights [..., q, k].

Weights are 0 where `call.in_reach` is False. A wrapper restricts the keys or changes the weights; `Monotonic` replaces
the normalizer.
"""

from collections.abc import Callable, Set
from numbers import Integral
from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention.masks import same_axes
from attn_jax.attention.normalizers import Normalizer, NormalizerModule, as_normalizer, softmax, with_forms
from attn_jax.attention.normalizers.forms import Form
from attn_jax.attention.parts import (
    BY_BLOCKS,
    FUSIBLE,
    NOT_NEGATIVE,
    SUMS_TO_ONE,
    TAKES_INFINITE,
    Call,
    Part,
    Wrapper,
    check_kind,
)
from attn_jax.attention.selection import top_keys_mask
from attn_jax.parts import option
from attn_jax.types import Array, Bool, Float

Scores = Float[Array, "... q k"]
Weights = Float[Array, "... q k"]


class Normalize(Part, kw_only=True):
    """A normalizer of one row: a function of scores and mask, or a module that also takes the query.

    Attributes:
        function: the function itself.
    """

    function: Callable[..., Array]
    widens: ClassVar[bool] = False  # whether the weights stay float32 if queries and keys have a narrower type

    def __post_init__(self):
        as_normalizer(self.function)
        super().__post_init__()

    @property
    def normalizer(self) -> Normalizer | NormalizerModule:
        """The function with its properties, or the module."""
        return as_normalizer(self.function)

    @property
    def label(self) -> str:
        return self.normalizer.label

    @property
    def promises(self) -> Set[str]:
        kept = {
            SUMS_TO_ONE: self.normalizer.sums_to_one,
            NOT_NEGATIVE: not self.normalizer.negative,
            TAKES_INFINITE: self.normalizer.infinite,
            BY_BLOCKS: self.normalizer.has_form,
            FUSIBLE: self.is_softmax,
        }
        return frozenset(promise for promise, holds in kept.items() if holds)

    @property
    def is_softmax(self) -> bool:
        """Tells whether the normalizer is softmax."""
        normalizer = self.normalizer
        return isinstance(normalizer, Normalizer) and normalizer.function is softmax

    @property
    def per_head(self) -> bool:
        return self.normalizer.per_head

    def blame(self, promise: str) -> str:
        reasons = {TAKES_INFINITE: "kernel_sum is", BY_BLOCKS: f"expected {with_forms()}"}
        return f"{self.label} ({reasons[promise]})" if promise in reasons else self.label

    def __call__(self, scores: Scores, allowed: Bool[Array, "... #q k"], call: Call) -> Weights:
        """Computes the weights of the allowed keys."""
        query = jnp.broadcast_to(call.query, (*scores.shape[:-1], call.query.shape[-1]))
        return self.normalizer(scores, allowed, query=query)

    def form(self, scores: Any) -> Form:
        """Returns the normalizer as a function of one score and one number per row; see forms.py."""
        return self.normalizer.form_of(scores)


class NormalizerWrapper(Wrapper, kw_only=True):
    """A wrapper of a normalizer."""

    @property
    def function(self) -> Callable:
        """The innermost normalizer."""
        return self.of.function

    @property
    def widens(self) -> bool:
        """Tells whether the weights stay float32 if queries and keys have a narrower type."""
        return self.of.widens


class TopKeys(NormalizerWrapper, kw_only=True):
    """Normalizes over the `count` keys, or blocks of keys, with the largest scores; see selection.py (Zhao 2019).

    Raises:
        ValueError: `count` or `keys_per_block` is below 1.
    """

    count: int = option(8, "number of keys, or of blocks of keys", at_least=1)
    keys_per_block: int = option(1, "number of neighbouring keys that are selected together", at_least=1)
    breaks = frozenset({BY_BLOCKS, FUSIBLE})

    def __post_init__(self):
        for name, number in {"top_keys": self.count, "keys_per_block": self.keys_per_block}.items():
            check_kind(name, number, Integral, "a whole number")
            if number < 1:
                raise ValueError(f"{name} is {number}; expected at least 1")
        super().__post_init__()

    def __call__(self, scores: Scores, allowed: Bool[Array, "... #q k"], call: Call) -> Weights:
        return self.of(scores, top_keys_mask(scores, allowed, self.count, self.keys_per_block), call)


class Windowed(NormalizerWrapper, kw_only=True):
    """factor * normalize over the keys near a centre, with a window from local.py (Luong 2015, equation 10).

    Attributes:
        window: restricts the keys.
    """

    window: nn.Module
    breaks = frozenset({SUMS_TO_ONE, BY_BLOCKS, FUSIBLE})

    def __post_init__(self):
        check_kind("window", self.window, nn.Module, "a module such as LocalP(...), or None")
        super().__post_init__()

    def blame(self, promise: str) -> str:
        return f"{self.label} ({type(self.window).__name__})"

    def __call__(self, scores: Scores, allowed: Bool[Array, "... #q k"], call: Call) -> Weights:
        """Computes the weights of the allowed keys in the window.

        Raises:
            ValueError: the call has no positions.
        """
        if call.positions is None:
            raise ValueError("attention with a window needs the positions of the queries: positions=...")
        near, factor = self.window(call.query, call.positions, key_mask=call.key_mask, key_positions=call.key_positions)
        allowed, near, factor = same_axes(allowed, near, factor)
        # The factor is applied after normalizing, without normalizing again.
        return self.of(scores, allowed & near, call) * factor.astype(scores.dtype)


class Monotonic(Part, kw_only=True):
    """Weights that depend on the weights of the step before, with a selection from hard/monotonic.py (Raffel 2017).

    Attributes:
        selection: makes the weights.
    """

    selection: nn.Module
    random = True  # adds noise to the scores in training
    reads_previous = True
    widens: ClassVar[bool] = True  # the weights are the input of the next step

    def __post_init__(self):
        check_kind("monotonic", self.selection, nn.Module, "a module such as MonotonicSelection(...), or None")
        super().__post_init__()

    @property
    def promises(self) -> Set[str]:
        return frozenset({NOT_NEGATIVE})

    @property
    def function(self) -> nn.Module:
        """The module that computes the weights."""
        return self.selection

    def __call__(self, scores: Scores, allowed: Bool[Array, "... #q k"], call: Call) -> Weights:
        """Computes the weights of the allowed keys.

        Raises:
            ValueError: the call has no weights of the step before.
        """
        if call.previous is None:
            raise ValueError("monotonic attention needs the weights of the step before: previous=...")
        return self.selection(scores, call.previous, allowed, call.rng)
