"""Pictures of glimpses: their path on the image, and the crop and the guess at each stop."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt8

from attn_jax.figures.overlays import PANEL_INCHES
from attn_jax.figures.places import Boxes
from attn_jax.figures.plots import save, styled
from attn_jax.layers.glimpses import corner

LONGEST = 8  # most panels beside the image


class Stop(NamedTuple):
    """A glimpse: its square of pixels (left, top, right, bottom), and the most probable word after it."""

    box: tuple[float, float, float, float]
    guess: str
    probability: float

    @property
    def middle(self) -> tuple[float, float]:
        """The centre, (x, y)."""
        left, top, right, bottom = self.box
        return (left + right) / 2, (top + bottom) / 2


def stops_of(
    places: Float[np.ndarray, "t 2"], image: tuple[int, int], size: int, guesses: Sequence[tuple[str, float]]
) -> list[Stop]:
    """Makes the stops of a path from places in [-1, 1] and the guess (word, probability) after each glimpse."""
    corners = np.asarray(corner(jnp.asarray(places), image, size)).tolist()
    return [
        Stop((left, top, left + size, top + size), word, float(probability))
        for (top, left), (word, probability) in zip(corners, guesses, strict=True)
    ]


def plot_trajectory(
    pixels: UInt8[np.ndarray, "h w c"],
    stops: Sequence[Stop],
    path: str | os.PathLike,
    title: str = "",
    boxes: Boxes = (),
) -> None:
    """Plots the numbered path of the glimpses on the image, and beside it each crop with the guess after it.

    As figure 3 of Mnih 2014 (arXiv 1406.6247). True boxes are outlined in white.

    Raises:
        UserError: path cannot be written.
    """
    with styled():
        save(trajectory_figure(pixels, stops, title, boxes), path)


def trajectory_figure(
    pixels: UInt8[np.ndarray, "h w c"], stops: Sequence[Stop], title: str = "", boxes: Boxes = ()
) -> Any:
    """Makes the matplotlib Figure that `plot_trajectory` saves."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    height, width = pixels.shape[:2]
    image = np.repeat(pixels, 3, axis=-1) if pixels.shape[-1] == 1 else pixels
    shown = stops[:LONGEST]
    figure = Figure(figsize=(PANEL_INCHES * (1 + len(shown)) + 0.6, PANEL_INCHES * 1.5), layout="constrained")
    widths = [1.4, *[1.0] * len(shown)]
    axes_of = figure.subplots(1, 1 + len(shown), squeeze=False, width_ratios=widths)[0]
    for axes in axes_of:
        axes.set_axis_off()
    colors = [(1.0, 0.75 - 0.6 * i / max(1, len(stops) - 1), 0.1) for i in range(len(stops))]
    axes = axes_of[0]
    axes.imshow(image // 2, interpolation="nearest", extent=(0, width, height, 0))
    for left, top, right, bottom in boxes:
        axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor="white", linewidth=1))
    axes.plot(*zip(*[stop.middle for stop in stops], strict=True), color="0.8", linewidth=0.8)
    for number, (stop, color) in enumerate(zip(stops, colors, strict=True), 1):
        left, top, right, bottom = stop.box
        axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=color, linewidth=1.2))
        axes.text(*stop.middle, str(number), color=color, fontsize=7, ha="center", va="center")
    axes.set_xlim(0, width), axes.set_ylim(height, 0)
    for number, (axes, stop, color) in enumerate(zip(axes_of[1:], shown, colors, strict=False), 1):
        left, top, right, bottom = (int(side) for side in stop.box)
        seen = np.zeros((bottom - top, right - left, 3), np.uint8)
        y, x = slice(max(0, top), max(0, bottom)), slice(max(0, left), max(0, right))
        part = image[y, x]
        seen[max(0, -top) : max(0, -top) + part.shape[0], max(0, -left) : max(0, -left) + part.shape[1]] = part
        axes.imshow(seen, interpolation="nearest")
        axes.set_title(f"{number}: {stop.guess} {stop.probability:.2f}", fontsize=8, color=color, parse_math=False)
    if title:
        figure.suptitle(title, fontsize=9, parse_math=False)
    return figure
