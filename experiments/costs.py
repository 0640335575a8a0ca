"""How do time and memory of a training step grow with length, vocabulary, batch, seeds, keys in memory and devices?

    python experiments/costs.py          # four minutes on two cores without other work

One factor is changed at a time, all else is as in SETTING: a recurrent encoder-decoder and a Transformer (those of
configs/quickstart.py and configs/quickstart_transformer.py, without dropout) and the end-to-end memory network of
configs/babi_memn2n.py, which reads as many statements as it has keys. A step is the forward and the backward pass and
the update. Time is the median of windows in which all programs take turns; memory is what the compiler plans for the
state, the batch and all intermediate results. The exponent p of a growth of n^p is fitted by least squares to the
logarithms of the last three points. Of devices there is only the memory of one (experiments/sharding.py): simulated
devices share two cores.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.sizes import TextSizes  # noqa: E402
from attn_jax.data.vocabulary import PERIOD_ID  # noqa: E402
from attn_jax.errors import one_line  # noqa: E402
from attn_jax.runs.options import change, resolve  # noqa: E402
from attn_jax.training.loop import TrainState, make_train_step  # noqa: E402
from configs import babi_memn2n, quickstart, quickstart_transformer  # noqa: E402
from experiments import raw  # noqa: E402

SETTING = {"length": 16, "vocabulary": 1000, "batch": 16, "seeds": 1, "keys": 16}
WORDS = 6  # of a statement, its period included
WINDOWS = 5
SECONDS = 0.3  # of a window, at least
DEVICES = "devices"
LAST = 3  # points that a power is fitted to
FIRST_WORD = 16  # ids from here on are words in every vocabulary


class Model(NamedTuple):
    """A model, what of its config is changed, and the values of each factor."""

    label: str
    config: Callable
    changes: dict[str, Any]
    factors: dict[str, tuple[int, ...]]
    color: str


SEQUENCE = {
    "length": (8, 16, 32, 64, 128, 256),
    "vocabulary": (1000, 4000, 16000, 64000),
    "batch": (4, 16, 64, 256),
    "seeds": (1, 2, 4, 8),
}
MODELS = (
    Model("recurrent", quickstart.get_config, {}, SEQUENCE, "tab:green"),
    Model("Transformer", quickstart_transformer.get_config, {"model.dropout": 0.0}, SEQUENCE, "tab:orange"),
    Model(
        "memory network",
        babi_memn2n.get_config,
        {"model.noise": 0.0, "model.linear_steps": 0, "optimizer.schedule": "constant"},
        {"keys": (16, 64, 256, 1024), "batch": (4, 16, 64, 256), "seeds": (1, 2, 4, 8)},
        "tab:purple",
    ),
)


def make_batch(label: str, values: dict[str, int]) -> dict[str, np.ndarray]:
    """Returns a batch of random words: sentence pairs without padding, or stories with one question each."""
    rng = np.random.default_rng(0)

    def words(*shape: int) -> np.ndarray:
        return rng.integers(FIRST_WORD, values["vocabulary"], (values["batch"], *shape)).astype(np.int32)

    if label != "memory network":
        return {name: words(values["length"]) for name in ("source", "target_in", "target_out")}
    statements = words(values["keys"], WORDS)
    statements[..., -1] = PERIOD_ID
    story = np.concatenate([statements.reshape(values["batch"], -1), words(WORDS)], axis=1)
    return {"source": story, "target_in": words(1), "target_out": words(1)}


class Program:
    """A compiled training step that goes on from its own state."""

    def __init__(self, model: Model, values: dict[str, int]):
        changes = model.changes | ({"model.memory_size": values["keys"]} if "keys" in model.factors else {})
        options = resolve(change(model.config(), changes))
        sizes = TextSizes(values["vocabulary"], values["vocabulary"], longest_story=values["keys"])
        built, tx, batch = options.build_model(sizes), options.optimizer.build(1000), make_batch(model.label, values)

        def create(rng: jax.Array) -> TrainState:
            return TrainState.create(built.init(rng, jax.tree.map(jnp.asarray, batch)), tx, rng)

        step, seeds = make_train_step(built.loss_fn, tx), values["seeds"]
        self.batch = batch
        if seeds > 1:
            step, self.batch = jax.vmap(step), {name: np.stack([x] * seeds) for name, x in batch.items()}
        states = [jax.jit(create)(jax.random.key(seed)) for seed in range(seeds)]
        self.state = jax.tree.map(lambda *x: jnp.stack(x), *states) if seeds > 1 else states[0]
        self.compiled = jax.jit(step, donate_argnums=0).lower(self.state, self.batch).compile()
        plan = self.compiled.memory_analysis()
        self.memory = plan.argument_size_in_bytes + plan.temp_size_in_bytes
        self.count = 1
        self.run()
        self.count = max(1, round(SECONDS / self.run()))

    def run(self) -> float:
        """Returns the seconds of one step."""
        begin = time.perf_counter()
        for _ in range(self.count):
            self.state, metrics = self.compiled(self.state, self.batch)
        jax.block_until_ready(metrics)
        return (time.perf_counter() - begin) / self.count


def measure(models: Sequence[Model] = MODELS, windows: int = WINDOWS) -> list[dict[str, Any]]:
    """Returns a row for each model, factor and value; the programs of a factor are in memory at the same time."""
    rows = []
    for factor in dict.fromkeys(factor for model in models for factor in model.factors):
        programs = {}
        for model in models:
            for value in model.factors.get(factor, ()):
                programs[model.label, value] = Program(model, SETTING | {factor: value})
        times: dict[tuple[str, int], list[float]] = {key: [] for key in programs}
        for window in range(windows):
            for key in list(programs) if window % 2 else list(programs)[::-1]:
                times[key].append(programs[key].run())
        for (label, value), program in programs.items():
            row = {"model": label, "factor": factor, "value": value, "memory": program.memory}
            rows.append(row | {"seconds": raw.rounded(times[label, value], 4)})
            print(f"{factor} {value}  {label}: {np.median(times[label, value]):.4f} s", file=sys.stderr, flush=True)
    return rows


def measure_devices() -> list[dict[str, Any]]:
    """Returns the bytes that a step needs on one device, by the number of devices, from a process with eight."""
    from experiments.sharding import FLAGS  # the number of devices is fixed before jax starts

    code = "import json\nfrom experiments.sharding import MEASURED, measure\n"
    code += "print(json.dumps([(n, sum(measure(name, n).values())) for name, n in MEASURED]))"
    environment = os.environ | {"XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    return [{"model": "Transformer", "factor": DEVICES, "value": n, "memory": memory} for n, memory in found]


def power(values: Sequence[float], costs: Sequence[float]) -> float:
    """Fits the p of costs = c values^p to the last LAST points, by least squares of the logarithms."""
    return float(np.polyfit(np.log(values[-LAST:]), np.log(costs[-LAST:]), 1)[0])


def curves(rows: list[dict[str, Any]], factor: str) -> dict[str, tuple[list[int], list[float], list[float]]]:
    """Returns {model: (values, milliseconds, megabytes)} of a factor; no milliseconds of devices."""
    found: dict[str, tuple[list, list, list]] = {}
    for row in rows:
        if row["factor"] == factor:
            values, times, sizes = found.setdefault(row["model"], ([], [], []))
            values.append(row["value"])
            sizes.append(row["memory"] / 1e6)
            if "seconds" in row:
                times.append(1e3 * float(np.median(row["seconds"])))
    return found


def factors_of(rows: list[dict[str, Any]]) -> list[str]:
    """Returns the factors in the order in which they were measured."""
    return list(dict.fromkeys(row["factor"] for row in rows))


def growth_table(rows: list[dict[str, Any]]) -> str:
    """Formats the fitted powers of all factors."""
    lines = []
    for factor in factors_of(rows):
        for label, (values, times, sizes) in curves(rows, factor).items():
            cells = [f"{power(values, costs):.2f}" if costs else "" for costs in (times, sizes)]
            lines.append([factor, label, f"{values[-LAST]:,} to {values[-1]:,}", *cells])
    return raw.table(["factor", "model", "fitted from", "time", "memory"], lines, left=3)


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    rows, parts = record["results"]["rows"], []
    for factor in factors_of(rows):
        found = curves(rows, factor)
        values = sorted({value for each, _, _ in found.values() for value in each})
        lines = []
        for label, (its_values, times, sizes) in found.items():
            for name, costs in (("ms", times), ("MB", sizes)):
                at = dict(zip(its_values, costs, strict=False))
                if costs:
                    lines.append([f"{label}, {name}", *(raw.number(at[v]) if v in at else "" for v in values)])
        parts.append(raw.table([factor, *(f"{value:,}" for value in values)], lines))
    setting = ", ".join(f"{name} {value:,}" for name, value in record["results"]["setting"].items())
    tables = "\n\n".join(parts)
    return f"""# {__doc__.splitlines()[0]}

{raw.circumstances(record)}

{setting}, unless a factor is changed; how it is measured: [experiments/costs.py](../costs.py). Exponents p of n^p:

{growth_table(rows)}

![Time and memory against each factor](costs.png)

{tables}
"""


def draw(record: dict[str, Any]) -> Figure:
    """Plots time and memory against each factor, with logarithmic axes."""
    rows = record["results"]["rows"]
    factors, colors = factors_of(rows), {model.label: model.color for model in MODELS}
    figure = Figure(figsize=(2.4 * len(factors), 5), layout="constrained")
    panels, shown = figure.subplots(2, len(factors), squeeze=False), {}
    for column, factor in enumerate(factors):
        for label, (values, times, sizes) in curves(rows, factor).items():
            for axes, costs in zip(panels[:, column], (times, sizes), strict=True):
                if costs:
                    line = axes.plot(values, costs, label=label, color=colors[label], marker="o", markersize=3)
                    shown[label] = line[0]
        for axes, unit in zip(panels[:, column], ("ms", "MB"), strict=True):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_ylabel(unit)
            axes.grid(color="0.9", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0, column].set_title(factor, fontsize=10)
        panels[0, column].set_visible(any(times for _, times, _ in curves(rows, factor).values()))
        if not panels[0, column].get_visible():
            panels[1, column].set_title(f"{factor}, of one", fontsize=10)
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=len(shown), frameon=False)
    return figure


PAGES = (raw.Page("costs", page, {"costs.png": draw}),)


def run() -> dict[str, Any]:
    """Measures all."""
    return {"setting": SETTING, "rows": [*measure(), *measure_devices()]}


if __name__ == "__main__":
    with one_line("costs.py"):
        raw.main(PAGES[0], run)
