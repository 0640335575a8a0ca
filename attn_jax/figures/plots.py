"""Pictures of attention weights, stories and learning curves, as PNG, SVG or PDF by the suffix of the path.

matplotlib is imported at the first plot, and used without pyplot, so that no global state changes.
"""

import functools
import importlib.util
import io
import json
import math
import os
import pathlib
import re
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from attn_jax.data.files import write
from attn_jax.errors import UserError
from attn_jax.types import Array, Float

FORMATS = (".png", ".svg", ".pdf")
LATIN, JAPANESE = "DejaVu Sans", ("IPAexGothic", "Noto Sans CJK JP")
LONGEST_LABEL = 30  # characters; the rest of a token becomes an ellipsis
CELL_INCHES = (0.26, 0.42)  # for many and for few tokens: a label always fits its row
LARGEST_INCHES = 24.0  # beyond this size of the picture, cells shrink
SMALLEST_LABEL = 5.0  # points; if cells are smaller, only some have a label


def plot_weights(
    weights: Float[Array | np.ndarray, "..."],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    path: str | os.PathLike,
    title: str = "",
) -> None:
    """Plots attention weights [t, s]: a row for each target token, a column for each source token.

    The colour of row i, column j is the weight in [0, 1] that target token i gives to source token j (as in figure 3
    of Bahdanau 2015, arXiv 1409.0473). Spaces are shown as '␣'. The picture grows with the number of tokens, up to
    about 4,000 pixels a side; then the cells shrink, and only some have a label.

    Raises:
        UserError: the weights' shape is not [len(target_tokens), len(source_tokens)], or path cannot be written.
    """
    with styled():
        save(weights_figure(weights, source_tokens, target_tokens, title), path)


def plot_curves(metrics_jsonl: str | os.PathLike, path: str | os.PathLike, unit: str = "nats per token") -> bool:
    """Plots the metrics of a run over its steps.

    The first panel has the losses in training ("train/nll", which has no label smoothing, or else "train/loss") and in
    validation ("valid/loss"). Each other "valid/..." metric has its own panel. Several seeds are thin lines, with
    their mean.

    Args:
        metrics_jsonl: the file of metrics.
        path: path of the picture.
        unit: unit of both losses; "": they are not comparable, and each has its own panel.

    Returns:
        True if there was something to plot; otherwise no picture is written.

    Raises:
        UserError: the file cannot be read, or path cannot be written.
    """
    panels = curve_panels(metrics_jsonl, unit)
    if not panels:
        return False
    with styled():
        save(curves_figure(panels), path)
    return True


def curve_panels(metrics_jsonl: str | os.PathLike, unit: str) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Reads the data of `plot_curves`: {panel: {"training" or "validation": (steps [n], values [n, seeds])}}.

    Raises:
        UserError: the file cannot be read.
    """
    series = read_series(pathlib.Path(metrics_jsonl))
    loss = {"training": series.get("train/nll", series.get("train/loss")), "validation": series.get("valid/loss")}
    loss = {name: curve for name, curve in loss.items() if curve is not None}
    panels = {f"loss ({unit})": loss} if unit else {f"{name} loss": {name: curve} for name, curve in loss.items()}
    for name, curve in series.items():
        if name.startswith("valid/") and name != "valid/loss":
            panels[name.removeprefix("valid/").replace("_", " ")] = {"validation": curve}
    return {name: lines for name, lines in panels.items() if lines}


def save(figure: Any, path: str | os.PathLike) -> None:
    """Writes a matplotlib Figure in the format of the suffix of the path; makes the directory if there is none.

    Raises:
        UserError: unknown suffix, or the file cannot be written.
    """
    path = pathlib.Path(path)
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"cannot plot {path}: expected a file name that ends in {', '.join(FORMATS)}")
    try:
        content = io.BytesIO()
        with warnings.catch_warnings():
            # No warnings about characters missing in all fonts: the picture shows empty boxes for them.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(content, format=path.suffix[1:].lower(), dpi=150, bbox_inches="tight", pad_inches=0.12)
        write(path, content.getvalue())
    except OSError as error:
        raise UserError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error


def weights_figure(
    weights: Float[Array | np.ndarray, "..."],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str = "",
) -> Any:
    """Makes the matplotlib Figure that `plot_weights` saves."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    weights = np.asarray(weights, np.float64)
    shape = len(target_tokens), len(source_tokens)
    if weights.shape != shape or 0 in shape:
        raise UserError(
            f"attention weights of shape {list(weights.shape)} do not fit {shape[0]} target tokens and "
            f"{shape[1]} source tokens; expected [target, source] = {list(shape)}, both at least 1"
        )
    cell = np.clip(5 / max(shape), *CELL_INCHES)
    height, width = (float(min(count * cell, LARGEST_INCHES)) for count in shape)
    # The axes fill the figure and everything else lies outside, where the tight bounding box of `save` includes it.
    # So the size of the cells does not depend on the length of the labels.
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    signed = bool((weights < -1e-6).any())  # for local linear fits, differences or linear normalizers: negative is red
    colors = colormaps["RdBu" if signed else "Blues"].with_extremes(
        bad="black" if signed else "tab:red"
    )  # not a weight
    low = -1 if signed else 0
    image = axes.imshow(weights, cmap=colors, vmin=low, vmax=1, aspect="auto", interpolation="nearest")

    source_labels, target_labels = ([_visible(token) for token in tokens] for tokens in (source_tokens, target_tokens))
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    # A "$" in a token is a dollar sign, not the start of a formula.
    rows, size = _labelled(shape[0], height)
    axes.set_yticks(rows, [target_labels[i] for i in rows], fontsize=size, parse_math=False)
    columns, size = _labelled(shape[1], width)
    axes.set_xticks(columns, [source_labels[i] for i in columns], fontsize=size, parse_math=False)
    room = 0.95 * 72 * width / shape[1] * columns.step
    too_wide = [_width(source_labels[i]) * size > room for i in columns]
    words = any(wide and not source_tokens[i].startswith("<") for wide, i in zip(too_wide, columns, strict=True))
    for label, wide in zip(axes.get_xticklabels(), too_wide, strict=True):
        if wide or words:  # if labels are single characters and <eos>, only <eos> is turned
            label.set(rotation=45, ha="left", va="bottom", rotation_mode="anchor")
    axes.set_xlabel("source", color="0.4", labelpad=6)
    axes.set_ylabel("target", color="0.4", labelpad=6)
    if title:
        axes.set_title(title, pad=10, parse_math=False)

    for axis, count, inches in ((axes.xaxis, shape[1], width), (axes.yaxis, shape[0], height)):
        if inches / count > 0.05:  # otherwise lines would hide the cells
            axis.set_ticks(np.arange(count - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="0.85", linewidth=2 * min(width / shape[1], height / shape[0]))
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_color("0.6")
    bar_height = float(np.clip(height, 0.9, 2.4))
    bar_axes = figure.add_axes((1 + 0.15 / width, 1 - bar_height / height, 0.13 / width, bar_height / height))
    outside = {(True, False): "min", (False, True): "max", (True, True): "both"}  # weights may lie outside of -1 to 1
    extend = outside.get((bool((weights < low - 1e-6).any()), bool((weights > 1 + 1e-6).any())), "neither")
    bar = figure.colorbar(image, cax=bar_axes, ticks=[low, (low + 1) / 2, 1], extend=extend)
    bar.ax.tick_params(length=2, labelsize=8)
    bar.outline.set(edgecolor="0.6", linewidth=0.8)
    bar.set_label("weight", color="0.4", fontsize=8)
    return figure


def plot_story(
    weights: Float[Array | np.ndarray, "h n"],
    statements: Sequence[str],
    caption: str,
    path: str | os.PathLike,
    evidence: Sequence[int] = (),
) -> None:
    """Plots the weights of n statements in h hops: a row for each statement, a column for each hop.

    The statements in `evidence`, numbered from 1, which support the true answer, are red and have an arrow. The caption
    is written below.

    Raises:
        UserError: the weights' shape is not [hops, len(statements)], or path cannot be written.
    """
    from matplotlib.figure import Figure

    weights = np.asarray(weights, np.float64)
    if weights.ndim != 2 or weights.shape[1] != len(statements) or 0 in weights.shape:
        raise UserError(
            f"weights of shape {list(weights.shape)} do not fit {len(statements)} statements; expected [hops, "
            f"{len(statements)}], both at least 1"
        )
    hops, count = weights.shape
    height = min(0.24 * count, LARGEST_INCHES)
    true = set(evidence)
    labelled, size = _labelled(count, height, largest=8.0)
    shown = sorted({*labelled, *(i - 1 for i in true)})
    with styled():
        figure = Figure(figsize=(0.42 * hops, height))
        axes = figure.add_axes((0, 0, 1, 1))
        cmap, low = ("RdBu", -1) if (weights < -1e-6).any() else ("Blues", 0)  # red where negative
        axes.imshow(weights.T, cmap=cmap, vmin=low, vmax=1, aspect="auto", interpolation="nearest")
        labels = [f"{statements[i]}  {'→' if i + 1 in true else '  '}" for i in shown]
        axes.set_yticks(shown, labels, fontsize=size, parse_math=False)
        for i, label in zip(shown, axes.get_yticklabels(), strict=True):
            label.set_color("tab:red" if i + 1 in true else "black")  # not bold: Japanese fonts have only one weight
        axes.set_xticks(range(hops), range(1, hops + 1), fontsize=8)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        for (hop, place), weight in np.ndenumerate(weights):
            if abs(weight) >= 0.05:
                color = "white" if abs(weight) > 0.6 else "black"
                axes.text(
                    hop,
                    place,
                    re.sub("^(-?)0", r"\1", f"{weight:.2f}"),
                    ha="center",
                    va="center",
                    fontsize=6,
                    color=color,
                )
        axes.set_xlabel(caption, fontsize=9, parse_math=False)
        axes.spines[:].set_color("0.6")
        save(figure, path)


def curves_figure(panels: dict) -> Any:
    """Draws a panel for each entry of `curve_panels`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8 * len(panels), 3.2), layout="constrained")
    all_axes = figure.subplots(1, len(panels), squeeze=False, sharex=True)[0]
    colors = {"training": "tab:blue", "validation": "tab:orange"}
    for axes, (title, lines) in zip(all_axes, panels.items(), strict=True):
        for name, (steps, values) in lines.items():
            # Few points get markers: a single point makes no line.
            style = {"color": colors[name], "marker": "o" if len(steps) < 40 else "", "markersize": 3}
            if values.shape[1] > 1:
                axes.plot(steps, values, color=colors[name], linewidth=0.6, alpha=0.5)
            label = name if values.shape[1] == 1 else f"{name}, mean of {values.shape[1]} seeds"
            axes.plot(steps, values.mean(axis=1), label=label, linewidth=1.5, **style)
        axes.set(title=title, xlabel="step")
        axes.grid(color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    return figure


def read_series(path: pathlib.Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Reads {metric: (steps [n], values [n, seeds])}; null becomes nan; malformed or incomplete lines are skipped."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UserError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    points: dict[str, list[tuple[int, list]]] = {}
    for line in lines:
        try:
            record = json.loads(line)
            step = record.pop("step")
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        for name, value in record.items() if type(step) is int else ():
            values = value if isinstance(value, list) else [value]
            if all(x is None or type(x) in (int, float) for x in values):
                points.setdefault(name, []).append((step, values))
    series = {}
    for name, found in points.items():
        found = [(step, values) for step, values in found if len(values) == len(found[0][1])]
        values = np.array([values for _, values in found], np.float64)
        if np.isfinite(values).any():
            series[name] = np.array([step for step, _ in found]), values
    return series


def styled() -> Any:
    """Returns a context manager in which texts use fonts that have their characters."""
    import matplotlib

    return matplotlib.rc_context({"font.family": font_families(), "text.usetex": False})


@functools.cache
def font_families() -> list[str]:
    """Returns the font families to look for a character in, in order; Japanese ones only if they are installed.

    The package matplotlib_fontja brings a Japanese font, which lacks '▁'; DejaVu Sans, which comes with matplotlib,
    has it. The package is not imported: that would change the font of the whole process.
    """
    from matplotlib import font_manager

    spec = importlib.util.find_spec("matplotlib_fontja")
    for folder in spec.submodule_search_locations or () if spec else ():
        for font in sorted(pathlib.Path(folder).rglob("*.ttf")):
            font_manager.fontManager.addfont(font)
    installed = font_manager.fontManager.get_font_names()
    return [LATIN, *(family for family in JAPANESE if family in installed)]


def _labelled(count: int, inches: float, largest: float = 11.0) -> tuple[range, float]:
    """Returns (the rows or columns that get a label, the size of the labels in points)."""
    size = min(largest, 0.55 * 72 * inches / count)
    if size >= SMALLEST_LABEL:
        return range(count), size
    return range(0, count, math.ceil(SMALLEST_LABEL / size)), SMALLEST_LABEL


def _visible(token: str) -> str:
    """Returns the token as one line: spaces and control characters become visible, and a long token is cut."""
    shown = "".join("␣" if c.isspace() else c if c.isprintable() else f"\\u{ord(c):04x}" for c in token)
    return shown if len(shown) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…"


def _width(label: str) -> float:
    """Estimates the width of a label in multiples of the font size."""
    return sum((1.0 if unicodedata.east_asian_width(c) in "WF" else 0.6 for c in label), 0.0)
