"""Lines of input in chunks, and attention weights as JSON files."""

import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from attn_jax.data.files import save_json
from attn_jax.errors import UserError
from attn_jax.types import Float


def chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yields lists of `size` lines; the last one may be shorter.

    Raises:
        UserError: an error of `lines`; earlier lines are yielded first.
    """
    some: list[str] = []
    try:
        for line in lines:
            some.append(line)
            if len(some) == size:
                yield some
                some = []
    except UserError:
        if some:
            yield some
        raise
    if some:
        yield some


def float32_text(value: float) -> str:
    """Returns the shortest text that reads back as the same float32."""
    return str(np.float32(value))


def save_weights(picture: pathlib.Path, weights: Float[np.ndarray, "..."], **labels: Any) -> None:
    """Writes attention weights, with `labels` for their rows and columns, to a JSON file beside their picture.

    Raises:
        UserError: the file cannot be written.
    """
    save_json(picture.with_suffix(".json"), {**labels, "weights": np.asarray(weights, np.float64).tolist()})
