"""Can a memory of fixed size recall the value of a key, as attention over all keys can?

    python launch.py --sweep=experiments/recall.py
    python experiments/recall.py

Associative recall (attn_jax/tasks/recall.py), 4 pairs in 64 tokens, in a decoder-only Transformer of two layers of
width 64 with one head: attention over keys, linear attention, the delta rule and the gated delta rule, five seeds in
one vmapped program. The memories that are written have a short convolution of width 4, as in the published blocks;
attention over keys has none. The first command trains, the second measures the share of values that are the first
choice of the model on new texts, and writes experiments/results/recall.json and .md.

Other sizes and memories: --config.task.num_pairs=16 --config.model.attention.memory=mesa with configs/recall.py.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.cli.commands import restore  # noqa: E402
from attn_jax.cli.sweep import jobs  # noqa: E402
from attn_jax.cli.workdir import load_config  # noqa: E402
from attn_jax.errors import one_line  # noqa: E402
from attn_jax.models.base import Model  # noqa: E402
from attn_jax.tasks.recall import is_value, sample  # noqa: E402
from attn_jax.types import Params  # noqa: E402
from experiments import raw  # noqa: E402

MEMORIES = {
    "softmax over all keys": "keys",
    "linear attention": "linear",
    "delta rule": "delta",
    "gated delta rule": "gated_delta",
}
CONVOLUTION = 4


def sweep() -> Iterator[dict]:
    for memory in MEMORIES.values():
        run = {"config": "configs/recall.py", "seeds": (0, 1, 2, 3, 4), "model.attention.memory": memory}
        yield run if memory == "keys" else run | {"model.attention.written.convolution": CONVOLUTION}


def recalled(model: Model, params: Params, batch: dict[str, np.ndarray], values: np.ndarray) -> float:
    """Computes the share of the values, where `values` is True, that are the first choice of the model."""
    arguments = [jnp.asarray(batch[name]) for name in ("source", "target_in", "target_out")]
    run = jax.jit(lambda params: model.module.apply({"params": params}, *arguments, method="evaluate")[1])
    return float(np.asarray(run(params))[values].mean())


def measure(workdir: pathlib.Path, count: int) -> list[float]:
    """Returns the share of values that each seed of a run recalls in `count` new texts, in percent."""
    config = load_config(workdir)
    trained = restore(config, workdir)
    sizes = {key: config.task[key] for key in ("num_pairs", "num_keys", "num_values", "num_fillers", "length")}
    pairs = sample(count, np.random.default_rng((2, 1)), **sizes)  # never the generator of a split
    encoded = trained.predictor.translator.encode(pairs)
    shape = int(encoded.source.lengths.max()), int(encoded.target.lengths.max())
    batch = encoded.batch(np.arange(count), shape)
    values = is_value(batch["target_out"], trained.predictor.translator.target_vocabulary)
    return [100 * recalled(trained.predictor.model, params, batch, values) for params in trained.params]


def report(results: dict[str, Sequence[float]]) -> str:
    """Formats a Markdown table: a row per memory, mean and standard deviation of its seeds, and each of them."""
    lines = ["| memory | values recalled | each seed |", "|---|---|---|"]
    for name, shares in results.items():
        spread = f" ± {np.std(shares, ddof=1):.1f}" if len(shares) > 1 else ""
        each = ", ".join(f"{share:.1f}" for share in shares)
        lines.append(f"| {name} | {np.mean(shares):.1f}{spread} | {each} |")
    return "\n".join(lines)


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    results = record["results"]
    return f"""# Associative recall by memory

{raw.circumstances(record)}
- percent of the values of {results["texts"]:,} test texts that are the first choice; mean ± standard deviation of the
  seeds

{report(results["recalled"])}
"""


PAGES = (raw.Page("recall", page),)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "runs" / "recall")
    parser.add_argument("--count", type=int, default=1000, help="new texts")
    parser.add_argument("--out", type=pathlib.Path, default=raw.RESULTS, help="directory")
    args, begun = parser.parse_args(argv), raw.Begun.now()
    results = {
        name: measure(args.runs / job.name, args.count)
        for name, job in zip(MEMORIES, jobs(pathlib.Path(__file__)), strict=True)
        if (args.runs / job.name / "result.json").exists()
    }
    if not results:
        parser.exit(1, f"recall.py: no trained run in {args.runs}; train with launch.py --sweep={__file__}\n")
    found = {"texts": args.count, "recalled": results}
    record = raw.write(args.out / "recall.json", found, command="python experiments/recall.py", begun=begun)
    print(PAGES[0].save(record, args.out))


if __name__ == "__main__":
    with one_line("recall.py"):
        main()
