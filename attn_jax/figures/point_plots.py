"""Pictures of kernel regressions: the fit with its points, the attention weights, one prediction in detail."""

import dataclasses
import functools
import os
from typing import Any

import numpy as np

from attn_jax.data.tables import digits_of
from attn_jax.figures.plots import save, styled
from attn_jax.tasks.points.points import Columns
from attn_jax.types import Float

Inputs = Float[np.ndarray, "_ d"]
Targets = Float[np.ndarray, "_ v"]
COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive")


@dataclasses.dataclass(frozen=True)
class TrainingPoints:
    """Training points of one seed. Numbers are formatted with the digits that distinguish these points."""

    columns: Columns
    inputs: Inputs  # [k, d]
    targets: Targets  # [k, v]

    @functools.cached_property
    def digits(self) -> list[int]:
        """Numbers of significant digits of each input, and of the target."""
        return [digits_of(column, 4) for column in (*self.inputs.T, self.targets[:, 0])]

    def inputs_text(self, values: Float[np.ndarray, " d"]) -> str:
        """Formats the inputs of a point."""
        rows = zip(self.columns.inputs, values, self.digits, strict=False)
        return ", ".join(f"{name} {value:.{digits}g}" for name, value, digits in rows)

    def target_text(self, values: Float[np.ndarray, " v"]) -> str:
        """Formats a target or a prediction: the name of a class, or a number."""
        classes = self.columns.classes
        return classes[int(np.argmax(values))] if classes else f"{values[0]:.{self.digits[-1]}g}"


def plot_fit(
    train: TrainingPoints,
    places: Inputs,
    predictions: Targets,
    test: tuple[Inputs, Targets],
    tested: Targets,
    path: os.PathLike,
) -> None:
    """Plots a fitted regression.

    With one input: the predictions over it, with the training and the test points. With several: the predictions of
    the test points over their targets or, for classes, the test points in the plane of the first two inputs, in the
    colour of the predicted class.

    Args:
        train: the training points.
        places: inputs [q, 1] of the curve, in order; not used with several inputs.
        predictions: predictions at `places`.
        test: inputs and targets of the test points.
        tested: predictions of the test points.
        path: path of the picture.
    """
    with styled():
        figure, axes = panel()
        columns = train.columns
        if train.inputs.shape[1] > 1 and not columns.classes:
            axes.plot(test[1][:, 0], tested[:, 0], "o", color=COLORS[0], alpha=0.5, markersize=4)
            ends = [min(test[1].min(), tested.min()), max(test[1].max(), tested.max())]
            axes.plot(ends, ends, color="0.6", linewidth=1)
            axes.set(xlabel=plain(columns.target), ylabel=plain(f"prediction of {columns.target}"))
        elif train.inputs.shape[1] > 1:
            plot_classes(axes, train, test[0], tested)
        else:
            for value in range(train.targets.shape[1]):
                color, name = (
                    COLORS[value % len(COLORS)],
                    plain(columns.classes[value]) if columns.classes else "prediction",
                )
                axes.plot(train.inputs[:, 0], train.targets[:, value], "o", color=color, alpha=0.45, markersize=4)
                axes.plot(places[:, 0], predictions[:, value], color=color, label=name)
            if not columns.classes:
                order = np.argsort(test[0][:, 0])
                axes.plot(test[0][order, 0], test[1][order, 0], "--", color="0.35", linewidth=1.2, label="test")
            axes.legend(frameon=False)
            axes.set(
                xlabel=plain(columns.inputs[0]), ylabel="probability" if columns.classes else plain(columns.target)
            )
        save(figure, path)


def plot_classes(axes: Any, train: TrainingPoints, inputs: Inputs, predictions: Targets) -> None:
    """Plots points by their first two inputs, in the colour of their prediction; training points are rings."""
    for value, name in enumerate(train.columns.classes):
        color = COLORS[value % len(COLORS)]
        mine = inputs[predictions.argmax(axis=-1) == value]
        axes.plot(mine[:, 0], mine[:, 1], ".", color=color, markersize=3, alpha=0.6)
        mine = train.inputs[train.targets.argmax(axis=-1) == value]
        axes.plot(mine[:, 0], mine[:, 1], "o", color=color, markersize=5, markerfacecolor="none", label=plain(name))
    axes.set(xlabel=plain(train.columns.inputs[0]), ylabel=plain(train.columns.inputs[1]))
    axes.legend(frameon=False, title=plain(f"{train.columns.target} (rings: training)"), title_fontsize=8)


def plot_weights(train: TrainingPoints, places: Inputs, values: Float[np.ndarray, "q n"], path: os.PathLike) -> None:
    """Plots attention weights [q, k]: queries by training points, both in the order of the first input."""
    rows, columns = np.argsort(places[:, 0], kind="stable"), np.argsort(train.inputs[:, 0], kind="stable")
    with styled():
        figure, axes = panel()
        plot_heat_map(axes, values[np.ix_(rows, columns)], places[rows, 0])
        first = plain(train.columns.inputs[0])
        axes.set(xlabel=f"training points, by {first}", ylabel=f"query {first}")
        save(figure, path)


def plot_heat_map(
    axes: Any, values: Float[np.ndarray, "q n"], places: Float[np.ndarray, " q"], bar: bool = True
) -> None:
    """Plots weights [q, n] as a heat map, negative ones in red; round numbers stand beside the sorted queries."""
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
    """Returns a few round numbers from `low` to `high`, or `low` and `high` if there is none between them."""
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    inside = ticks[(ticks >= low) & (ticks <= high)]
    return inside if len(inside) else np.unique([low, high])


def plot_query(
    train: TrainingPoints,
    place: Float[np.ndarray, " d"],
    values: Float[np.ndarray, " n"],
    prediction: Float[np.ndarray, " v"],
    path: os.PathLike,
) -> None:
    """Plots one prediction: the area of each training point grows with its weight; negative weights are red."""
    columns = train.columns
    with styled():
        figure, axes = panel()
        size = 12 + 400 * np.abs(values) / max(np.abs(values).max(), 1e-12)
        flat = train.inputs.shape[1] == 1
        labels = train.targets.argmax(axis=-1) if columns.classes else None
        height = (labels if columns.classes else train.targets[:, 0]) if flat else train.inputs[:, 1]
        color = [COLORS[i % len(COLORS)] for i in labels] if columns.classes else COLORS[0]
        if not columns.classes:
            color = np.where(values < 0, "tab:red", COLORS[0])
        axes.scatter(train.inputs[:, 0], height, s=size, color=color, alpha=0.5, linewidth=0)
        if flat:
            axes.axvline(place[0], color="0.3", linewidth=1, linestyle="--")
            if columns.classes:
                axes.set_yticks(range(len(columns.classes)), [plain(name) for name in columns.classes])
        else:
            axes.plot(*place[:2], marker="+", color="black", markersize=14, markeredgewidth=2)
        axes.set(xlabel=plain(columns.inputs[0]), ylabel=plain(columns.target if flat else columns.inputs[1]))
        title = f"{train.inputs_text(place)}:  {columns.target} {train.target_text(prediction)}"
        axes.set_title(title, fontsize=10, parse_math=False)
        save(figure, path)


def plain(text: str) -> str:
    """Escapes a label so that matplotlib does not read text between two dollar signs as a formula."""
    return text.replace("$", r"\$")


def panel(columns: int = 1, rows: int = 1, **options: Any) -> tuple[Any, Any]:
    """Makes (figure, axes): a single Axes, or an array [rows, columns] of them."""
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(5.2 if columns == 1 else 2.9 * columns, 3.6 if rows == 1 else 2.6 * rows), layout="constrained"
    )
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes[0, 0] if axes.size == 1 else axes
