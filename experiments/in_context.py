"""How near does attention come to the best regression on the pairs in its context?

    python experiments/in_context.py
    python experiments/in_context.py --small
    python experiments/in_context.py --render

Linear regression in context (the task in_context), whose Bayes error is known exactly: pairs (x, y), then a query x,
whose y is to be predicted. The same causal stack of two layers of width 32 with four heads, without positions, reads
softmax attention over all keys, linear attention, the delta rule, MesaNet, or a local line; the mean context is
Nadaraya-Watson regression, a local line is local linear regression (Zuo 2025, arXiv 2510.01450), MesaNet ridge
regression (von Oswald 2025, arXiv 2506.05233). Five seeds train in one vmapped program, all mechanisms on the same
batches. What is reported is the excess error, the mean of (prediction - posterior mean)^2: the expected squared error
is this much above the Bayes error. The first command trains, measures and writes experiments/results/in_context.json
and .md; the second does so with two columns and at most 8 pairs, a few minutes for a mechanism on one core; the third
writes the Markdown and the section of docs/recurrent_memory.md again from the JSON file. Mechanisms that --runs has a
file of, of the same settings, are not trained again."""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.files import load_json, save_json  # noqa: E402
from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.evaluation.statistics import compare, t_interval  # noqa: E402
from attn_jax.layers.transformer import TransformerStack  # noqa: E402
from attn_jax.models.transformer.options import LanguageModelOptions  # noqa: E402
from attn_jax.notices import notice  # noqa: E402
from attn_jax.parts import read  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from attn_jax.runs.tree import resolve_tree  # noqa: E402
from attn_jax.tasks.synthetic.in_context import InContextOptions, Regressions  # noqa: E402
from attn_jax.types import Array, Bool, Float, Params  # noqa: E402
from experiments import raw  # noqa: E402

RESULT = ROOT / "experiments" / "results" / "in_context.json"
PAGE = ROOT / "docs" / "recurrent_memory.md"
BEGIN, END = "<!-- in_context: begin -->", "<!-- in_context: end -->"
MECHANISMS: dict[str, dict[str, Any]] = {  # changes of the options of a language model
    "softmax": {},
    "linear attention": {"attention": "linear"},
    "delta rule": {"attention": "delta"},
    "MesaNet": {"attention": "mesa", "attention.steps": 8},  # a head has 8 columns
    "local line": {"attention.wrappers": ("line",)},
}
BASELINE = "softmax"
SEEDS = (0, 1, 2, 3, 4)
WIDTH, NUM_LAYERS, NUM_HEADS = 32, 2, 4
LEARNING_RATE, CLIP = 2e-3, 1.0


class Size(NamedTuple):
    """What is learned, and for how long."""

    task: InContextOptions
    counts: tuple[int, ...]  # of pairs in the test; the last is twice the most in training
    steps: int
    batch_size: int
    test_size: int = 4000

    def key(self) -> dict[str, Any]:
        """Returns what a JSON file keeps of it."""
        task = {"features": self.task.features, "num_pairs": self.task.num_pairs, "noise": self.task.noise}
        return {**task, "steps": self.steps, "batch_size": self.batch_size, "test_size": self.test_size}


FULL = Size(InContextOptions(features=4, num_pairs=16, noise=0.25), (2, 4, 8, 16, 32), 3000, 64)
SMALL = Size(InContextOptions(features=2, num_pairs=8, noise=0.25), (2, 4, 8, 16), 2000, 32)


class Regressor(nn.Module, kw_only=True):
    """A causal stack over the tokens [x; y; 0] of the pairs and [query; 0; 1]; the last state is the prediction."""

    stack: TransformerStack

    def __call__(self, *batch: Array) -> Float[Array, " b"]:
        return self.run(*batch)[0]

    @nn.compact
    def run(
        self, x: Float[Array, "b n d"], y: Float[Array, "b n"], given: Bool[Array, "b n"], query: Float[Array, "b d"]
    ) -> tuple[Float[Array, " b"], list[Float[Array, "b h k k"]]]:
        """Returns (predictions, weights of each layer)."""
        pairs = jnp.concatenate([x, y[..., None], jnp.zeros_like(y)[..., None]], axis=-1)
        last = jnp.pad(query, ((0, 0), (0, 2))).at[:, -1].set(1)[:, None]
        embedded = nn.Dense(self.stack.features)(jnp.concatenate([pairs, last], axis=1))
        mask = jnp.pad(given, ((0, 0), (0, 1)), constant_values=True)
        states, _, reads = self.stack.run(embedded, mask)
        return nn.Dense(1)(states[:, -1])[:, 0], [read.own.weights for read in reads]


def build(mechanism: dict[str, Any], *, width: int = WIDTH) -> Regressor:
    """Builds the model of a mechanism."""
    sizes = {"num_layers": NUM_LAYERS, "num_heads": NUM_HEADS, "feed_forward_size": 2 * width, "positions": "none"}
    changes = sizes | ({} if "attention" in mechanism else {"attention.score": "scaled_dot"}) | mechanism
    options = read(LanguageModelOptions, resolve_tree(LanguageModelOptions, changes=changes)[0])
    stack = options.build_stack(
        features=width, dropout=0.0, dtype=jnp.float32, attention=options.attention, causal=True
    )
    return Regressor(stack=stack)


def arrays(examples: Regressions) -> tuple[np.ndarray, ...]:
    """Returns the arguments of a Regressor."""
    given = np.arange(examples.inputs.shape[-2]) < examples.counts[..., None]
    x, y, query = (part.astype(np.float32) for part in (examples.inputs, examples.outputs, examples.query))
    return x, y, given, query


def train(model: Regressor, seeds: Sequence[int], size: Size = FULL) -> Params:
    """Trains all seeds side by side; the batches of a seed and step are the same for every mechanism."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, LEARNING_RATE, size.steps // 20 + 1, size.steps + 1)
    tx = optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(schedule))

    def loss(params, batch, answer):
        return jnp.mean(jnp.square(model.apply({"params": params}, *batch) - answer))

    @jax.jit
    @jax.vmap
    def step(params, state, batch, answer):
        updates, state = tx.update(jax.grad(loss)(params, batch, answer), state, params)
        return optax.apply_updates(params, updates), state

    def batch_at(number: int) -> Regressions:
        rows = [size.task.sample(size.batch_size, np.random.default_rng((0, seed, number))) for seed in seeds]
        return Regressions(*(np.stack(parts) for parts in zip(*rows, strict=True)))

    first = arrays(batch_at(0))
    rngs = jax.vmap(jax.random.key)(jnp.array(seeds))
    params = jax.jit(jax.vmap(lambda rng, *batch: model.init(rng, *batch)["params"]))(rngs, *first)
    state = jax.vmap(tx.init)(params)
    for number in range(size.steps):
        examples = batch_at(number)
        params, state = step(params, state, arrays(examples), examples.answer.astype(np.float32))
        jax.block_until_ready(params) if number % 50 == 0 else None  # bounds the number of steps in flight
    return params


def excess(model: Regressor, params: Params, examples: Regressions, task: InContextOptions = FULL.task) -> np.ndarray:
    """Returns the mean of (prediction - posterior mean)^2 for each seed."""
    predict = jax.jit(jax.vmap(lambda params, batch: model.apply({"params": params}, *batch), in_axes=(0, None)))
    predicted = np.asarray(predict(params, arrays(examples)), np.float64)
    return np.mean((predicted - task.bayes(examples).mean) ** 2, axis=-1)


def settings(name: str, size: Size, seeds: Sequence[int]) -> dict[str, Any]:
    """Returns all that the numbers of a mechanism depend on, besides the code."""
    model = {"mechanism": MECHANISMS[name], "width": WIDTH, "num_layers": NUM_LAYERS, "num_heads": NUM_HEADS}
    training = {"learning_rate": LEARNING_RATE, "clip": CLIP, "seeds": seeds}
    return raw.plain({**size.key(), "counts": size.counts, "model": model, "training": training})


def kept_of(path: pathlib.Path, now: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the errors that are kept in a file; None if there is none or, which is said, it is of other settings."""
    if not path.exists():
        return None
    kept = load_json(path)
    differs = raw.difference(kept["settings"], now) if "settings" in kept else "they were not kept"
    if differs:
        notice(f"{path}: other settings ({differs}); it is measured again")
    return None if differs else kept["excess"]


def measure(size: Size, runs: pathlib.Path, seeds: Sequence[int] = SEEDS) -> dict[str, Any]:
    """Trains every mechanism; returns its excess error for each number of pairs and seed, and the Bayes errors.

    A mechanism is kept in `runs` as soon as it is measured, so that a measurement that was stopped goes on. What
    was kept with other settings is measured again.
    """
    task = size.task
    tests = {count: task.sample(size.test_size, np.random.default_rng((1, count)), count) for count in size.counts}
    found = {}
    for name, mechanism in MECHANISMS.items():
        path = runs / f"{name.replace(' ', '_')}.json"
        now = settings(name, size, seeds)
        errors = kept_of(path, now)
        if errors is None:
            model = build(mechanism)
            params = train(model, seeds, size)
            errors = {str(count): excess(model, params, rows, task).tolist() for count, rows in tests.items()}
            save_json(path, {"settings": now, "excess": errors})
        found[name] = errors
        means = {count: round(float(np.mean(values)), 4) for count, values in found[name].items()}
        print(name, means, file=sys.stderr, flush=True)
    bayes = {str(count): float(task.bayes(examples).error.mean()) for count, examples in tests.items()}
    return {"excess": found, "bayes": bayes, **size.key(), "seeds": list(seeds)}


def report(results: dict[str, Any]) -> str:
    """Formats two tables: the excess errors, and their paired differences to softmax."""
    counts, found = list(results["bayes"]), results["excess"]
    head = ["", *(f"{count} pairs" for count in counts)]
    rows = [["Bayes error", *(f"{results['bayes'][count]:.4f}" for count in counts)]]
    rows += [
        [name, *(raw.interval(t_interval(values[count]), 4) for count in counts)] for name, values in found.items()
    ]
    apart = [
        [name, *(raw.interval(compare(values[count], found[BASELINE][count]).difference, 4) for count in counts)]
        for name, values in found.items()
        if name != BASELINE
    ]
    return "\n".join(
        [
            f"Excess error above the Bayes error, mean of {len(results['seeds'])} seeds with its 95 % interval; "
            f"{results['features']} columns, up to {results['num_pairs']} pairs in training, "
            f"{results['steps']:,} steps of {results['batch_size']} sequences:",
            "",
            raw.table(head, rows),
            "",
            f"Difference to {BASELINE}, paired by seed:",
            "",
            raw.table(head, apart),
        ]
    )


def page_of(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    title = "# In-context regression: excess error by mechanism"
    return f"{title}\n\n{raw.circumstances(record)}\n\n{report(record['results'])}\n"


PAGES = (raw.Page("in_context", page_of),)


def check(page: pathlib.Path) -> None:
    """Checks that a page can be read and has the two marks.

    Raises:
        UserError: it cannot, or has not.
    """
    if not page.is_file():
        raise UserError(f"--page={page}: there is no such file; expected a page with the lines {BEGIN} and {END}")
    _, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    if not begin or END not in rest:
        raise UserError(f"--page={page}: it has not the lines {BEGIN} and {END}")


def render(path: pathlib.Path, page: pathlib.Path) -> None:
    """Writes the Markdown beside a JSON file, and the section between the two marks of a page.

    Raises:
        UserError: the page is not there, or has not the two marks.
    """
    record = raw.read(path)
    check(page)
    path.with_suffix(".md").write_text(page_of(record), encoding="utf-8")

    def changed(text: str) -> str:
        before, _, rest = text.partition(BEGIN)
        return f"{before}{BEGIN}\n{report(record['results'])}\n{END}{rest.partition(END)[2]}"

    raw.rewrite(page, changed)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="two columns, at most 8 pairs, fewer and smaller steps")
    parser.add_argument("--steps", type=int, help=f"{FULL.steps:,}, or {SMALL.steps:,} if small")
    parser.add_argument("--runs", type=user_path, default=ROOT / "runs" / "in_context", help="of each mechanism")
    parser.add_argument("--out", type=user_path, default=RESULT)
    parser.add_argument("--page", type=user_path, default=PAGE)
    parser.add_argument("--render", action="store_true", help="write the pages of an earlier measurement")
    args = parser.parse_args(argv)
    check(args.page)
    if not args.render:
        begun, size = raw.begin(args.out), SMALL if args.small else FULL
        size = size._replace(steps=args.steps) if args.steps else size
        chosen = ["--small"] * args.small + ([f"--steps={args.steps}"] if args.steps else [])
        raw.write(args.out, measure(size, args.runs), command=raw.command("in_context", *chosen), begun=begun)
    render(args.out, args.page)


if __name__ == "__main__":
    with one_line("in_context.py"):
        main()
