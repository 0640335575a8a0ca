"""Measures of the location of attention, from weights on the cells of a grid and the true boxes of each word.

For a word with true boxes R and weights on rows x columns cells of an image, by convention equal parts of it:

    touch     sum of the weights of cells that touch R             attention correctness, Liu 2017 (arXiv 1605.09553)
    point     1 if the cell of the largest weight touches R        the pointing game, Zhang 2016 (arXiv 1608.00507)
    strict    sum of the weights times the share of the cell that R covers
    uniform   touch of equal weights

Weight on the words of a question is outside of every box. A cell of a deep network also sees pixels outside of its
rectangle (ConvolutionGrid.receptive_field), and its receptive field is not centred on it (ConvolutionGrid.edges), so
that a correct word may be read from a cell beside its box.
"""

from collections.abc import Sequence

import numpy as np

from attn_jax.types import Float

Boxes = Sequence[tuple[int, int, int, int]]
Edges = tuple[Float[np.ndarray, " m"], Float[np.ndarray, " n"]]  # m = rows + 1, n = columns + 1


def equal_parts(image: tuple[int, int], cells: tuple[int, int]) -> Edges:
    """Returns the edges of cells of equal size; if they do not divide the image, edges are fractions of a pixel."""
    rows, columns = (np.linspace(0, side, count + 1) for side, count in zip(image, cells, strict=True))
    return rows, columns


def covered(boxes: Boxes, edges: Edges) -> Float[np.ndarray, "rows columns"]:
    """Returns the share of the area of each cell that boxes cover; overlaps of boxes count once.

    Args:
        boxes: (left, top, right, bottom) in pixels, right and bottom exclusive.
        edges: edges of rows and of columns in pixels, from 0 to the height and from 0 to the width.
    """
    cells = tuple(len(lines) - 1 for lines in edges)
    # Pieces between all edges of cells and boxes: each is inside or outside of a box, and in one cell.
    cuts = [
        np.unique(
            np.concatenate([lines, [np.clip(box[i], 0, lines[-1]) for box in boxes for i in (1 - axis, 3 - axis)]])
        )
        for axis, lines in enumerate(edges)
    ]
    (y, x) = (0.5 * (cut[1:] + cut[:-1]) for cut in cuts)
    inside = np.zeros((len(y), len(x)), bool)
    for left, top, right, bottom in boxes:
        inside |= ((y > top) & (y < bottom))[:, None] & (x > left) & (x < right)
    area = inside * np.diff(cuts[0])[:, None] * np.diff(cuts[1])
    total = np.zeros(cells)
    rows, columns = (
        np.searchsorted(lines, places, side="right") - 1 for lines, places in zip(edges, (y, x), strict=True)
    )
    np.add.at(total, (rows[:, None], columns), area)
    return total / np.outer(np.diff(edges[0]), np.diff(edges[1]))


def measure_places(weights: Float[np.ndarray, "rows columns"], boxes: Boxes, edges: Edges) -> dict[str, float]:
    """Computes the measures of one word."""
    share = covered(boxes, edges)
    touches = share > 0
    return {
        "touch": float(weights[touches].sum()),
        "point": float(touches.flat[int(np.argmax(weights))] and weights.max() > 0),
        "strict": float(np.sum(weights * share)),
        "uniform": float(touches.mean()),
    }
