"""Attention weights as HTML, as a notebook shows them: a row for each query, a column for each key."""

import html
from collections.abc import Sequence

import jax
import numpy as np

from attn_jax.types import Array, Float

MOST = 64  # rows and columns that are shown
POSITIVE, NEGATIVE = "23, 78, 166", "194, 65, 12"  # red, green, blue
CELL = "width:14px;height:14px;padding:0;"


def heat_map(weights: Float[Array, "..."], *, queries: Sequence[str] = (), keys: Sequence[str] = ()) -> str:
    """Draws weights as a table of HTML, the darker the larger; negative weights are orange.

    The value of a weight appears under the mouse. Of leading axes the first entry is shown, and of long axes the first
    MOST queries and keys; the caption says so.

    Args:
        weights: [..., q, k], such as `Attended.weights`.
        queries: names of the rows, such as the tokens that are written; (): numbers.
        keys: names of the columns, such as the tokens that are read; (): numbers.

    Raises:
        ValueError: the weights have fewer than two axes, or there are names for another number of queries or keys.
    """
    if weights.ndim < 2:
        raise ValueError(f"weights of shape {weights.shape}; expected at least two axes, [..., queries, keys]")
    rows, columns = weights.shape[-2:]
    for what, names, count in (("queries", queries, rows), ("keys", keys, columns)):
        if len(names) not in (0, count):
            raise ValueError(f"{len(names)} names of {what}; the weights have {count}")
    first = np.asarray(weights, np.float32).reshape(-1, rows, columns)[0][:MOST, :MOST]
    largest = float(np.max(np.abs(first), initial=0.0)) or 1.0
    names = [html.escape(str(name)) for name in (queries or range(rows))]
    tops = [html.escape(str(name)) for name in (keys or range(columns))]
    head = "".join(f'<th style="writing-mode:vertical-rl;font-weight:400">{name}</th>' for name in tops[:MOST])
    body = "".join(
        f'<tr><th style="text-align:right;font-weight:400">{names[i]}</th>'
        + "".join(_cell(float(w), largest, f"{names[i]} → {tops[j]}") for j, w in enumerate(row))
        + "</tr>"
        for i, row in enumerate(first)
    )
    return (
        f'<table style="border-collapse:collapse;font-size:11px"><caption>{_caption(weights.shape)}</caption>'
        f"<tr><th></th>{head}</tr>{body}</table>"
    )


def _cell(weight: float, largest: float, where: str) -> str:
    colour = f"rgba({NEGATIVE if weight < 0 else POSITIVE}, {abs(weight) / largest:.3f})"
    return f'<td style="{CELL}background:{colour}" title="{where}: {weight:.3f}"></td>'


def _caption(shape: tuple[int, ...]) -> str:
    """Says the shape, and what of it is shown."""
    parts = ["the first map"] if len(shape) > 2 else []
    parts += [
        f"the first {MOST} {what}" for what, size in zip(("queries", "keys"), shape[-2:], strict=True) if size > MOST
    ]
    return f"weights {list(shape)}" + (f", of which {', '.join(parts)}" if parts else "")


def of_attended(weights: Array) -> str | None:
    """Draws weights for IPython; None inside of jit, where they have no values, or without two axes."""
    return None if isinstance(weights, jax.core.Tracer) or np.ndim(weights) < 2 else heat_map(weights)
