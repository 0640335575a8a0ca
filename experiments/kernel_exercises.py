"""Measured answers to the four exercises on Nadaraya-Watson regression in "Dive into Deep Learning".

    python experiments/kernel_exercises.py

1. Parzen windows for two classes are Nadaraya-Watson classification. p(x, y) = 1/n sum over the points of class y of
   k(x, x_i), so p(x, 1) - p(x, -1) = 1/n sum_i y_i k(x, x_i): the numerator of the Nadaraya-Watson prediction of y,
   whose denominator is positive. The two have the same sign. Measured: at how many of 10,000 places the signs differ.
2. Learning the width by stochastic gradient descent. On the training error the width goes to 0, where each point
   predicts itself; on the leave-one-out error it does not. This hardly overfits: one number is fitted, and the final
   leave-one-out error is no lower than the error on new points. But the width differs between sets of 40 points.
3. On the unit sphere |x - x_i|^2 = 2 - 2 x . x_i, and the constant cancels in the softmax: the Gaussian kernel is dot
   product attention with the scores x . x_i / h^2. Measured: the largest difference of the weights.
4. The rate at which the width should shrink. Bias^2 grows as h^4, variance as 1 / (n h^d): the best width is
   h ~ n^(-1 / (d + 4)), with risk n^(-4 / (d + 4)). It depends on the dimension: in ten dimensions the width hardly
   shrinks at all. Measured in the interior of the data for d = 1, 2, 3.

The chapter closes with the remark that learned representations of queries and keys are better than hand-made ones. This
is measured on 500 points with ten inputs, of which one direction matters, y = sin(2 w . x) + noise of deviation 0.3, by
the error at 1,000 new points. All three models are trained on the leave-one-out error. Four of five seeds of the
network end near a third of the error of one width; the fifth is worse than the mean: with this many parameters
leave-one-out can overfit.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence
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
from attn_jax.attention.normalizers.base import softmax  # noqa: E402
from attn_jax.attention.scores import Dot  # noqa: E402
from attn_jax.attention.scores.kernels import Gaussian  # noqa: E402
from attn_jax.errors import one_line  # noqa: E402
from attn_jax.figures import point_plots  # noqa: E402
from attn_jax.models.kernel_regression.model import KernelRegression, Projection  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from attn_jax.tasks.points.curves import true_curve  # noqa: E402
from experiments import raw  # noqa: E402
from experiments.kernels import draws, model, rates, slope  # noqa: E402


def parzen(num_places: int = 10_000) -> tuple[int, int]:
    """Returns (places with different signs, places) for 200 points of two classes in the plane."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(200) % 2, 1.0, -1.0).astype(np.float32)[:, None]
    x = (rng.normal(size=(200, 2)) + y * [0.7, 0.3]).astype(np.float32)
    places = rng.uniform(-3, 3, (num_places, 2)).astype(np.float32)
    kernel, params = model(), {"score": {"log_precision": jnp.float32(-2 * np.log(0.4))}}
    densities = [np.exp(np.asarray(jax.jit(kernel.log_density)(params, places, x[y[:, 0] == c]))) for c in (1, -1)]
    found, _ = jax.jit(kernel.predict)(params, places, jnp.asarray(x), jnp.asarray(y), jnp.ones(1))
    return int(np.sum(np.sign(densities[0] - densities[1]) != np.sign(np.asarray(found)[:, 0]))), num_places


def descend(criterion: str, num_draws: int, steps: int = 2000, batch: int = 8) -> tuple[np.ndarray, ...]:
    """Runs SGD on batches of queries.

    Returns:
        (widths [draws, steps], criterion at the end [draws], error on new points [draws]).
    """
    x, y = (jnp.asarray(part) for part in draws(range(num_draws)))
    kernel = model(criterion=criterion)
    tx = optax.sgd(0.05)
    rng = np.random.default_rng(0)
    new_x = jnp.asarray(rng.uniform(0, 5, (500, 1)), jnp.float32)
    new_y = jnp.asarray(true_curve(np.asarray(new_x)) + rng.normal(size=(500, 1)), jnp.float32)

    def one(x, y, rng):
        center = y.mean()
        memory = {"inputs": x, "targets": y - center}

        def loss(params, index):
            return kernel.loss_fn(params, memory | {"index": index})[0] / len(index)

        def step(carry, rng):
            params, state = carry
            index = jax.random.choice(rng, len(x), (batch,), replace=False)
            updates, state = tx.update(jax.grad(loss)(params, index), state)
            params = optax.apply_updates(params, updates)
            return (params, state), kernel.width(params, 1)

        params = {"score": {"log_precision": jnp.zeros(())}}  # width 1
        (params, _), widths = jax.lax.scan(step, (params, tx.init(params)), jax.random.split(rng, steps))
        found, _ = kernel.predict(params, new_x, x, y - center, jnp.ones(1))
        return widths, loss(params, jnp.arange(len(x))), jnp.mean(jnp.square(found + center - new_y))

    rngs = jax.random.split(jax.random.key(0), num_draws)
    return tuple(np.asarray(part) for part in jax.jit(jax.vmap(one))(x, y, rngs))


def sphere(width: float = 0.7) -> float:
    """Returns the largest difference of Gaussian and dot product weights (scores over h^2) on the unit sphere."""
    rng = np.random.default_rng(0)
    query, keys = (
        jnp.asarray(v / np.linalg.norm(v, axis=-1, keepdims=True), jnp.float32) for v in rng.normal(size=(2, 50, 8))
    )
    read = lambda m, q, k: m(q, m.prepare(k)).weights  # noqa: E731
    kernel = build_attention(score=Gaussian(width=(width,)), normalize=kernel_sum).apply({}, query, keys, method=read)
    dot = build_attention(score=Dot(), normalize=softmax).apply({}, query / width**2, keys, method=read)
    return float(jnp.abs(kernel - dot).max())


def learned_metric(seeds: int = 5, n: int = 500, new: int = 1000) -> list[tuple[str, np.ndarray]]:
    """Returns (model, mean squared error to the truth at new points [seeds]) for each model."""
    x, direction, noise = [], [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        w = rng.normal(size=10)
        direction.append(w / np.linalg.norm(w))
        x.append(rng.normal(size=(n + new, 10)))
        noise.append(0.3 * rng.normal(size=n))
    x = np.array(x)
    truth = np.sin(2 * np.einsum("snd,sd->sn", x, direction))
    data = [jnp.asarray(v, jnp.float32) for v in (x[:, :n], truth[:, :n, None] + np.array(noise)[..., None], x[:, n:])]
    start = n ** (-1 / 14)
    gaussian = Gaussian(initial=(start,), per_column=True, exact=True)
    models = {
        "one width": (model(width=start), 200),
        "a width for each input": (
            KernelRegression(attention=build_attention(score=gaussian, normalize=kernel_sum)),
            200,
        ),
        "queries and keys through a learned network": (
            model(width=n**-0.2, projection=Projection(features=2, hidden_size=32)),
            800,
        ),
    }
    rows = []
    for name, (kernel, steps) in models.items():

        def one(inputs, targets, query, rng, kernel=kernel, steps=steps):
            params = train(kernel, {"inputs": inputs, "targets": targets, "index": jnp.arange(n)}, steps, rng)
            return kernel.predict(params, query, inputs, targets, jnp.ones(1))[0][:, 0]

        found = jax.jit(lambda *args, one=one: jax.lax.map(lambda a: one(*a), args))(
            *data, jax.random.split(jax.random.key(0), seeds)
        )
        rows.append((name, np.mean((np.asarray(found) - truth[:, n:]) ** 2, axis=1)))
    return rows


def train(kernel: KernelRegression, batch: dict, steps: int, rng: jax.Array, rate: float = 0.02):
    """Returns the parameters after training with Adam on the leave-one-out error."""
    tx = optax.adam(optax.cosine_decay_schedule(rate, steps))
    params = kernel.init(rng, batch)

    def step(carry, _):
        params, state = carry
        grads = jax.grad(lambda p: kernel.loss_fn(p, batch)[0] / len(batch["index"]))(params)
        updates, state = tx.update(grads, state)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(step, (params, tx.init(params)), None, length=steps)[0][0]


def draw(results: dict[str, Any]) -> Figure:
    """Plots the widths of some data sets during the descent as thin lines, and the median of all."""
    with point_plots.styled():
        figure, axes = point_plots.panel()
        for (name, of), color in zip(results["descent"].items(), point_plots.COLORS, strict=False):
            axes.semilogy(of["steps"], np.transpose(of["paths"]), color=color, linewidth=0.4, alpha=0.4)
            axes.semilogy(of["steps"], of["median"], color=color, linewidth=2, label=name)
        axes.set(xlabel="step of SGD, 8 points each", ylabel="width")
        axes.legend(frameon=False)
    return figure


def descent(num_draws: int, every: int = 20, shown: int = 20) -> dict[str, dict[str, Any]]:
    """Returns the end of the descent for every data set, and its way for some, at every so manieth step."""
    found = {}
    for criterion in ("training", "leave_one_out"):
        widths, value, new = descend(criterion, num_draws)
        steps = np.arange(0, widths.shape[1], every)
        found[f"{criterion.replace('_', '-')} error"] = {
            "width": raw.rounded(widths[:, -1]),
            "criterion": raw.rounded(value),
            "new": raw.rounded(new),
            "steps": steps,
            "paths": raw.rounded(widths[:shown, steps], digits=4),
            "median": raw.rounded(np.median(widths[:, steps], axis=0), digits=4),
        }
    return found


def measure(num_draws: int, largest: int) -> dict[str, Any]:
    """Measures the answers; returns the results of the JSON file."""
    differ, places = parzen()
    sizes = [400 * 2**i for i in range(20) if 400 * 2**i <= largest]
    found = {"parzen": {"differ": differ, "places": places}, "descent": descent(num_draws), "sphere": sphere()}
    found["sizes"], found["rates"] = sizes, []
    for d in (1, 2, 3):
        widths, risks = rates(0, True, sizes, 4, features=d)
        found["rates"].append({"features": d, "widths": widths, "risks": risks})
    return found | {"metric": [{"model": name, "errors": errors} for name, errors in learned_metric()]}


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    results, descents, exponents, errors = record["results"], [], [], []
    for name, of in results["descent"].items():
        low, middle, high = np.percentile(of["width"], (5, 50, 95))
        ends = [f"{np.mean(of[key]):.3f}" for key in ("criterion", "new")]
        descents.append([name, f"{middle:.3f} ({low:.3f} to {high:.3f})", *ends])
    for of in results["rates"]:
        d, (width, risk) = of["features"], [slope(results["sizes"], of[key]) for key in ("widths", "risks")]
        exponents.append([f"{d}", f"{width:.3f}", f"{-1 / (d + 4):.3f}", f"{risk:.3f}", f"{-4 / (d + 4):.3f}"])
    for of in results["metric"]:
        each = ", ".join(f"{error:.3f}" for error in of["errors"])
        errors.append([of["model"], f"{np.mean(of['errors']):.3f} (SD {np.std(of['errors'], ddof=1):.3f})", each])
    widths = ["minimized", "width at the end, median (5 to 95 %)", "it at the end", "error on new points"]
    rates_head = ["d", "exponent of the width", "-1 / (d + 4)", "of the risk", "-4 / (d + 4)"]
    count, sizes = len(results["descent"]["training error"]["width"]), results["sizes"]
    return f"""# {__doc__.splitlines()[0]}

{__doc__.split(chr(10) * 2, 2)[2]}
## Measured

**1.** The signs differ at {results["parzen"]["differ"]} of {results["parzen"]["places"]:,} places.

**2.** ![widths during the descent](kernel_sgd.png)

{raw.table(widths, descents)}

Mean over {count} draws of 40 points; the noise alone is an error of 1 on new points.

**3.** The largest difference of two weights is {results["sphere"]:.1e}.

**4.** Nadaraya-Watson in the interior, n = {sizes[0]:,} to {sizes[-1]:,}:

{raw.table(rates_head, exponents, left=0)}

**Learned queries and keys.**

{raw.table(["compared are", "error, mean of the seeds", "each seed"], errors)}

{raw.circumstances(record)}
"""


PAGES = (raw.Page("kernel_exercises", page, {"kernel_sgd.png": lambda record: draw(record["results"])}),)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--largest", type=int, default=12_800)
    options = parser.parse_args(argv)
    path = options.out / "kernel_exercises.json"
    begun = raw.begin(path)
    results = measure(options.draws, options.largest)
    command = "python experiments/kernel_exercises.py"
    record = raw.write(path, results, command=command, begun=begun)
    print(PAGES[0].save(record, options.out))


if __name__ == "__main__":
    with one_line("kernel_exercises.py"):
        main()
