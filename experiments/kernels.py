"""Kernel regression on the curve y = 2 sin x + x + noise: which kernel, which width, and how fast does it learn?

    python experiments/kernels.py            # which kernel, which width
    python experiments/kernels.py --rates    # how fast

The data follows the chapter on Nadaraya-Watson regression of "Dive into Deep Learning": 40 points, x uniform on [0, 5],
noise of variance 1. The error is the mean squared distance to the curve at 0, 0.1, ... 4.9. Methods that are not marked
"picked" or "oracle" see the 40 points only; but degrees and widths of the mixtures were chosen by us on the data sets
of seeds 0 to 299. So one table has the errors of these, and one those of 1,000 other data sets (seeds 300 to 1,299), on
which nothing was chosen.

The rates: for n from 400 to 25,600 points, the width of least risk, computed exactly (bias and variance given the
inputs, 8 samples of them), and the exponents of width and risk in n.
"""

import argparse
import pathlib
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from attn_jax.attention.build import build_attention  # noqa: E402
from attn_jax.attention.normalizers import kernel_sum  # noqa: E402
from attn_jax.attention.scores.kernels import KERNELS  # noqa: E402
from attn_jax.errors import one_line  # noqa: E402
from attn_jax.evaluation.statistics import compare, holm  # noqa: E402
from attn_jax.figures import point_plots  # noqa: E402
from attn_jax.models.kernel_regression.criteria import CRITERIA  # noqa: E402
from attn_jax.models.kernel_regression.model import KernelRegression  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from attn_jax.tasks.points.curves import curve, grid  # noqa: E402
from experiments import raw  # noqa: E402

NUM_POINTS = 40
CHOSEN, FRESH = range(300), range(300, 1300)  # seeds of data sets: those on which settings were chosen, and others
WIDTHS = tuple(2.0 ** (i / 4) for i in range(-7, 15))  # of a mixture, as in configs/kernel_regression.py
PLACES, TRUTH = grid()
CHAPTER = (("gaussian", 1.0), ("boxcar", 1.0), ("constant", 1.0), ("triangular", 1.0), ("epanechnikov", 1.0))
SIGMAS = (0.1, 0.2, 0.5, 1.0)


def model(kernel: str = "gaussian", width: float = 1.0, criterion: str = "leave_one_out", **fields) -> KernelRegression:
    """Makes a kernel regression with an initial (or fixed) width."""
    score = KERNELS[kernel](initial=(width,), exact=True)
    attention = build_attention(score=score, normalize=kernel_sum)
    return KernelRegression(attention=attention, criterion=CRITERIA[criterion], **fields)


def draws(seeds: Iterable[int], num_points: int = NUM_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Samples a data set (x, y) for each seed, each [seeds, n, 1]."""
    made = [curve(num_points, 1.0, np.random.default_rng(seed)) for seed in seeds]
    return tuple(np.stack(parts).astype(np.float32) for parts in zip(*made, strict=True))


def fit(
    kernel: KernelRegression, x: np.ndarray, y: np.ndarray, steps: int = 0, rate: float = 0.05
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (predictions [draws, 50] at the inputs of the chapter, widths [draws]) after `steps` steps of Adam.

    With a learned width, inputs are divided by their standard deviations, as in the package.
    """
    tx = optax.adam(rate)
    index = jnp.arange(x.shape[1])

    def one(draw):
        x, y = draw
        mean, scale = x.mean(), (x.std() if steps or len(kernel.components) > 1 else 1.0)
        inputs, center = (x - mean) / scale, y.mean()
        params = kernel.init(jax.random.key(0), {"inputs": inputs})
        batch = {"inputs": inputs, "targets": y - center, "index": index}

        def step(carry, _):
            params, state = carry
            grads = jax.grad(lambda p: kernel.loss_fn(p, batch)[0] / len(index))(params)
            updates, state = tx.update(grads, state)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, tx.init(params)), None, length=steps)
        mixture = kernel.mixture_weights(params, inputs, y - center)
        query = (jnp.asarray(PLACES, jnp.float32) - mean) / scale
        found, _ = kernel.predict(params, query, inputs, y - center, mixture)
        return found[:, 0] + center, kernel.width(params, 1) * scale

    found, widths = jax.jit(lambda draws: jax.lax.map(one, draws, batch_size=50))((jnp.asarray(x), jnp.asarray(y)))
    return np.asarray(found, np.float64), np.asarray(widths)


def errors(predictions: np.ndarray) -> np.ndarray:
    """Returns the mean squared distance to the curve, [...]."""
    return np.mean((predictions - TRUTH[:, 0]) ** 2, axis=-1)


def grid_of_widths(degree: int, x: np.ndarray, y: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Returns the errors with each fixed width, [widths, draws]."""
    kernel = model(degrees=(degree,))

    def one(width, draw):
        x, y = draw
        params = {"score": {"log_precision": -2 * jnp.log(width)}}
        found, _ = kernel.predict(params, jnp.asarray(PLACES, jnp.float32), x, y - y.mean(), jnp.ones(1))
        return found[:, 0] + y.mean()

    found = jax.jit(lambda widths, draws: jax.lax.map(lambda h: jax.vmap(lambda d: one(h, d))(draws), widths))
    return errors(np.asarray(found(jnp.asarray(widths, jnp.float32), (jnp.asarray(x), jnp.asarray(y))), np.float64))


def table(x: np.ndarray, y: np.ndarray) -> list[tuple[str, str, np.ndarray, str]]:
    """Returns rows (estimator, origin of its width, errors of the data sets, width)."""
    rows = []
    for kernel, width in CHAPTER:
        rows.append((f"{kernel} kernel", "picked", errors(fit(model(kernel, width), x, y)[0]), f"{width:g}"))
    for width, found in zip(SIGMAS[:3], grid_of_widths(0, x, y, np.array(SIGMAS[:3])), strict=True):
        rows.append(("gaussian kernel", "picked", found, f"{width:g}"))
    widths = np.geomspace(0.1, 3, 25)
    for degree, name in ((0, "gaussian kernel"), (1, "local lines")):
        found = grid_of_widths(degree, x, y, widths)
        best = found.mean(axis=1).argmin()
        rows.append((name, "picked by all errors", found[best], f"{widths[best]:.2f}"))
        rows.append((name, "oracle: the best for each draw", found.min(axis=0), "varies"))
    start = NUM_POINTS**-0.2
    for degree, name in ((0, "gaussian kernel"), (1, "local lines")):
        for criterion in ("training", "leave_one_out", "aicc"):
            kernel = model(width=start, degrees=(degree,), criterion=criterion)
            found, learned = fit(kernel, x, y, steps=300)
            how = f"learned by gradient, {criterion.replace('_', '-')}"
            rows.append((name, how, errors(found), f"{np.median(learned):.2f} (median)"))
    for degrees in ((0,), (1,), (0, 1), (0, 1, 2, 3)):
        kernel = model(width=start, degrees=degrees, widths=WIDTHS, criterion="aicc")
        name = f"mixture of degrees {', '.join(map(str, degrees))} and {len(WIDTHS)} widths"
        rows.append((name, "weights softmax(-n AICc / 2)", errors(fit(kernel, x, y)[0]), "mixed"))
    return rows


def risk(degree: int, x: jax.Array, places: jax.Array, f: Callable, widths: jax.Array) -> jax.Array:
    """Returns the mean of bias^2 + variance over test inputs, given x [n, d] and noise of variance 1; [widths]."""
    kernel = model(degrees=(degree,))

    def one(width):
        params = {"score": {"log_precision": -2 * jnp.log(width)}}
        smoother = kernel.component_smoother(params, places, x, degree, 1.0)
        bias = smoother @ f(x) - f(places)
        return jnp.mean(jnp.square(bias) + jnp.sum(jnp.square(smoother), axis=-1))

    return jax.lax.map(one, widths)


def rates(
    degree: int, interior: bool, sizes: Sequence[int], num_draws: int, features: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (best width, its risk) for each n: the minimum of a parabola through the mean risk over data sets."""
    rng = np.random.default_rng(0)
    if features == 1:
        places = PLACES[(PLACES[:, 0] >= 1) & (PLACES[:, 0] <= 4)] if interior else PLACES
    else:
        places = rng.uniform(1, 4, (50, features))
    f = lambda x: jnp.sum(2 * jnp.sin(x) + x, axis=-1) / features**0.5  # noqa: E731
    compute = jax.jit(lambda x, widths: risk(degree, x, jnp.asarray(places, jnp.float32), f, widths))
    theory = 4 + features if interior or degree else 4
    found = []
    for n in sizes:
        widths = (0.9 if features == 1 else 1.1) * (n / 400) ** (-1 / theory) * np.geomspace(0.2, 1.6, 33)
        x = [rng.uniform(0, 5, (n, features)) for _ in range(num_draws)]
        values = np.mean(
            [compute(jnp.asarray(some, jnp.float32), jnp.asarray(widths, jnp.float32)) for some in x], axis=0
        )
        at = int(np.clip(values.argmin(), 2, len(widths) - 3))
        part = slice(at - 2, at + 3)
        a, b, c = np.polyfit(np.log(widths[part]), np.log(values[part]), 2)
        found.append((np.exp(-b / (2 * a)), np.exp(c - b * b / (4 * a))))
    return tuple(np.array(found).T)


def slope(sizes: Sequence[int], values: np.ndarray) -> float:
    """Returns the exponent of n, by a linear fit of logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def draw_chapter(settings: Sequence[tuple[str, float]]) -> Figure:
    """Plots fits to the first data set above, attention weights below, a column per (kernel, width), as the chapter."""
    (x,), (y,) = draws([0])
    with point_plots.styled():
        figure, axes = point_plots.panel(columns=len(settings), rows=2)
        for (name, width), above, below in zip(settings, *axes, strict=True):
            kernel = model(name, width)
            params = kernel.init(jax.random.key(0), {"inputs": jnp.asarray(x)})
            center = y.mean()
            query, inputs = jnp.asarray(PLACES, jnp.float32), jnp.asarray(x)
            found, _ = kernel.predict(params, query, inputs, jnp.asarray(y - center), jnp.ones(1))
            above.plot(x[:, 0], y[:, 0], "o", color="tab:blue", alpha=0.4, markersize=3)
            above.plot(PLACES, TRUTH, "--", color="0.35", linewidth=1.2)
            above.plot(PLACES, np.asarray(found) + center, color="tab:orange")
            above.set_title(name if name == "constant" else f"{name}, width {width:g}", fontsize=10)
            weights = np.asarray(kernel.weights(params, query, inputs, jnp.ones(1)))
            point_plots.plot_heat_map(below, weights, PLACES[:, 0], bar=False)
        axes[0, 0].set(ylabel="y")
        axes[1, 0].set(ylabel="query x", xlabel="training points, by x")
    return figure


def draw_rates(results: dict[str, Any]) -> Figure:
    """Plots best width and risk against n, with logarithmic axes."""
    sizes, found = results["sizes"], {name: (of["widths"], of["risks"]) for name, of in results["cases"].items()}
    with point_plots.styled():
        figure, axes = point_plots.panel(columns=2)
        for (name, values), color in zip(found.items(), point_plots.COLORS, strict=False):
            for one, series in zip(axes[0], values, strict=True):
                one.loglog(
                    sizes, series, "o-", color=color, markersize=3, label=f"{name}: n^{slope(sizes, series):.3f}"
                )
        for one, title in zip(axes[0], ("best width", "risk"), strict=True):
            one.set(title=title, xlabel="training points n")
            one.legend(frameon=False, fontsize=7)
            one.grid(color="0.9", linewidth=0.6)
        figure.set_size_inches(9, 3.6)
    return figure


CASES = {  # name -> (degree, interior only, exponents of width and risk in theory)
    "Nadaraya-Watson, interior": (0, True, (-1 / 5, -4 / 5)),
    "Nadaraya-Watson, with the boundary": (0, False, (-1 / 4, -3 / 4)),
    "local lines, with the boundary": (1, False, (-1 / 5, -4 / 5)),
}


# Rows that docs/results.md leaves out.
MINOR = {
    ("local lines", "learned by gradient, training"),
    ("local lines", "learned by gradient, leave-one-out"),
    ("gaussian kernel", "learned by gradient, aicc"),
    ("mixture of degrees 0 and 22 widths", "weights softmax(-n AICc / 2)"),
    ("mixture of degrees 0, 1 and 22 widths", "weights softmax(-n AICc / 2)"),
}
NOTE = (
    "Differences to the last row are paired by data set, with 95 % intervals of Student's t; * differs by the sign-flip"
    " test,\nadjusted for all of them by Holm."
)


def error_table(measured: list[dict[str, Any]], without: Collection[tuple[str, str]] = ()) -> str:
    """Formats the table of errors: each estimator, and its paired difference to the last one, the mixture."""
    errors = [np.array(row["errors"]) for row in measured]
    found = {place: compare(values, errors[-1]) for place, values in enumerate(errors[:-1])}
    adjusted, rows = holm({place: one.p_value for place, one in found.items()}), []
    for place, (row, values) in enumerate(zip(measured, errors, strict=True)):
        difference = ""
        if place in found:
            interval = found[place].difference
            star = " *" if adjusted[place] <= 0.05 else ""
            difference = f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]{star}"
        spread = values.std(ddof=1) / len(values) ** 0.5
        if (row["estimator"], row["how"]) not in without:
            middle, largest = f"{np.median(values):.3f}", f"{values.max():.2f}"
            cells = [f"{values.mean():.3f} (SE {spread:.3f})", middle, largest, difference]
            rows.append([row["estimator"], row["width"], row["how"], *cells])
    head = ["estimator", "width", "how", "error", "median", "largest", "difference to the last row"]
    return raw.table(head, rows, left=3)


def page(record: dict[str, Any]) -> str:
    """Formats the page of the errors at 40 points."""
    results = record["results"]
    chosen, fresh = (len(results[part][0]["errors"]) for part in ("chosen", "fresh"))
    return f"""# {__doc__.splitlines()[0]}

What is measured, and how: [experiments/kernels.py](../kernels.py). Error: mean over the data sets of the mean squared
distance to the curve, and its standard error; beside it the median and the largest of the data sets.

![fits and attention weights of five kernels](kernels.png)

![fits and attention weights of four widths](kernel_widths.png)

## {results["points"]} points, {fresh:,} data sets on which nothing was chosen

{error_table(results["fresh"])}

{NOTE}

## {results["points"]} points, the {chosen:,} data sets on which degrees and widths of the mixtures were chosen

{error_table(results["chosen"])}

{raw.circumstances(record)}
"""


def rates_page(record: dict[str, Any]) -> str:
    """Formats the page of the exponents of the best width and its risk."""
    results, rows = record["results"], []
    for name, of in results["cases"].items():
        measured = [slope(results["sizes"], of[key]) for key in ("widths", "risks")]
        theory = CASES[name][2]
        rows.append([name, f"{measured[0]:.3f}", f"{theory[0]:.2f}", f"{measured[1]:.3f}", f"{theory[1]:.2f}"])
    head = ["case", "exponent of the width", "theory", "of the risk", "theory"]
    return f"""# How fast should the width of a kernel shrink?

[experiments/kernels.py](../kernels.py). Risk: bias^2 + variance at 0, 0.1, ... 4.9 (interior: 1 to 4), exact given the
places of the points, mean of {results["draws"]} draws of them; the noise has variance 1.

![best width and risk against the number of points](kernel_rates.png)

## n = {results["sizes"][0]:,} to {results["sizes"][-1]:,}

{raw.table(head, rows)}

{raw.circumstances(record)}
"""


PAGES = (
    raw.Page(
        "kernels",
        page,
        {
            "kernels.png": lambda record: draw_chapter(CHAPTER),
            "kernel_widths.png": lambda record: draw_chapter([("gaussian", width) for width in SIGMAS]),
        },
    ),
    raw.Page("kernel_rates", rates_page, {"kernel_rates.png": lambda record: draw_rates(record["results"])}),
)


def measure_errors(most: int) -> dict[str, Any]:
    """Measures the errors at 40 points, of at most so many data sets each; returns the results of the JSON file."""

    def rows(seeds: Sequence[int]) -> list[dict[str, Any]]:
        return [
            {"estimator": name, "width": width, "how": how, "errors": raw.rounded(values)}
            for name, how, values, width in table(*draws(seeds))
        ]

    return {"points": NUM_POINTS, "fresh": rows(FRESH[:most]), "chosen": rows(CHOSEN[:most])}


def measure_rates(largest: int, num_draws: int = 8) -> dict[str, Any]:
    """Measures the best width and its risk for each n; returns the results of the JSON file."""
    sizes = [400 * 2**i for i in range(20) if 400 * 2**i <= largest]
    cases = {}
    for name, (degree, interior, _) in CASES.items():
        widths, risks = rates(degree, interior, sizes, num_draws)
        cases[name] = {"widths": widths, "risks": risks}
    return {"sizes": sizes, "draws": num_draws, "cases": cases}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    parser.add_argument("--draws", type=int, default=len(FRESH), help="at most so many data sets of each table")
    parser.add_argument("--rates", action="store_true", help="measure the rates")
    parser.add_argument("--largest", type=int, default=25_600, help="points of the rates")
    options = parser.parse_args(argv)
    about = PAGES[options.rates]
    path = options.out / f"{about.name}.json"
    begun = raw.begin(path)
    results = measure_rates(options.largest) if options.rates else measure_errors(options.draws)
    command = "python experiments/kernels.py" + " --rates" * options.rates
    record = raw.write(path, results, command=command, begun=begun)
    print(about.save(record, options.out))


if __name__ == "__main__":
    with one_line("kernels.py"):
        main()
