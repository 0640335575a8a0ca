"""Can a memory of fixed size recall the value of a key, as attention over all keys can?

    python launch.py --sweep=experiments/recall.py
    python experiments/recall.py

Associative recall (the task recall), 4 pairs in 64 tokens, in a decoder-only Transformer of two layers of width 64
with one head: softmax and sparsemax over all keys, Parallax, stick-breaking and forgetting attention without
positions, linear attention, the delta rule and the gated delta rule, five seeds in one vmapped program, the same
texts for all. A short convolution of width 4 precedes self-attention in every model, as in the published models of
such memories; three mechanisms are trained without one, too. The first command trains, and the second measures the
share of values that are the first choice of the model on new texts, and writes experiments/results/recall.json and
.md. Published (Yang 2024, arXiv 2406.06484): the delta rule above linear attention.

The convolution, the learning rate and the size of the batches were chosen with softmax, linear attention and the delta
rule by another seed (10) and the task's own validation and test texts; the texts of the second command are new ones.

16 pairs in 256 tokens, with the same settings: the sweep with --workdir=runs/recall_256 --config.task.num_pairs=16
--config.task.length=222 --config.task.buckets.shapes="((33,223),)" --config.decode.max_length=224, and then

    python experiments/recall.py --runs=runs/recall_256 --name=recall_256

and, of width 128, with --workdir=runs/recall_wide --config.model.hidden_size=128 --config.model.feed_forward_size=512
--config.optimizer.learning_rate=1e-3 and --name=recall_wide. That rate was taken because with it the validation loss of
softmax was lower than with the rate of width 64, and that of the delta rule nearly the same (seed 10).
Width 128 in 256 tokens has the changes of both: --workdir=runs/recall_256_wide and --name=recall_256_wide.
The rate 1e-3 at width 64: --workdir=runs/recall_rate --config.optimizer.learning_rate=1e-3 and --name=recall_rate.
Mechanisms that are not trained are left out of the page; with --add it keeps the rows that it has of mechanisms whose
runs are not here.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.cli.commands import restore  # noqa: E402
from attn_jax.data.files import load_json  # noqa: E402
from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.evaluation.provenance import provenance  # noqa: E402
from attn_jax.evaluation.statistics import compare, t_interval  # noqa: E402
from attn_jax.models.base import Model  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from attn_jax.runs.options import resolve  # noqa: E402
from attn_jax.runs.workdir import load_config  # noqa: E402
from attn_jax.tasks.synthetic.recall import is_value  # noqa: E402
from attn_jax.types import Params  # noqa: E402
from configs.recall import get_config  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402

ALONE = {"short_convolution": 0}
MECHANISMS: dict[str, dict[str, Any]] = {  # changes of config.model in configs/recall.py
    "softmax": {},
    "sparsemax": {"attention.normalize": "sparsemax"},
    "Parallax": {"attention.wrappers": ("parallax",)},
    "stick-breaking": {"attention.normalize": "stick_breaking", "positions": "none"},
    "forgetting": {"positions": "forgetting"},
    "linear attention": {"attention": "linear"},
    "delta rule": {"attention": "delta"},
    "gated delta rule": {"attention": "gated_delta"},
    "softmax, no convolution": ALONE,
    "linear attention, no convolution": {"attention": "linear"} | ALONE,
    "delta rule, no convolution": {"attention": "delta"} | ALONE,
}
PAIRS = (  # besides all with the first
    ("delta rule", "linear attention"),
    ("gated delta rule", "delta rule"),
    ("linear attention", "linear attention, no convolution"),
    ("delta rule", "delta rule, no convolution"),
)
SEEDS = (0, 1, 2, 3, 4)
NAMES = ("recall", "recall_256", "recall_wide", "recall_256_wide", "recall_rate")  # of the results
TRAINED = ("commit", "date", "train_seconds", "device")  # of a run, which are not those of this measurement
BY_MECHANISM = ("recalled", "steps", "trained", "measured")  # results that are {mechanism: ...}


def sweep() -> Iterator[dict]:
    for changes in MECHANISMS.values():
        yield {"config": "configs/recall.py", "seeds": SEEDS} | {
            f"model.{key}": value for key, value in changes.items()
        }


def recalled(model: Model, params: Params, batch: dict[str, np.ndarray], values: np.ndarray) -> float:
    """Computes the share of the values, where `values` is True, that are the first choice of the model."""
    arguments = [jnp.asarray(batch[name]) for name in ("source", "target_in", "target_out")]
    run = jax.jit(lambda params: model.module.apply({"params": params}, *arguments, method="evaluate")[1])
    return float(np.asarray(run(params))[values].mean())


def measure(workdir: pathlib.Path, count: int) -> list[float]:
    """Returns the share of values that each seed of a run recalls in `count` new texts, in percent."""
    options = resolve(load_config(workdir))
    trained = restore(options, workdir)
    pairs = options.task.sample(count, np.random.default_rng((2, 1)))  # never the generator of a split
    encoded = trained.predictor.translator.encode(pairs)
    shape = int(encoded.source.lengths.max()), int(encoded.target.lengths.max())
    batch = encoded.batch(np.arange(count), shape)
    values = is_value(batch["target_out"], trained.predictor.translator.target_vocabulary)
    return [100 * recalled(trained.predictor.model, params, batch, values) for params in trained.params]


def described(config: ConfigDict) -> str:
    """Formats what a run has in common with the others of its table."""
    task, rate = config.task, config.optimizer.learning_rate
    tokens = 2 * task.num_pairs + task.length + 2  # the source and the target, each with its end
    of_rate = f", learning rate {rate:g}" if rate != get_config().optimizer.learning_rate else ""
    return f"{task.num_pairs} pairs in {tokens} tokens, width {config.model.hidden_size}{of_rate}"


def report(results: dict[str, Sequence[float]]) -> str:
    """Formats two tables: the share of each mechanism and seed, and differences that are paired by seed."""
    first = next(iter(results))
    rows = [
        [
            name,
            raw.interval(t_interval(shares)) if len(shares) > 1 else f"{shares[0]:.1f}",
            *(f"{share:.1f}" for share in shares),
        ]
        for name, shares in results.items()
    ]
    seeds = max(len(shares) for shares in results.values())
    text = raw.table(["mechanism", "values recalled", *(f"seed {i}" for i in range(seeds))], rows)
    pairs = [(name, first) for name in results if name != first] + list(PAIRS)
    apart = [
        [f"{name} − {other}", raw.interval(compare(results[name], results[other]).difference)]
        for name, other in pairs
        if {name, other} <= results.keys() and len(results[name]) == len(results[other]) > 1
    ]
    return text + "\n\nDifferences, paired by seed:\n\n" + raw.table(["", "difference"], apart) if apart else text


def added(results: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """Returns the results with the rows of an earlier record whose mechanisms are not among them.

    Raises:
        UserError: the earlier record is of another task, or of another number of texts.
    """
    for key in ("task", "texts"):
        if (there := earlier["results"].get(key)) != results[key]:
            raise UserError(
                f"the page has results of {key} {there}, the runs are of {results[key]}; run without --add to write it "
                "anew"
            )
    commits = {name: earlier["commit"] for name in earlier["results"]["recalled"]}
    old = earlier["results"] | {"measured": commits | earlier["results"].get("measured", {})}
    merged = {key: old.get(key, {}) | results[key] for key in BY_MECHANISM}
    return results | {key: {name: rows[name] for name in MECHANISMS if name in rows} for key, rows in merged.items()}


def _trained(runs: dict[str, dict[str, Any]]) -> str:
    if not runs:
        return ""
    dates, commits = (sorted({run[key][:n] for run in runs.values()}) for key, n in (("date", 10), ("commit", 7)))
    minutes = sorted(run["train_seconds"] / 60 for run in runs.values())
    took = f"{minutes[0]:.0f} to {minutes[-1]:.0f} minutes each, beside other work"
    on = raw.accelerators(list(runs.values()))
    return f"\n- trained {', '.join(dates)}, commit {', '.join(commits)}, {took}{on}"


def _measured(commits: dict[str, str]) -> str:
    found = sorted({(commit or "unknown")[:7] for commit in commits.values()})
    return f"\n- measured by commits {', '.join(found)}" if len(found) > 1 else ""


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    results = record["results"]
    trained = _trained(results.get("trained", {})) + _measured(results.get("measured", {}))
    steps = ", ".join(f"{n:,}" for n in sorted(set(results["steps"].values())))
    return f"""# Associative recall by mechanism: {results.get("task", "4 pairs in 64 tokens, width 64")}

{raw.circumstances(record)}
- percent of the values of {results["texts"]:,} new texts that are the first choice; means of the seeds with their
  95 % intervals; steps of training: {steps}{trained}

{report(results["recalled"])}
"""


PAGES = tuple(raw.Page(name, page) for name in NAMES)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default=NAMES[0], choices=NAMES, help="of the results")
    parser.add_argument("--runs", type=user_path, help="of the sweep; default runs/NAME")
    parser.add_argument("--count", type=int, default=1000, help="new texts")
    parser.add_argument("--add", action="store_true", help="keep the rows of mechanisms whose runs are not here")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    args = parser.parse_args(argv)
    path = args.out / f"{args.name}.json"
    begun, earlier = raw.begin(path), raw.earlier(path) if args.add else None
    args.runs = args.runs or ROOT / "runs" / args.name
    folders = of_sweep.finished(pathlib.Path(__file__), MECHANISMS, args.runs)
    tasks = {described(load_config(folder)) for folder in folders.values()}
    if len(tasks) > 1:
        parser.exit(1, f"recall.py: the runs in {args.runs} are of different tasks: {'; '.join(sorted(tasks))}\n")
    results = {name: measure(folder, args.count) for name, folder in folders.items()}
    finished = {name: load_json(folder / "result.json") for name, folder in folders.items()}
    steps = {name: result["steps"] for name, result in finished.items()}
    trained = {name: {key: result[key] for key in TRAINED} for name, result in finished.items()}
    found = {"task": tasks.pop(), "texts": args.count, "recalled": results, "steps": steps, "trained": trained}
    command = "python experiments/recall.py" + f" --name={args.name}" * (args.name != NAMES[0])
    found["measured"] = dict.fromkeys(results, provenance()["commit"])
    found = added(found, earlier) if earlier else found
    record = raw.write(path, found, command=command + " --add" * args.add, begun=begun)
    print(PAGES[NAMES.index(args.name)].save(record, args.out))


if __name__ == "__main__":
    with one_line("recall.py"):
        main()
