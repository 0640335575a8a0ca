"""Pictures of attention over an image: the image, and one panel for each word."""

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from attn_jax.figures.places import Boxes, Edges, measure_places
from attn_jax.figures.plots import save, styled
from attn_jax.types import Float

PANEL_INCHES = 1.55
COLUMNS = 8  # panels in a row
ALL = 0.995  # if the total weight on the image is below this, the title of a panel shows it
FAINTEST = 0.25  # brightness of the image where the weight is zero
FINEST = 400  # most pixels per side of a panel, several times the printed resolution


class Look(NamedTuple):
    """A word, its attention weights over cells, and the true boxes of the objects that it names."""

    word: str
    weights: Float[np.ndarray, "rows columns"]
    boxes: Boxes = ()


def plot_looks(
    pixels: UInt8[np.ndarray, "h w c"], looks: Sequence[Look], edges: Edges, path: str | os.PathLike, title: str = ""
) -> None:
    """Plots an image and one panel for each word, as figure 2 of Xu 2015 (arXiv 1502.03044).

    The cell of largest weight in a panel has the brightness of the image, a cell without weight a quarter of it.
    Weights are drawn as squares, without the blur that makes a few cells look like the outline of an object. True boxes
    are outlined. The title of a panel has the share of the weight on cells that touch them, and the weight on the whole
    image if the words of a question have the rest. `edges` are the edges of the cells in pixels.

    Raises:
        UserError: path cannot be written.
    """
    with styled():
        save(looks_figure(pixels, looks, edges, title), path)


def looks_figure(pixels: UInt8[np.ndarray, "h w c"], looks: Sequence[Look], edges: Edges, title: str = "") -> Any:
    """Makes the matplotlib Figure that `plot_looks` saves."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    columns = min(COLUMNS, 1 + len(looks))
    rows = math.ceil((1 + len(looks)) / columns)
    height, width = pixels.shape[:2]
    ratio = height / width
    image = np.repeat(pixels, 3, axis=-1) if pixels.shape[-1] == 1 else pixels
    size = (PANEL_INCHES * columns, PANEL_INCHES * rows * (ratio + 0.24) + 0.2)
    figure = Figure(figsize=size, layout="constrained")
    all_axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in all_axes:
        axes.set_axis_off()
    extent = (0, width, height, 0)
    all_axes[0].imshow(image, interpolation="nearest", extent=extent)
    all_axes[0].set_title("image", fontsize=8, color="0.4")
    for axes, look in zip(all_axes[1:], looks, strict=False):
        axes.imshow(shaded(image, look.weights, edges), interpolation="nearest", extent=extent)
        for left, top, right, bottom in look.boxes:
            box = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor="white", linewidth=1.2)
            axes.add_patch(box)
        word, total = look.word, float(look.weights.sum())
        if look.boxes:
            word += f"  {measure_places(look.weights, look.boxes, edges)['touch']:.2f}"
        if total < ALL:
            word += f"  (all cells {total:.2f})"
        axes.set_title(word, fontsize=9, parse_math=False)
    if any(look.boxes for look in looks):
        about = "white: true box, with the share of the weight on the cells that it touches"
        figure.supxlabel(about, fontsize=7, color="0.4")
    if title:
        figure.suptitle(title, fontsize=9, parse_math=False)
    return figure


def shaded(
    image: UInt8[np.ndarray, "h w 3"], weights: Float[np.ndarray, "rows columns"], edges: Edges
) -> UInt8[np.ndarray, "y x 3"]:
    """Darkens an image where weights are small, and tints it where they are large.

    The result is finer than a small image, so that an edge of a cell may lie within a pixel, and coarser than a
    photograph, since a dozen panels at full size would not fit in memory.
    """
    factor = min(4.0, FINEST / max(image.shape[:2]))
    # The middle of each fine pixel, in pixels of the image.
    y, x = ((np.arange(n) + 0.5) * side / n for side in image.shape[:2] for n in [max(1, round(factor * side))])
    row, column = (np.searchsorted(lines, at, side="right") - 1 for lines, at in zip(edges, (y, x), strict=True))
    share = (weights / max(float(weights.max()), 1e-9))[row[:, None], column][..., None]
    fine = image[y.astype(int)[:, None], x.astype(int)] / 255.0
    tint = np.array([1.0, 0.55, 0.1])
    result = fine * (FAINTEST + (1 - FAINTEST) * share) + 0.35 * tint * share * (1 - fine)
    return np.round(255 * np.clip(result, 0, 1)).astype(np.uint8)
