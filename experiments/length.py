"""Trained on short sequences, tested on longer ones: do the normalizer of attention and the positions decide?

    python launch.py --sweep=experiments/length.py
    python launch.py --sweep=experiments/length.py --workdir=runs/length_small --config.task.num_examples=100000 \\
        --config.model.hidden_size=32
    python experiments/length.py
    python experiments/length.py --out=experiments/results/length_small.json    # of the smaller runs
    python experiments/length.py --render

Sort and reverse (the task sequences), trained up to length L = 16, tested at L, 2 L, 4 L and 8 L,
with softmax, 1.5-entmax and adaptive-scalable entmax in the same decoder-only Transformer, three seeds in one vmapped
program; half of its heads have a bias by distance (nape). Sorting also without positions: softmax, stick-breaking
attention (Tan 2024, arXiv 2410.17980) and forgetting attention (Lin 2025, arXiv 2503.02130), whose bias is learned from
the data. The first command trains, the second with half the width and a quarter of the steps, for two cores; the third
decodes and writes experiments/results/length.json, .md and .png, and the last writes two of them again from the first.
Vasylenko 2025 (arXiv 2506.16640, table 1) found for sort 100/0/0/0 with softmax, 100/100/80/0 with ASEntmax.

Answer: for sort 100/0/0/0 with softmax, 100/84/1/0 with ASEntmax. Of the smaller runs softmax without positions is the
best: with 97.3 % at twice the length, where 1.5-entmax with the bias has 15.8 %, positions matter at least as much.
"""

import argparse
import pathlib
import sys
from typing import Any

import numpy as np
from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import lookup, one_line  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from attn_jax.runs.options import resolve  # noqa: E402
from attn_jax.runs.snapshot import restore  # noqa: E402
from attn_jax.runs.workdir import load_config  # noqa: E402
from attn_jax.tasks.synthetic.sequences import make_pairs  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402

RESULTS = ROOT / "experiments" / "results"
CONFIGS = {"softmax": "sort_softmax", "1.5-entmax": "sort_entmax", "adaptive-scalable entmax": "sort_asentmax"}
WITHOUT_POSITIONS = {  # for sorting, over configs/sort_softmax.py
    "softmax, no positions": {"model.positions": "none"},
    "stick-breaking": {"model.positions": "none", "model.attention.normalize": "stick_breaking"},
    "forgetting attention": {"model.positions": "forgetting"},
}
OVERRIDES = {  # reversing needs more layers (6 in the paper), and is learned sooner
    "sort": {},
    "reverse": {"model.num_layers": 4, "optimizer.learning_rate": 2e-3, "train.num_epochs": 0.64},
}
FACTORS = (1, 2, 4, 8)


def sweep():
    for operation, name in names():
        run = {"config": f"configs/{CONFIGS.get(name, 'sort_softmax')}.py", "task.operation": operation}
        yield run | {"seeds": (0, 1, 2)} | OVERRIDES[operation] | WITHOUT_POSITIONS.get(name, {})


def names() -> list[tuple[str, str]]:
    """Returns (task, mechanism) of each run of the sweep, in its order."""
    return [("sort", name) for name in (*CONFIGS, *WITHOUT_POSITIONS)] + [("reverse", name) for name in CONFIGS]


def measure(workdir: pathlib.Path, count: int) -> dict[int, dict[str, dict]]:
    """Returns {length: {metric: {"mean", "std", "seeds"}}} of a trained run on `count` new sequences per length."""
    config = load_config(workdir)
    longest = config.task.lengths[1]
    with config.unlocked():
        config.decode.max_length = FACTORS[-1] * longest + 1
    trained = restore(resolve(config), workdir)
    results = {}
    for factor in FACTORS:
        rng = np.random.default_rng((2, factor))  # never the generator of a split
        pairs = make_pairs(config.task.operation, config.task.num_symbols, (factor * longest,), count, rng)
        names = ("exact_match", "accuracy")
        results[factor * longest] = trained.evaluator.measure(trained.params, pairs, names).values
    return results


def report(results: dict[tuple[str, str], dict[int, dict[str, dict]]]) -> str:
    """Formats a Markdown table: a row per task and mechanism, exact match of greedy decoding per length."""
    lengths = list(next(iter(results.values())))
    head = ["task", "attention", *(f"length {length}" for length in lengths)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (operation, name), rows in results.items():
        cells = [f"{row['exact_match']['mean']:.1f} (SD {row['exact_match']['std']:.1f})" for row in rows.values()]
        lines.append(f"| {operation} | {name} | " + " | ".join(cells) + " |")
    lines += ["", "Each seed, exact match / share of the symbols that are right after the right ones before them:", ""]
    for (operation, name), rows in results.items():
        for length, row in rows.items():
            pairs = zip(row["exact_match"]["seeds"], row["accuracy"]["seeds"], strict=True)
            seeds = ", ".join(f"{exact:.1f} / {accuracy:.1f}" for exact, accuracy in pairs)
            lines.append(f"- {operation}, {name}, length {length}: {seeds}")
    return "\n".join(lines)


def draw(results: dict[tuple[str, str], dict[int, dict[str, dict]]]) -> Figure:
    """Plots exact match against length, a panel per task, with the range over seeds as a band."""
    operations = list(dict.fromkeys(operation for operation, _ in results))
    figure = Figure(figsize=(4.2 * len(operations), 3.4), layout="constrained")
    for number, operation in enumerate(operations, 1):
        axes = figure.add_subplot(1, len(operations), number)
        for (own, name), rows in results.items():
            if own == operation:
                seeds = np.array([row["exact_match"]["seeds"] for row in rows.values()])
                (line,) = axes.plot(list(rows), seeds.mean(axis=1), marker="o", label=name)
                axes.fill_between(list(rows), seeds.min(axis=1), seeds.max(axis=1), alpha=0.15, color=line.get_color())
        axes.set_xscale("log", base=2)
        axes.set(title=operation, xlabel="length", ylim=(-3, 103))
        axes.set_xticks(list(rows), [str(length) for length in rows])
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("exact match, percent")
    figure.axes[0].legend(frameon=False)
    return figure


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=user_path, help="of the sweep; default runs/length, or runs/length_small")
    parser.add_argument("--count", type=int, default=200, help="test sequences of each length")
    parser.add_argument("--out", type=user_path, default=RESULTS / "length.json")
    parser.add_argument("--render", action="store_true", help="write the page of an earlier measurement")
    args = parser.parse_args(argv)
    results_page = lookup({page.name: page for page in PAGES}, args.out.stem, "--out")
    folder = args.runs or ROOT / "runs" / args.out.stem
    if not args.render:
        begun, found = raw.begin(args.out), []
        for (operation, name), workdir in of_sweep.finished(pathlib.Path(__file__), names(), folder).items():
            lengths = {str(length): row for length, row in measure(workdir, args.count).items()}
            found.append({"task": operation, "attention": name, "lengths": lengths})
        command = f"python experiments/length.py --out=experiments/results/{args.out.name}"
        raw.write(args.out, {"runs": found, "count": args.count}, command=command, begun=begun)
    record = raw.read(args.out)
    print(results_page.save(record, args.out.parent))


def results_of(record: dict[str, Any]) -> dict[tuple[str, str], dict[int, dict[str, dict]]]:
    """Returns {(task, attention): {length: {metric: {"mean", "std", "seeds"}}}}."""
    return {
        (run["task"], run["attention"]): {int(length): row for length, row in run["lengths"].items()}
        for run in record["results"]["runs"]
    }


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    title = "# Trained short, tested long: normalizers, positions and length"
    note = "mean and standard deviation (SD) of three seeds, percent of the sequences decoded without a mistake"
    lines = [title, "", raw.circumstances(record), f"- {record['results']['count']} sequences of each length; {note}"]
    return "\n".join([*lines, "", report(results_of(record)), ""])


PAGES = tuple(
    raw.Page(name, page, {f"{name}.png": lambda record: draw(results_of(record))})
    for name in ("length", "length_small")
)


if __name__ == "__main__":
    with one_line("length.py"):
        main()
