"""How far does an encoder see? A fixed window (convolution) against attention and recurrence, by distance.

    python experiments/receptive_field.py

The task: random symbols, one of them flagged; every position has to name the flagged symbol. A position d places after
the flag (before it for d < 0) can do so only if its receptive field reaches d places back (ahead). All encoders of the
package are trained on this task, and accuracy is measured by d. A convolution of l layers with kernels of k sees
l (k - 1) / 2 tokens on each side (Gehring 2017, arXiv 1705.03122); a layer of self-attention sees all tokens (Vaswani
2017, arXiv 1706.03762, table 1); an LSTM sees all earlier tokens. A second measurement needs no training: d output /
d input, at the initial parameters, is 0 for inputs outside of the receptive field.

Answer (experiments/results/receptive_field.md): the formula is exact. Each convolution is right in 100 % of the cases
up to l (k - 1) / 2 tokens on either side, and guesses one token further: four layers see 4 tokens with a kernel of 3
and 8 with a kernel of 5. One layer of self-attention sees every distance; an LSTM sees every earlier token, and a
bidirectional LSTM also every later one.
"""

import functools
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from attn_jax.runs.options import change, resolve  # noqa: E402
from configs import base  # noqa: E402
from experiments import raw  # noqa: E402

NUM_SYMBOLS = 8
DISTANCES = (1, 2, 4, 8, 16, 32)  # columns of the table


class Setting(NamedTuple):
    """Sizes of the experiment, the smallest that show the effect clearly."""

    features: int = 32  # width of all encoders
    length: int = 48  # of a sequence
    num_seeds: int = 3
    num_steps: int = 400  # of Adam, with batches of batch_size sequences
    batch_size: int = 16
    learning_rate: float = 5e-3
    num_measured: int = 2048  # sequences per seed, for the accuracy


class Variant(NamedTuple):
    """An encoder: changes to config.model of configs/base.py, and its line style."""

    label: str
    model: dict[str, Any]
    color: str
    line: str = "-"


def convolution(num_layers: int, kernel_size: int, color: str) -> Variant:
    label = f"convolution, kernel {kernel_size}, {num_layers} layer{'s' * (num_layers > 1)}"
    options = {"positions": "none", "num_layers": num_layers, "kernel_size": kernel_size}
    model = {"encoder": "conv"} | {f"encoder.{key}": value for key, value in options.items()}
    return Variant(label, model, color)


VARIANTS = (
    convolution(1, 3, "#9ecae1"),
    convolution(2, 3, "#6baed6"),
    convolution(4, 3, "#3182bd"),
    convolution(4, 5, "#08519c"),
    Variant("LSTM, 1 layer", {"encoder": "lstm", "encoder.bidirectional": False}, "tab:green", "--"),
    Variant("LSTM, 1 layer, bidirectional", {"encoder": "lstm", "encoder.bidirectional": True}, "tab:green"),
    Variant("self-attention, 1 layer", {"encoder": "transformer", "encoder.num_layers": 1}, "tab:orange", "--"),
    Variant("self-attention, 4 layers", {"encoder": "transformer", "encoder.num_layers": 4}, "tab:red"),
)


class Row(NamedTuple):
    """Measurements of an encoder: a row of the tables and a line of the figure."""

    variant: Variant
    formula: tuple[float, float]  # how many tokens it sees before and after a position; inf: all
    jacobian: tuple[int, int]  # the same, by the derivative at initialisation
    accuracy: np.ndarray  # [seeds, 2 length - 1] by distance d = 1 - length .. length - 1


def config_of(variant: Variant, setting: Setting):
    sizes = {"embedding_size": setting.features, "hidden_size": setting.features, "dropout": 0.0}
    if variant.model["encoder"] == "transformer":
        sizes |= {"encoder.num_heads": 4, "encoder.feed_forward_size": 4 * setting.features}
    return change(base.get_config(), {f"model.{key}": value for key, value in (sizes | variant.model).items()})


def reach(model: Any) -> tuple[float, float]:
    """Returns the numbers of tokens that an encoder sees before and after a position, by formula."""
    encoder = model.encoder
    if encoder.name == "conv":
        side = encoder.num_layers * (encoder.kernel_size - 1) / 2
        return side, side
    return np.inf, np.inf if encoder.name == "transformer" or encoder.bidirectional else 0.0


def influence(encoder: nn.Module, params: Any, inputs) -> np.ndarray:
    """Returns whether the output at t depends on the input at s, [t, s], for inputs [n, d].

    Uses the derivative of a random projection of the output, which is exactly 0 without a path from s to t.
    """
    mask = jnp.ones((1, len(inputs)), bool)

    direction = jax.random.normal(jax.random.key(0), inputs.shape[-1:])

    @jax.jit
    def gradients(params, inputs):
        _, pull = jax.vjp(lambda inputs: encoder.apply({"params": params}, inputs[None], mask)[1][0], inputs)
        return jax.vmap(pull)(jnp.eye(len(inputs))[..., None] * direction)[0]

    return np.asarray(gradients(params, inputs) != 0).any(axis=-1)


def measured_reach(seen: np.ndarray) -> tuple[int, int]:
    """Returns the largest distances of an input before and after an output that it influences; seen [t, s]."""
    output, place = np.nonzero(seen)
    return int((output - place).max()), int((place - output).max())


class Namer(nn.Module):
    """An encoder between two linear layers, with scores of the symbols at every position."""

    encoder: nn.Module
    features: int

    @nn.compact
    def __call__(self, inputs):
        embedded = nn.Dense(self.features, name="embed")(inputs)
        _, states = self.encoder(embedded, jnp.ones(inputs.shape[:2], bool))
        return nn.Dense(NUM_SYMBOLS, name="readout")(states)


def sequences(rng, batch_size: int, length: int):
    """Samples (inputs [b, n, NUM_SYMBOLS + 1]: one-hot symbols and a flag; answers [b]; places of the flag [b])."""
    symbol_rng, place_rng = jax.random.split(rng)
    symbols = jax.random.randint(symbol_rng, (batch_size, length), 0, NUM_SYMBOLS)
    places = jax.random.randint(place_rng, (batch_size,), 0, length)
    flag = jnp.arange(length) == places[:, None]
    inputs = jnp.concatenate([jax.nn.one_hot(symbols, NUM_SYMBOLS), flag[..., None]], axis=-1)
    return inputs, jnp.take_along_axis(symbols, places[:, None], axis=1)[:, 0], places


def train(namer: Namer, setting: Setting, rng):
    """Trains all seeds in one program; returns parameters with a leading axis of seeds.

    The loop over steps is a Python loop, as a convolution inside a compiled loop is more than ten times slower on a CPU
    (jax 0.10).
    """
    warmup = optax.linear_schedule(0.0, setting.learning_rate, setting.num_steps // 10)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(warmup))

    def loss_fn(params, rng):
        inputs, answers, places = sequences(rng, setting.batch_size, setting.length)
        logits = namer.apply({"params": params}, inputs)
        answers = jnp.broadcast_to(answers[:, None], logits.shape[:2])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, answers)
        # All orders of magnitude of the distance count the same, otherwise few answers are near the flag.
        weights = 1 / (1 + jnp.abs(jnp.arange(setting.length) - places[:, None]))
        return jnp.sum(weights * losses) / jnp.sum(weights)

    def init(rng):
        params = namer.init(rng, jnp.zeros((1, setting.length, NUM_SYMBOLS + 1)))["params"]
        return params, tx.init(params)

    @functools.partial(jax.jit, donate_argnums=0)
    @functools.partial(jax.vmap, in_axes=(0, 0, None))
    def update(state, rng, step):
        params, opt_state = state
        gradients = jax.grad(loss_fn)(params, jax.random.fold_in(rng, step))
        updates, opt_state = tx.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    init_rng, data_rng = jax.random.split(rng)
    state = jax.jit(jax.vmap(init))(jax.random.split(init_rng, setting.num_seeds))
    data_rngs = jax.random.split(data_rng, setting.num_seeds)
    for step in range(setting.num_steps):
        state = jax.block_until_ready(update(state, data_rngs, step))
    return state[0]


def measure(namer: Namer, setting: Setting, params: Any, rng) -> np.ndarray:
    """Returns accuracies [seeds, 2 length - 1] by the distance from the flag to the answer, 1 - length first."""
    length = setting.length

    @jax.jit
    @jax.vmap
    def count(params, rng):
        inputs, answers, places = sequences(rng, setting.num_measured, length)
        right = namer.apply({"params": params}, inputs).argmax(-1) == answers[:, None]
        index = jnp.arange(length) - places[:, None] + length - 1
        counts = jnp.stack([right, jnp.ones_like(right)]).astype(jnp.float32)
        return jnp.zeros((2, 2 * length - 1)).at[:, index].add(counts)

    right, asked = np.moveaxis(np.asarray(count(params, jax.random.split(rng, setting.num_seeds))), 1, 0)
    return right / np.maximum(asked, 1)


def run(variants: Sequence[Variant], setting: Setting) -> list[Row]:
    rows = []
    for variant in variants:
        config = config_of(variant, setting)
        options = resolve(config)
        encoder = options.model.build_encoder(options.setting)
        namer = Namer(encoder, setting.features)
        inputs = jax.random.normal(jax.random.key(1), (setting.length, setting.features))
        mask = jnp.ones((1, setting.length), bool)
        params = jax.jit(encoder.init)(jax.random.key(2), inputs[None], mask)["params"]
        seen = measured_reach(influence(encoder, params, inputs))
        accuracy = measure(namer, setting, train(namer, setting, jax.random.key(3)), jax.random.key(4))
        rows.append(Row(variant, reach(config.model), seen, accuracy))
        print(f"{variant.label}: sees {seen}, {100 * accuracy.mean():.1f} % right", file=sys.stderr)
    return rows


def raw_of(rows: Sequence[Row], setting: Setting) -> dict[str, Any]:
    """Returns the measurements as JSON has them; what a formula says is not among them."""
    found = [{"variant": row.variant.label, "jacobian": row.jacobian, "accuracy": row.accuracy} for row in rows]
    return {"setting": setting._asdict(), "rows": found}


def of_raw(results: dict[str, Any]) -> tuple[list[Row], Setting]:
    """Returns what `raw_of` was given."""
    variants, setting = {variant.label: variant for variant in VARIANTS}, Setting(**results["setting"])
    rows = []
    for row in results["rows"]:
        variant = variants[row["variant"]]
        seen = reach(config_of(variant, setting).model)
        rows.append(Row(variant, seen, tuple(row["jacobian"]), np.array(row["accuracy"])))
    return rows, setting


def answered(accuracy: np.ndarray) -> tuple[int, int]:
    """Returns the largest distances of a flag, before and after, with an accuracy above midway from chance to 1."""
    right = accuracy.mean(0) > (1 + 1 / NUM_SYMBOLS) / 2
    middle = len(right) // 2
    return tuple(int(np.argmin(np.append(side, False))) for side in (right[middle + 1 :], right[:middle][::-1]))


def table(rows: Sequence[Row]) -> str:
    """Formats Markdown tables: receptive fields by formula, derivative and answers; accuracies by distance."""
    length = rows[0].accuracy.shape[1] // 2 + 1

    def sides(pair: tuple[float, float]) -> str:
        return " / ".join("all" if side >= length - 1 else f"{side:g}" for side in pair)

    lines = ["| tokens seen before / after | formula | derivative at initialisation | answers after training |"]
    lines += ["|---|---|---|---|"]
    for row in rows:
        cells = [row.variant.label, *map(sides, (row.formula, row.jacobian, answered(row.accuracy)))]
        lines.append("| " + " | ".join(cells) + " |")
    shown = [distance for distance in DISTANCES if distance < length]
    for sign, where in ((1, "back"), (-1, "ahead")):
        lines += ["", "| flag d places " + where + " | " + " | ".join(f"d = {distance}" for distance in shown) + " |"]
        lines += ["|---|" + "---:|" * len(shown)]
        for row in rows:
            values = 100 * row.accuracy[:, [length - 1 + sign * distance for distance in shown]]
            spread = values.std(0, ddof=1) if len(values) > 1 else np.zeros(len(shown))
            cells = [f"{mean:.1f} (SD {std:.1f})" for mean, std in zip(values.mean(0), spread, strict=True)]
            lines.append(f"| {row.variant.label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(rows: Sequence[Row]) -> Figure:
    """Plots accuracy by distance, a panel per type of encoder: the mean over seeds, with their range as a band."""
    kinds = {
        "conv": "convolution: a window",
        "lstm": "recurrence: the past, or both sides",
        "transformer": "self-attention: everything",
    }
    figure = Figure(figsize=(11, 4), layout="constrained")
    axes_of = dict(zip(kinds, figure.subplots(1, len(kinds), sharey=True), strict=True))
    for row in rows:
        axes, accuracy = axes_of[row.variant.model["encoder"]], 100 * row.accuracy
        length = accuracy.shape[1] // 2 + 1
        distance = np.arange(1 - length, length)
        style = {"color": row.variant.color, "linestyle": row.variant.line}
        style |= {"linewidth": 1.8, "zorder": 2 if row.variant.line == "-" else 3}
        axes.plot(distance, accuracy.mean(0), label=row.variant.label.split(", ", 1)[1], **style)
        axes.fill_between(distance, accuracy.min(0), accuracy.max(0), color=row.variant.color, alpha=0.2, linewidth=0)
        far = max(DISTANCES) + 2
        axes.set_xlim(-far, far)
    for kind, axes in axes_of.items():
        axes.axhline(100 / NUM_SYMBOLS, color="0.5", linewidth=0.8, linestyle=":")
        axes.set(title=kinds[kind], ylim=(0, 105), xlabel="← flag ahead      distance      flag back →")
        axes.set_xticks([-32, -16, -8, 0, 8, 16, 32])
        axes.grid(color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.lines[:-1]:
            axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    axes_of["conv"].set_ylabel("right answers (percent)")
    axes_of["conv"].annotate("chance", (-33, 100 / NUM_SYMBOLS - 2), va="top", fontsize=8.5, color="0.4")
    return figure


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    rows, setting = of_raw(record["results"])
    return f"""# {__doc__.splitlines()[0]}

Every position names the one flagged symbol of its sequence; share of right answers by the distance of the flag, in
percent, mean and standard deviation (SD) of {setting.num_seeds} seeds; by chance {100 / NUM_SYMBOLS:.1f}.
What is measured and how, and the answer: [experiments/receptive_field.py](../receptive_field.py).

![right answers against distance](receptive_field.png)

{table(rows)}

Width {setting.features}, sequences of {setting.length}, {setting.num_steps} steps of Adam ({setting.learning_rate:g})
with {setting.batch_size} sequences each, measured on {setting.num_measured:,} sequences per seed.

{raw.circumstances(record)}
"""


PAGES = (raw.Page("receptive_field", page, {"receptive_field.png": lambda record: draw(of_raw(record["results"])[0])}),)


def measure_all() -> dict[str, Any]:
    """Measures everything; returns the results of the JSON file."""
    setting = Setting()
    return raw_of(run(VARIANTS, setting), setting)


if __name__ == "__main__":
    with one_line("receptive_field.py"):
        raw.main(PAGES[0], measure_all)
