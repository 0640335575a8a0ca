"""Checks of the fields of Attention: is each of the right kind and in range, and do they go together?"""

from numbers import Integral
from typing import Any

import flax.linen as nn

from attn_jax.attention.hard.readings import Reading
from attn_jax.attention.normalizers import is_negative, softmax, sums_to_one, takes_infinite, takes_mask
from attn_jax.attention.normalizers.forms import check_has_form
from attn_jax.attention.scores import SCORES
from attn_jax.attention.scores.base import Score
from attn_jax.attention.signed import LocalLine

# Fields that are modules, with an example of each, and those that are whole numbers.
MODULES = {"window": "LocalP", "monotonic": "MonotonicSelection", "fit": "LocalLine", "difference": "Difference"}
NUMBERS = ("block_size", "top_keys", "keys_per_block", "iterations")


def check_fields(attention: Any) -> None:
    """Checks the fields of an Attention.

    Raises:
        ValueError: a number out of range, or fields that exclude each other.
        TypeError: a field of the wrong kind.
    """
    _check_kinds(attention)
    _check_numbers(attention)
    _check_monotonic(attention)
    _check_signed(attention)
    _check_reading(attention)
    if attention.block_size:
        _check_blocks(attention)


def check_module(name: str, value: Any, example: str) -> None:
    """Raises a TypeError for a part that is neither None nor a module such as the example."""
    if not isinstance(value, nn.Module | None):
        raise TypeError(f"{name} is {value!r}; expected a module such as {example}(...), or None")


def check_whole(name: str, value: Any) -> None:
    """Raises a TypeError for a number that is not whole."""
    if not isinstance(value, Integral):
        raise TypeError(f"{name} is {value!r}; expected a whole number")


def _check_kinds(attention: Any) -> None:
    """Raises a TypeError for a part of the wrong kind, a ValueError for a score that the normalizer cannot take."""
    if not isinstance(attention.score, Score):
        raise TypeError(f"score is {attention.score!r}; expected a Score, or a name: {', '.join(SCORES)}")
    if not callable(attention.normalize):
        raise TypeError(f"normalize is {attention.normalize!r}; expected a function, a module, or a name")
    if not isinstance(attention.normalize, nn.Module) and not takes_mask(attention.normalize):
        raise TypeError(
            f"normalize is {attention.normalize!r}; expected a function of scores and mask, such as attn_jax.softmax"
        )
    if not isinstance(attention.read, Reading):
        raise TypeError(f"read is {attention.read!r}; expected a Reading, such as expectation(), or a name")
    for name, example in MODULES.items():
        check_module(name, getattr(attention, name), example)
    for name in NUMBERS:
        check_whole(name, getattr(attention, name))
    if getattr(attention.score, "compact", False) and not takes_infinite(attention.normalize):
        raise ValueError(
            f"the {type(attention.score).__name__} score is -inf outside its support; use normalize='kernel_sum'"
        )


def _check_monotonic(attention: Any) -> None:
    """Raises a ValueError for fields that change the weights, beside monotonic attention, which makes its own."""
    if attention.monotonic is None:
        return
    others = {
        "window": attention.window is not None,
        "normalize": attention.normalize is not softmax,
        "top_keys": attention.top_keys > 0,
        "iterations": attention.iterations > 1,
        "fit": attention.fit is not None,
        "difference": attention.difference is not None,
    }
    if found := [name for name, is_there in others.items() if is_there]:
        raise ValueError(f"monotonic already computes the weights; do not combine it with {' and '.join(found)}")


def _check_numbers(attention: Any) -> None:
    """Raises a ValueError for a number out of range."""
    if not 0 <= attention.dropout < 1:
        raise ValueError(f"dropout is {attention.dropout}; expected at least 0 and less than 1")
    if attention.top_keys < 0:
        raise ValueError(f"top_keys is {attention.top_keys}; expected at least 1, or 0 for all keys")
    if attention.keys_per_block < 1:
        raise ValueError(f"keys_per_block is {attention.keys_per_block}; expected at least 1")
    if attention.keys_per_block > 1 and not attention.top_keys:
        raise ValueError(
            f"keys_per_block={attention.keys_per_block} needs top_keys of at least 1; with top_keys=0 all keys are read"
        )
    if attention.iterations < 1:
        raise ValueError(f"iterations is {attention.iterations}; expected at least 1, which is attention itself")


def _check_signed(attention: Any) -> None:
    """Raises a ValueError for options that cannot be combined with negative weights."""
    if attention.difference is not None and (attention.fit is not None or attention.iterations > 1):
        raise ValueError("the difference of two maps has two queries; it takes neither fit nor iterations")
    name = "fit" if attention.fit is not None else "difference" if attention.difference is not None else ""
    if name and not attention.read.is_soft:
        raise ValueError(f"{name} gives weights that may be negative; they cannot be read by {attention.read.name}")
    if isinstance(attention.fit, LocalLine) and is_negative(attention.normalize):
        raise ValueError("fit=line needs weights that are not negative; expected another normalize, such as softmax")


def _check_reading(attention: Any) -> None:
    """Raises a ValueError for a reading that samples from weights that need not sum to one."""
    if not attention.read.random:
        return
    if not sums_to_one(attention.normalize):
        raise ValueError(f"read={attention.read.name} samples keys, and needs weights that sum to one")
    restricted = "a window" if attention.window is not None else "monotonic" if attention.monotonic is not None else ""
    if restricted:
        raise ValueError(
            f"read={attention.read.name} samples keys, and needs weights that sum to one, which those of {restricted} "
            "need not"
        )


def _check_blocks(attention: Any) -> None:
    """Raises a ValueError for fields with which the context cannot be computed block by block."""
    if attention.block_size < 0:
        raise ValueError(f"block_size is {attention.block_size}; expected at least 1, or 0 for all keys at once")
    others = {
        "a window": attention.window is not None,
        "monotonic": attention.monotonic is not None,
        f"read={attention.read.name}": not attention.read.is_soft,
        "dropout of weights": attention.dropout > 0,
        f"top_keys={attention.top_keys}": attention.top_keys > 0,
        f"iterations={attention.iterations}": attention.iterations > 1,
        "fit": attention.fit is not None,
        "difference": attention.difference is not None,
        f"the {type(attention.score).__name__} score": not attention.score.by_key,
    }
    if found := [name for name, is_there in others.items() if is_there]:
        raise ValueError(f"block_size does not go together with {' and '.join(found)}")
    check_has_form(attention.normalize)
