"""Sweeps as written on a command line: all combinations of the values of some options.

--sweep="model.attention.normalize=softmax,sparsemax; model.encoder=lstm,gru"   # four runs

A comma inside brackets or quotes belongs to the value: model.hidden_sizes=(8,8),(16,16).
"""

import itertools
from collections.abc import Iterable
from typing import Any

from attn_jax.errors import UserError

OPEN, CLOSE, QUOTES = "([{", ")]}", "'\""


def is_grid(texts: Iterable[str]) -> bool:
    """Tells whether the values of --sweep are options with their values, not the name of a file."""
    return any("=" in text for text in texts)


def grid(config: str, texts: Iterable[str]) -> list[dict[str, Any]]:
    """Returns {"config": config, key: value, ...} of each run; the last option changes first.

    Args:
        config: file of the config.
        texts: options KEY=VALUE,VALUE, with semicolons between them.

    Raises:
        UserError: an option has no value, a value is empty, or one is there twice.
    """
    axes: dict[str, list[str]] = {}
    for axis in (part for text in texts for part in split(text, ";") if part):
        key, equal, text = axis.partition("=")
        key = key.strip().removeprefix("--").removeprefix("config.")
        values = split(text, ",")
        wrong = not (key and equal) or "" in values or len(set(values)) < len(values)
        if wrong or key in axes:
            raise UserError(f"--sweep: {axis!r}; expected KEY=VALUE,VALUE,... with different keys and values")
        axes[key] = values
    rows = itertools.product(*axes.values())
    return [{"config": config} | dict(zip(axes, row, strict=True)) for row in rows]


def split(text: str, separator: str) -> list[str]:
    """Splits a text at a separator that is not inside brackets or quotes; removes spaces around the parts.

    Raises:
        UserError: a bracket or a quote is not closed.
    """
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote or letter in QUOTES:
            quote = "" if letter == quote else quote or letter
        else:
            depth += (letter in OPEN) - (letter in CLOSE)
        if letter == separator and not quote and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if quote or depth:
        raise UserError(f"--sweep: {text!r} has a bracket or a quote that is not closed")
    return [part.strip() for part in parts]


def read_seeds(text: str) -> tuple[int, ...]:
    """Reads the seeds of --seeds: "0..5" for 0, 1, 2, 3, 4, 5, or "0,2,7".

    Raises:
        UserError: the text is neither.
    """
    first, dots, last = text.partition("..")
    try:
        found = tuple(range(int(first), int(last) + 1)) if dots else tuple(map(int, text.split(",")))
    except ValueError:
        found = ()
    if not found:
        raise UserError(f"--seeds={text}: expected seeds such as 0..5, which are six, or 0,2,7")
    return found
