"""Which attention learns which task? One cell is a mechanism on a task, five seeds in one vmapped program.

    python -m experiments.matrix                                 every cell that has no result yet
    python -m experiments.matrix --cell=delta,recall             one cell
    python -m experiments.matrix --only=softmax,delta --budget=30   cells of rows or columns, 30 minutes

A cell is a decoder-only Transformer of two layers of width 64 with one head, whose attention is that of the row. Three
learning rates are tried with a seed that does not count; the one with the best score on the validation split is then
used for five other seeds, which are measured on the test split. A finished cell writes
experiments/results/matrix/ROW,COLUMN.json, so a killed program loses one cell. The protocol is in docs/matrix.md.
"""

import argparse
import math
import pathlib
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attn_jax.data.files import load_json, save_json
from attn_jax.errors import UserError, lookup, one_line
from attn_jax.evaluation.provenance import provenance
from attn_jax.notices import notice
from attn_jax.paths import user_path
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import RunOptions, change, resolve
from attn_jax.tasks.synthetic.recall import is_value
from attn_jax.training.loop import TrainState, make_train_step
from attn_jax.training.model_size import num_parameters
from attn_jax.training.optimizers import adam, clip, cosine
from attn_jax.types import Params
from experiments.recall import recalled

FOLDER = pathlib.Path(__file__).resolve().parent / "results" / "matrix"
RATES = (5e-4, 2e-3, 8e-3)
CHOOSING, SEEDS = 1000, (0, 1, 2, 3, 4)  # the seed that chooses the rate, and those that count
STEPS, WARMUP, CLIP = 2000, 100, 1.0
LOGGED = 50  # steps between two points of a curve
NO_POSITIONS = {"positions": "none"}


def around(name: str, **options: Any) -> dict[str, Any]:
    """Returns the changes that put one wrapper around the attention."""
    parts = {f"attention.wrappers.parts.{name}.{key}": value for key, value in options.items()}
    return {"attention.wrappers": (name,)} | parts


def normalizer(name: str, **options: Any) -> dict[str, Any]:
    """Returns the changes that choose a normalizer."""
    return {"attention.normalize": name} | {f"attention.normalize.{key}": value for key, value in options.items()}


ROWS: dict[str, dict[str, Any]] = {  # changes of `model`
    "softmax": {},
    "scalable_softmax": normalizer("scalable_softmax"),
    "softmax_one": normalizer("softmax_one"),
    "learned_sink": normalizer("learned_sink"),
    "sigmoid": normalizer("unnormalized_sigmoid"),
    "softpick": normalizer("softpick"),
    "sparsemax": normalizer("sparsemax"),
    "entmax15": normalizer("entmax15"),
    "learned_entmax": normalizer("learned_entmax"),
    "top_keys": around("top_keys", count=4),
    "qk_norm": {"attention.score": "qk_norm"},
    "stick_breaking": normalizer("stick_breaking") | NO_POSITIONS,
    "forgetting": {"positions": "forgetting"},
    "cope": normalizer("contextual_softmax") | NO_POSITIONS,
    "selective": around("selective"),
    "differential": around("difference"),
    "hopfield": around("hopfield", iterations=2),
    "local_line": around("line"),
    "parallax": around("parallax"),
    "linear": {"attention": "linear"},
    "retention": {"attention": "retention"},
    "gated_linear": {"attention": "gated_linear"},
    "delta": {"attention": "delta"},
    "gated_delta": {"attention": "gated_delta"},
    "mesa": {"attention": "mesa"},
}


class Column(NamedTuple):
    """A task, and what is measured of it.

    Attributes:
        config: name of a config of a language model.
        changes: changes of the config.
        tests: name of a test -> changes of the config that make its test split.
        metric: metric of the evaluator, in percent; or "recalled".
    """

    config: str
    changes: dict[str, Any]
    tests: dict[str, dict[str, Any]]
    metric: str


SEQUENCES = {"task.lengths": (4, 16), "task.buckets.shapes": (17,), "decode.max_length": 34}
TWICE = {"trained": {"task.test_lengths": (16,)}, "twice": {"task.test_lengths": (32,)}}
ONE: dict[str, dict[str, Any]] = {"test": {}}
COLUMNS = {
    "recall": Column("recall", {"model.short_convolution": 0}, ONE, "recalled"),
    "sort": Column("sort_softmax", SEQUENCES, TWICE, "exact_match"),
    "reverse": Column("sort_softmax", SEQUENCES | {"task.operation": "reverse"}, TWICE, "exact_match"),
    "flip_flop": Column("flip_flop", {"task.batch_size": 16}, ONE, "accuracy"),
    "addition": Column("addition", {"task.batch_size": 64}, ONE, "exact_match"),
    "permutations": Column("permutations", {"model": "language_model", "task.num_things": 3}, ONE, "exact_match"),
}
COMMON = {  # of every cell
    "parallel": "single",
    "task.valid_size": 500,
    "model.hidden_size": 64,
    "model.num_layers": 2,
    "model.num_heads": 1,
    "model.feed_forward_size": 256,
    "model.positions": "sinusoidal",
    "model.share_embeddings": True,
    "model.dropout": 0.0,
    "model.attention.score": "scaled_dot",
    "decode.batch_size": 250,
}


def options_of(row: str, column: str, test: str = "", **changes: Any) -> RunOptions:
    """Returns the options of a cell, with the test split of one of its tests."""
    of = COLUMNS[column]
    config = change(load_config_file(of.config), of.changes)
    config = change(config, COMMON)
    config = change(config, {f"model.{key}": value for key, value in ROWS[row].items()})
    return resolve(change(config, (of.tests[test] if test else {}) | changes))


def make_tx(num_steps: int) -> optax.GradientTransformation:
    """Makes Adam with warm-up and cosine decay, whose peak rate is a leaf of its state."""
    shape = cosine(1.0, min(WARMUP, num_steps // 10 + 1), num_steps)

    def of_rate(rate: Any) -> optax.GradientTransformation:
        schedule = optax.scale_by_learning_rate(lambda count: rate * shape(count))
        return optax.chain(clip(CLIP, False), adam(b1=0.9, b2=0.999, eps=1e-8), schedule)

    return optax.inject_hyperparams(of_rate)(rate=1.0)


def train(options: RunOptions, seeds: Sequence[int], rates: Sequence[float], steps: int) -> tuple[list[Params], Any]:
    """Trains members side by side, each with its seed and its learning rate.

    Returns:
        (parameters of each member, losses [points, members] of the training).
    """
    task = build_task(options)
    setup = build_setup(options, task.kept)
    batches = task.batches(**setup.batch_options, seeds=seeds)
    tx = make_tx(steps)
    step = jax.jit(jax.vmap(make_train_step(setup.model.loss_fn, tx)), donate_argnums=0)

    def create(seed: int, rate: float) -> TrainState:
        init_rng, rng = jax.random.split(jax.random.key(seed))
        state = TrainState.create(setup.model.init(init_rng, example), tx, rng)
        hyperparams = state.opt_state.hyperparams | {"rate": jnp.asarray(rate, jnp.float32)}
        return state.replace(opt_state=state.opt_state._replace(hyperparams=hyperparams))

    def batch_at(number: int) -> Any:
        batch = batches.batch_at(number)  # without an axis of members where there is one
        return batch if len(seeds) > 1 else jax.tree.map(lambda x: x[None], batch)

    example = jax.tree.map(lambda x: jnp.asarray(x[0]), batch_at(0))
    states = [jax.jit(create)(seed, rate) for seed, rate in zip(seeds, rates, strict=True)]
    state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    curve = []
    for number in range(steps):
        state, metrics = step(state, batch_at(number))
        if number % LOGGED == LOGGED - 1:
            curve.append(np.asarray(metrics["loss"].compute()))
    return [jax.tree.map(lambda x, i=i: x[i], state.params) for i in range(len(seeds))], np.array(curve)


def scores(options: RunOptions, params: Sequence[Params], split: str, name: str) -> list[float]:
    """Measures each member on a split, in percent."""
    task = build_task(options)
    setup = build_setup(options, task.kept)
    pairs = task.splits[split]
    if name != "recalled":
        return [float(x) for x in setup.evaluator.measure(list(params), pairs, [name]).values[name]["seeds"]]
    encoded = setup.predictor.translator.encode(pairs)
    shape = int(encoded.source.lengths.max()), int(encoded.target.lengths.max())
    batch = encoded.batch(np.arange(len(pairs)), shape)
    values = is_value(batch["target_out"], setup.predictor.translator.target_vocabulary)
    return [100 * recalled(setup.model, one, batch, values) for one in params]


def measure(row: str, column: str, *, steps: int = STEPS, rates: Sequence[float] = RATES, **changes: Any) -> dict:
    """Trains and measures a cell; returns the content of its file."""
    begun, of = time.monotonic(), COLUMNS[column]
    options = options_of(row, column, **changes)
    tried, _ = train(options, (CHOOSING,) * len(rates), rates, steps)
    found = scores(options, tried, "valid", of.metric)
    # A member that has diverged is not chosen; the larger rate wins a tie.
    rate = max(zip(np.nan_to_num(found, nan=-1.0), rates, strict=True))[1]
    params, curve = train(options, SEEDS, (rate,) * len(SEEDS), steps)
    tests = {test: scores(options_of(row, column, test, **changes), params, "test", of.metric) for test in of.tests}
    return {
        "row": row,
        "column": column,
        "metric": of.metric,
        "steps": steps,
        "rates": dict(zip(map(str, rates), found, strict=True)),
        "rate": rate,
        "seeds": list(SEEDS),
        "tests": tests,
        "losses": np.round(curve, 4).T.tolist(),
        "num_parameters": num_parameters(params[0]),
        "minutes": round((time.monotonic() - begun) / 60, 2),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "command": f"python -m experiments.matrix --cell={row},{column}",
        **provenance(),
    }


def cells(only: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yields the cells of these rows and columns, all without any; of a column with softmax first."""
    for name in only:
        lookup(ROWS | COLUMNS, name, "row or column")
    rows = [name for name in ROWS if name in only] or list(ROWS)
    columns = [name for name in COLUMNS if name in only] or list(COLUMNS)
    yield from ((row, column) for column in columns for row in rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", default="", help="ROW,COLUMN: this one alone, measured again")
    parser.add_argument("--only", default="", help="names of rows and columns, with commas between")
    parser.add_argument("--budget", type=float, default=math.inf, help="minutes after which no further cell begins")
    parser.add_argument("--out", type=user_path, default=FOLDER, help="folder of the files of the cells")
    given, begun = parser.parse_args(argv), time.monotonic()
    todo = [tuple(given.cell.split(","))] if given.cell else list(cells([x for x in given.only.split(",") if x]))
    for number, cell in enumerate(todo, 1):
        if len(cell) != 2 or cell[0] not in ROWS or cell[1] not in COLUMNS:
            raise UserError(f"--cell={given.cell}: expected a row, a comma and a column, such as delta,recall")
        path = given.out / f"{','.join(cell)}.json"
        if path.exists() and not given.cell:
            continue
        if time.monotonic() - begun > 60 * given.budget:
            notice(f"{'budget':<14}used up; {len(todo) - number + 1} cells are left to look at")
            return
        notice(f"{'cell':<14}{number}/{len(todo)}  {', '.join(cell)}")
        save_json(path, measure(*cell))
        print(line(load_json(path)), flush=True)


def line(found: Mapping[str, Any]) -> str:
    """Formats a cell: the scores of its seeds in each test."""
    tests = "   ".join(f"{test} {' '.join(f'{x:.1f}' for x in of)}" for test, of in found["tests"].items())
    return f"{found['row']:<18}{found['column']:<14}rate {found['rate']:g}   {tests}   {found['minutes']} minutes"


if __name__ == "__main__":
    with one_line("matrix.py"):
        main()
