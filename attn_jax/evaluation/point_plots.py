"""Pictures of kernel regressions: the fit among its points, the weights behind it, one prediction in detail."""

import os
from typing import Any, NamedTuple

import numpy as np

from attn_jax.evaluation.plots import font_families, save
from attn_jax.tasks.points import Columns
from attn_jax.types import Float

Inputs = Float[np.ndarray, "_ d"]
Targets = Float[np.ndarray, "_ v"]
COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive")


class Shown(NamedTuple):
    """The training points of a picture."""

    columns: Columns
    inputs: Inputs
    targets: Targets


def fit(
    shown: Shown, places: Inputs, predictions: Targets, test: tuple[Inputs, Targets], tested: Targets, path: os.PathLike
) -> None:
    """One input: the prediction at the `places`, the training points, and the test points (predicted as `tested`).

    Several inputs: each test point's prediction against its target, or of classes the first two inputs of the test
    points, coloured by the class that is predicted.
    """
    with styled():
        figure, axes = panel()
        columns = shown.columns
        if shown.inputs.shape[1] > 1 and not columns.classes:
            axes.plot(test[1][:, 0], tested[:, 0], "o", color=COLORS[0], alpha=0.5, markersize=4)
            ends = [min(test[1].min(), tested.min()), max(test[1].max(), tested.max())]
            axes.plot(ends, ends, color="0.6", linewidth=1)
            axes.set(xlabel=columns.target, ylabel=f"prediction of {columns.target}")
        elif shown.inputs.shape[1] > 1:
            draw_classes(axes, shown, test[0], tested)
        else:
            for value in range(shown.targets.shape[1]):
                color, name = COLORS[value % len(COLORS)], columns.classes[value] if columns.classes else "prediction"
                axes.plot(shown.inputs[:, 0], shown.targets[:, value], "o", color=color, alpha=0.45, markersize=4)
                axes.plot(places[:, 0], predictions[:, value], color=color, label=name)
            if not columns.classes:
                order = np.argsort(test[0][:, 0])
                axes.plot(test[0][order, 0], test[1][order, 0], "--", color="0.35", linewidth=1.2, label="test")
            axes.legend(frameon=False)
            axes.set(xlabel=columns.inputs[0], ylabel="probability" if columns.classes else columns.target)
        save(figure, path)


def draw_classes(axes: Any, shown: Shown, inputs: Inputs, predictions: Targets) -> None:
    """The first two inputs of some points, small, in the colour of their prediction; training points as rings."""
    for value, name in enumerate(shown.columns.classes):
        color = COLORS[value % len(COLORS)]
        mine = inputs[predictions.argmax(axis=-1) == value]
        axes.plot(mine[:, 0], mine[:, 1], ".", color=color, markersize=3, alpha=0.6)
        mine = shown.inputs[shown.targets.argmax(axis=-1) == value]
        axes.plot(mine[:, 0], mine[:, 1], "o", color=color, markersize=5, markerfacecolor="none", label=name)
    axes.set(xlabel=shown.columns.inputs[0], ylabel=shown.columns.inputs[1])
    axes.legend(frameon=False, title=f"{shown.columns.target} (rings: training)", title_fontsize=8)


def weights(shown: Shown, places: Inputs, values: Float[np.ndarray, "q n"], path: os.PathLike) -> None:
    """The attention weights: a row per query, a column per training point, both in the order of the first input."""
    rows, columns = np.argsort(places[:, 0], kind="stable"), np.argsort(shown.inputs[:, 0], kind="stable")
    with styled():
        figure, axes = panel()
        draw_weights(axes, values[np.ix_(rows, columns)], places[rows, 0])
        axes.set(xlabel=f"training points, by {shown.columns.inputs[0]}", ylabel=f"query {shown.columns.inputs[0]}")
        save(figure, path)


def draw_weights(
    axes: Any, values: Float[np.ndarray, "q n"], places: Float[np.ndarray, " q"], bar: bool = True
) -> None:
    """A heat map with round numbers beside the rows of these queries, which are in order; red for negative weights."""
    largest = float(np.nanmax(np.abs(values))) or 1.0
    low = -largest if values.min() < -1e-3 * largest else 0.0
    image = axes.imshow(
        values, cmap="RdBu" if low else "Blues", vmin=low, vmax=largest, aspect="auto", interpolation="nearest"
    )
    ticks = round_numbers(places[0], places[-1])
    axes.set_yticks(np.interp(ticks, places, np.arange(len(places))), [f"{tick + 0.0:.10g}" for tick in ticks])
    if bar:
        axes.figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02).outline.set(edgecolor="0.6", linewidth=0.8)


def round_numbers(low: float, high: float) -> Float[np.ndarray, " t"]:
    """A few of them from `low` to `high`; these themselves where there is no room for any."""
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    inside = ticks[(ticks >= low) & (ticks <= high)]
    return inside if len(inside) else np.unique([low, high])


def query(
    shown: Shown, place: Float[np.ndarray, " d"], values: Float[np.ndarray, " n"], answer: str, path: os.PathLike
) -> None:
    """One prediction: the training points, the larger the more they count in it (red: less than nothing)."""
    columns = shown.columns
    with styled():
        figure, axes = panel()
        size = 12 + 400 * np.abs(values) / max(np.abs(values).max(), 1e-12)
        flat = shown.inputs.shape[1] == 1
        labels = shown.targets.argmax(axis=-1) if columns.classes else None
        height = (labels if columns.classes else shown.targets[:, 0]) if flat else shown.inputs[:, 1]
        color = [COLORS[i % len(COLORS)] for i in labels] if columns.classes else COLORS[0]
        if not columns.classes:
            color = np.where(values < 0, "tab:red", COLORS[0])
        axes.scatter(shown.inputs[:, 0], height, s=size, color=color, alpha=0.5, linewidth=0)
        if flat:
            axes.axvline(place[0], color="0.3", linewidth=1, linestyle="--")
            if columns.classes:
                axes.set_yticks(range(len(columns.classes)), columns.classes)
        else:
            axes.plot(*place[:2], marker="+", color="black", markersize=14, markeredgewidth=2)
        axes.set(xlabel=columns.inputs[0], ylabel=columns.target if flat else columns.inputs[1])
        at = ", ".join(f"{name} {value:.4g}" for name, value in zip(columns.inputs, place, strict=True))
        axes.set_title(f"{at}:  {columns.target} {answer}", fontsize=10, parse_math=False)
        save(figure, path)


def panel(columns: int = 1, rows: int = 1, **options: Any) -> tuple[Any, Any]:
    """(a figure, its axes): one, or an array of them."""
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(5.2 if columns == 1 else 2.9 * columns, 3.6 if rows == 1 else 2.6 * rows), layout="constrained"
    )
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes[0, 0] if axes.size == 1 else axes


def styled() -> Any:
    """A context in which texts are drawn in fonts that have their characters."""
    import matplotlib

    return matplotlib.rc_context({"font.family": font_families(), "text.usetex": False})
