"""How do the costs of recurrence, self-attention (written out and fused) and convolution grow with sequence length?

    python experiments/complexity.py

Vaswani 2017 (arXiv 1706.03762), table 1, lists O(n^2 d) operations for a layer of self-attention, O(n d^2) for a
recurrent layer, which needs O(n) steps in sequence, and O(k n d^2) for a convolution. This experiment measures the
layers of this package: one sequence of n tokens, width d, forward and backward (gradients of parameters and input).
Their matrix products, in multiply-adds of the forward pass:

    recurrence (LSTM)        8 n d^2                n steps in sequence
    self-attention           4 n d^2 + 2 n^2 d      1
    convolution (gated)      2 k n d^2              1

and three times as many with the backward pass. "Traced" counts the products in the program that jax traces. Memory is
the memory that the compiled program reserves for intermediate results. Time is the median of windows in which all
layers take turns.

Answer (experiments/results/complexity.md), for d = 128 on two cores: the formulas agree exactly with the traced
products. Memory follows them, with n^2 for self-attention and n for the others, and so does time: from 2,048 to 4,096
tokens that of self-attention grows four times. By table 1 self-attention is cheaper than a recurrent layer while n < d;
with four gates and four projections it is n < 2 d. The measured crossing is at 272 (fused) and 360 tokens in memory,
and at about 450 and 550 in time, later than the products say, since the recurrence takes its steps one by one; from 120
tokens on convolution takes less time. The fused kernel saves nothing here: on a CPU it stores the n^2 weights for the
backward pass like the formula written out, and from 1,024 tokens on it took 1.1 to 1.4 times as long. The savings of
cuDNN, in half precision on a GPU, are not measured.
"""

import functools
import math
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.attention import MultiHead, build_attention  # noqa: E402
from attn_jax.attention.normalizers.base import softmax  # noqa: E402
from attn_jax.attention.scores import ScaledDot  # noqa: E402
from attn_jax.errors import one_line  # noqa: E402
from attn_jax.layers.convolution import Convolution  # noqa: E402
from attn_jax.layers.positions import NoPositions  # noqa: E402
from attn_jax.layers.rnn import CELLS, Recurrence  # noqa: E402
from experiments import raw  # noqa: E402

KERNEL_SIZE = 3
UNITS = {
    "products": (1e6, "million multiply-adds"),
    "seconds": (1e-3, "milliseconds"),
    "memory": (2**20, "MiB of intermediate results"),
}


class Setting(NamedTuple):
    features: int = 128  # d
    num_heads: int = 2
    lengths: tuple[int, ...] = tuple(2**i for i in range(4, 13))  # n
    windows: int = 15  # of timing; of programs that take longer than `slow` seconds a third
    slow: float = 0.2
    seconds: float = 0.05  # of a window, at least


class SelfAttention(nn.Module):
    """Self-attention: MultiHead of a sequence with itself."""

    features: int
    num_heads: int
    fused: bool

    @nn.compact
    def __call__(self, x, mask):
        # What is not the function softmax itself is not fused.
        normalize = softmax if self.fused else functools.partial(softmax)
        module = MultiHead(
            attention=build_attention(score=ScaledDot(), normalize=normalize),
            num_heads=self.num_heads,
            features=self.features,
        )
        return module(x, module.prepare(x, key_mask=mask)).context


class Layer(NamedTuple):
    """A compared layer: its construction and call, its formulas, its line style."""

    label: str
    make: Callable[[Setting], nn.Module]
    output: Callable[[Any], Any]  # of what the module returns
    products: Callable[[int, int], int]  # (n, d) -> multiply-adds of the forward pass
    in_sequence: Callable[[int], int]  # n -> steps that wait for each other
    color: str
    line: str = "-"


def attention_products(n: int, d: int) -> int:
    return 4 * n * d**2 + 2 * n**2 * d


LAYERS = (
    Layer(
        "LSTM",
        lambda setting: Recurrence(cell=CELLS["lstm"], features=setting.features),
        lambda result: result[1],
        lambda n, d: 8 * n * d**2,
        lambda n: n,
        "tab:green",
    ),
    Layer(
        "self-attention, written out",
        lambda setting: SelfAttention(setting.features, setting.num_heads, fused=False),
        lambda result: result,
        attention_products,
        lambda n: 1,
        "tab:red",
        "--",
    ),
    Layer(
        "self-attention, fused",
        lambda setting: SelfAttention(setting.features, setting.num_heads, fused=True),
        lambda result: result,
        attention_products,
        lambda n: 1,
        "tab:orange",
    ),
    Layer(
        f"convolution, kernel {KERNEL_SIZE}",
        lambda setting: Convolution(
            features=setting.features, num_layers=1, kernel_size=KERNEL_SIZE, positions=NoPositions()
        ),
        lambda result: result[1],
        lambda n, d: 2 * KERNEL_SIZE * n * d**2,
        lambda n: 1,
        "tab:blue",
    ),
)


class Cost(NamedTuple):
    """Costs of one layer at one length."""

    products: int  # multiply-adds by formula, forward and backward
    traced: int  # the same, counted in the traced program
    in_sequence: int
    memory: int  # bytes
    windows: Sequence[float]  # seconds of a call in each window of timing

    @property
    def seconds(self) -> float:
        """The median over the windows."""
        return float(np.median(self.windows))


def count_products(function: Callable, *args: Any) -> int:
    """Counts the multiply-adds of the matrix products and convolutions in function(*args)."""
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def _count(jaxpr: Any) -> int:
    total, needed = 0, {v for v in jaxpr.outvars if not hasattr(v, "val")}
    for equation in reversed(jaxpr.eqns):
        if needed.isdisjoint(equation.outvars):
            continue  # nobody looks at it
        needed.update(v for v in equation.invars if not hasattr(v, "val"))
        total += _products_of(equation)
    return total


def _products_of(equation: Any) -> int:
    name, params = equation.primitive.name, equation.params
    result = math.prod(equation.outvars[0].aval.shape)
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        return result * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        return result * math.prod(kernel) // kernel[params["dimension_numbers"].rhs_spec[0]]
    inner = [value for value in params.values() if hasattr(value, "eqns") or hasattr(value, "jaxpr")]
    repeats = params["length"] if name == "scan" else 1
    return repeats * sum(_count(getattr(value, "jaxpr", value)) for value in inner[:1])


class Program:
    """A layer at one length: gradients of half the sum of squares of its output, compiled."""

    def __init__(self, layer: Layer, setting: Setting, length: int):
        module = layer.make(setting)
        mask = jnp.ones((1, length), bool)
        x = jax.random.normal(jax.random.key(0), (1, length, setting.features))
        params = jax.jit(module.init)(jax.random.key(1), x[:, :2], mask[:, :2])

        def loss(params, x):
            return 0.5 * jnp.sum(jnp.square(layer.output(module.apply(params, x, mask))))

        self.function, self.args = jax.grad(loss, argnums=(0, 1)), (params, x)
        self.compiled = jax.jit(self.function).lower(*self.args).compile()
        self.count = 1
        first = self.run()
        self.estimate = self.run() if first < setting.slow else first
        self.count = max(1, math.ceil(setting.seconds / self.estimate))

    def run(self) -> float:
        """Seconds of one call."""
        begin = time.perf_counter()
        for _ in range(self.count):
            result = self.compiled(*self.args)
        jax.block_until_ready(result)
        return (time.perf_counter() - begin) / self.count


def run(layers: Sequence[Layer], setting: Setting) -> dict[tuple[str, int], Cost]:
    """(label, n) -> Cost."""
    programs = {(layer, n): Program(layer, setting, n) for n in setting.lengths for layer in layers}
    times: dict[tuple, list[float]] = {key: [] for key in programs}
    for window in range(setting.windows):
        for key in list(programs) if window % 2 else list(programs)[::-1]:
            if window % 3 == 0 or programs[key].estimate < setting.slow:
                times[key].append(programs[key].run())
    costs = {}
    for (layer, n), program in programs.items():
        costs[layer.label, n] = Cost(
            3 * layer.products(n, setting.features),
            count_products(program.function, *program.args),
            layer.in_sequence(n),
            program.compiled.memory_analysis().temp_size_in_bytes,
            times[layer, n],
        )
    return costs


def raw_of(costs: dict[tuple[str, int], Cost], setting: Setting) -> dict[str, Any]:
    """Returns the costs as JSON has them."""
    rows = [{"layer": label, "length": n} | cost._asdict() for (label, n), cost in costs.items()]
    return {"setting": setting._asdict(), "costs": rows}


def of_raw(results: dict[str, Any]) -> tuple[dict[tuple[str, int], Cost], Sequence[Layer], Setting]:
    """Returns what `raw_of` was given, and the layers that were measured."""
    costs = {(row["layer"], row["length"]): Cost(*(row[field] for field in Cost._fields)) for row in results["costs"]}
    layers = [layer for layer in LAYERS if any(label == layer.label for label, _ in costs)]
    return costs, layers, Setting(**results["setting"])


def crossing(lengths: Sequence[int], one: Sequence[float], other: Sequence[float]) -> float:
    """Returns the n from which on `one` costs more than `other`, interpolated linearly in log-log coordinates.

    0 if it always costs more, inf if it does not at the largest n.
    """
    x, gap = np.log(lengths), np.log(one) - np.log(other)
    if gap[-1] <= 0:
        return np.inf
    below = np.flatnonzero(gap <= 0)
    if not len(below):
        return 0.0
    i = below[-1]
    return float(np.exp(x[i] - gap[i] * (x[i + 1] - x[i]) / (gap[i + 1] - gap[i])))


def table(costs: dict[tuple[str, int], Cost], layers: Sequence[Layer], setting: Setting) -> str:
    """Formats Markdown tables: time, memory, multiply-adds, growth, and the n where self-attention costs more."""
    lengths, d = setting.lengths, setting.features

    def column(layer: Layer, field: str) -> list[float]:
        return [getattr(costs[layer.label, n], field) for n in lengths]

    tables = []
    for field in ("seconds", "memory", "products"):
        unit, title = UNITS[field]
        rows = [[layer.label, *(raw.number(value / unit) for value in column(layer, field))] for layer in layers]
        tables.append(raw.table([f"{title}, n =", *map(str, lengths)], rows))
    rows = []
    for layer in layers:
        ends = [column(layer, field)[-2:] for field in ("products", "traced", "memory", "seconds")]
        powers = [math.log(b / a) / math.log(lengths[-1] / lengths[-2]) for a, b in ends]
        rows.append([layer.label, *(f"{p:.2f}" for p in powers), "n" if layer.in_sequence(2) == 2 else "1"])
    head = ["multiply-adds", "traced", "memory", "time", "steps in sequence"]
    tables.append(raw.table(["growth: n^p, p at the last doubling", *head], rows))
    rows = []
    for one in layers:
        for other in layers:
            if not one.label.startswith("self-attention") or other.label.startswith("self-attention"):
                continue
            per_token = other.products(1, 1)  # c of c n d^2; 4 n d^2 + 2 n^2 d is more from n = (c - 4) d / 2 on
            by_paper = d if other.label == "LSTM" else KERNEL_SIZE * d
            cells = [f"{by_paper}", f"{max(per_token - 4, 0) * d / 2:.0f}"]
            for field in ("memory", "seconds"):
                found = crossing(lengths, column(one, field), column(other, field))
                cells.append({0.0: "always", np.inf: "never"}.get(found) or f"{found:.0f}")
            rows.append([f"{one.label}, than {other.label}", *cells])
    tables.append(raw.table(["costs more from n =", "table 1", "multiply-adds", "memory", "time"], rows))
    return "\n\n".join(tables)


def draw(costs: dict[tuple[str, int], Cost], layers: Sequence[Layer], setting: Setting) -> Figure:
    """Plots multiply-adds, time and memory against length, with logarithmic axes."""
    figure = Figure(figsize=(11, 3.9), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, (field, (unit, title)) in zip(panels, UNITS.items(), strict=True):
        for layer in layers:
            values = [getattr(costs[layer.label, n], field) / unit for n in setting.lengths]
            style = {"color": layer.color, "linestyle": layer.line, "marker": "o", "markersize": 3}
            axes.plot(setting.lengths, values, label=layer.label, **style)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set(title=title, xlabel="tokens")
        axes.set_xticks(setting.lengths[::2], [str(n) for n in setting.lengths[::2]])
        axes.grid(color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(layers), frameon=False)
    return figure


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    costs, layers, setting = of_raw(record["results"])
    same = all(cost.traced == cost.products for cost in costs.values())
    agree = "are exactly those of the traced programs" if same else "differ from those of the traced programs"
    return f"""# {__doc__.splitlines()[0]}

One sequence, width {setting.features}, {setting.num_heads} heads, float32, forward and backward; the time is the median
of {setting.windows} windows, above {setting.slow:g} s of a third of them. What is measured and how, and the answer:
[experiments/complexity.py](../complexity.py).

![cost against length](complexity.png)

{table(costs, layers, setting)}

The multiply-adds by formula {agree}.

{raw.circumstances(record)}
"""


PAGES = (raw.Page("complexity", page, {"complexity.png": lambda record: draw(*of_raw(record["results"]))}),)


def measure_all() -> dict[str, Any]:
    """Measures everything; returns the results of the JSON file."""
    setting = Setting()
    return raw_of(run(LAYERS, setting), setting)


if __name__ == "__main__":
    with one_line("complexity.py"):
        raw.main(PAGES[0], measure_all)
