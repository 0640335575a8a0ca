"""Which output layer learns most in the same time, and in the same number of steps, with 50,000 words?

    python launch.py --sweep=experiments/output_layers.py
    python experiments/output_layers.py --time
    python experiments/output_layers.py

An LSTM of width 128 reads a generated text of 50,000 words by Zipf's law, whose entropy is known (configs/zipf.py).
Each output layer trains three seeds in one program. Sampled and hierarchical layers update the rows that they read
alone. The second command trains a few steps of each layer, one after another, on a machine that does nothing else; a
time is the number of steps times the time of a step there. Evaluation does not count, it is exact for all of them.
Layers are compared with the full softmax at the last step and the last second that both have reached; intervals are
paired by seed. Writes experiments/results/output_layers.md, .json and .png. experiments/benchmarks/output_speed.py
measures the layers by themselves, for up to a million words.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from attn_jax.evaluation.statistics import t_interval  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from attn_jax.runs.workdir import load_config  # noqa: E402
from attn_jax.sweeps.jobs import Job, jobs, placed  # noqa: E402
from attn_jax.sweeps.sweep import run_jobs  # noqa: E402
from attn_jax.tasks.synthetic.zipf import ZipfSource  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402

RESULTS = ROOT / "experiments" / "results"
UNITS = {"steps": " ({:.0f} steps)", "seconds": " ({:.0f} s)", "best": ""}
SEEDS = (0, 1, 2)
# Steps of each layer: those that are faster take more, so that all train for at least as long as the full softmax.
NUM_STEPS = {
    "full": 400,
    "chunked": 400,
    "adaptive": 4000,
    "sampled": 11_000,
    "nce": 11_000,
    "negative_sampling": 11_000,
    "blackout": 11_000,
    "hierarchical": 6000,
}
BY_ROWS = ("sampled", "nce", "negative_sampling", "blackout", "hierarchical")


def sweep() -> Iterator[dict[str, Any]]:
    for name, steps in NUM_STEPS.items():
        yield {
            "config": "configs/zipf.py",
            "model.output.name": name,
            "task.batch_size": 16,
            "task.valid_size": 200,
            "seeds": SEEDS,
            "train.num_steps": steps,
            "train.num_epochs": 0.0,
            "train.eval_every": steps // 10,
            "train.log_every": 50,
            "train.keep": 1,
            **({"train.lazy_rows": True} if name in BY_ROWS else {}),
        }


def logged(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the records of a run."""
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def curve(workdir: pathlib.Path, timed: pathlib.Path) -> dict[str, list]:
    """Returns the validation losses of a run: {"steps": [n], "seconds": [n], "losses": [n, seeds]}.

    Seconds are those of training steps: the tokens of a run over the median tokens per second of the run `timed`, which
    its log measures without compilation and evaluations.
    """
    records = logged(workdir)
    trained = [record for record in records if "tokens_per_second" in record]
    speed = np.median([record["tokens_per_second"] for record in logged(timed) if "tokens_per_second" in record])
    per_step = sum(record["tokens"] for record in trained) / trained[-1]["step"] / speed
    found = [record for record in records if "valid/loss" in record]
    return {
        "steps": [record["step"] for record in found],
        "seconds": [record["step"] * float(per_step) for record in found],
        "losses": [np.atleast_1d(record["valid/loss"]).tolist() for record in found],
    }


def at(curve: dict[str, list], key: str, value: float) -> np.ndarray:
    """Returns the best losses of the seeds up to a number of steps or seconds, between two evaluations by a line."""
    losses = np.minimum.accumulate(curve["losses"])
    return np.array([np.interp(value, curve[key], losses[:, seed]) for seed in range(losses.shape[1])])


def compare(
    curves: dict[str, dict[str, list]], baseline: str = "full", converged: tuple[str, ...] = ()
) -> dict[str, dict[str, Any]]:
    """Compares all layers with the baseline at the last step, and at the last second, that both have reached.

    Layers that have `converged` before the baseline's end are compared there. None: one of the two was not yet
    evaluated then. Also compares the best losses.
    """
    full, rows = curves[baseline], {}
    best_of_full = np.min(full["losses"], axis=0)
    ends = {"steps": full["steps"][-1], "seconds": full["seconds"][-1]}
    for name, found in curves.items():
        row: dict[str, Any] = {"ms_per_step": 1e3 * found["seconds"][-1] / found["steps"][-1]}
        row["best"] = measured(np.min(found["losses"], axis=0), best_of_full)
        for key, end in ends.items():
            where = end if name in converged else min(end, found[key][-1])
            if where < max(found[key][0], full[key][0]):
                row[key] = None
                continue
            row[key] = measured(at(found, key, where), at(full, key, where)) | {"at": where}
        rows[name] = row
    return rows


def measured(losses: np.ndarray, of_baseline: np.ndarray) -> dict[str, Any]:
    """Returns the losses of the seeds, their perplexity, and the paired difference to those of the baseline."""
    difference = (losses - of_baseline).tolist()
    return {
        "losses": losses.tolist(),
        "perplexity": float(np.exp(np.mean(losses))),
        "difference": float(np.mean(difference)),
        "half_width": t_interval(difference).half_width,
    }


def table(rows: dict[str, dict[str, Any]], baseline: str = "full") -> str:
    """Returns a table in Markdown: perplexities, and the paired differences of the loss to the baseline.

    "equal steps" and "equal time" are the last that both have reached, in parentheses.
    """
    minus = f"loss - {baseline}"
    lines = [
        f"| layer | ms per step | equal steps | {minus} | equal time | {minus} | best | {minus} |",
        "|---|" + "--:|" * 7,
    ]
    for name, row in rows.items():
        cells = [f"{row['ms_per_step']:.0f}"]
        for key in ("steps", "seconds", "best"):
            found = row[key]
            cells += (
                ["", ""]
                if found is None
                else [
                    f"{found['perplexity']:.1f}{UNITS[key].format(found.get('at'))}",
                    f"{found['difference']:+.4f} ± {found['half_width']:.4f}",
                ]
            )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def made_by(workdir: pathlib.Path) -> dict[str, Any]:
    """Returns commit, date, steps, checkpoint and, of a test split, the perplexities of the seeds of a run."""
    result = json.loads((workdir / "result.json").read_text(encoding="utf-8"))
    kept = {key: result[key] for key in ("commit", "date", "steps", "checkpoint")}
    return kept | ({"test": result["metrics"]["perplexity"]["seeds"]} if result["split"] == "test" else {})


def at_the_end(runs: dict[str, dict[str, Any]]) -> str:
    """Returns a table in Markdown: perplexities of the test split, of the checkpoints that were best in validation."""
    tested = {name: run for name, run in runs.items() if "test" in run}
    lines = ["| layer | checkpoint | test perplexity | each seed |", "|---|---|--:|---|"]
    for name, run in tested.items():
        mean = t_interval(run["test"])
        each = ", ".join(f"{value:.1f}" for value in run["test"])
        lines.append(f"| {name} | {run['checkpoint']} | {raw.interval(mean)} | {each} |")
    return "\n".join(lines) if tested else ""


def draw(record: dict[str, Any]) -> Figure:
    """Plots the mean perplexity over training seconds and over steps."""
    curves, lowest = record["results"]["curves"], record["results"]["lowest_perplexity"]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, key in zip(figure.subplots(1, 2, sharey=True), ("seconds", "steps"), strict=True):
        for name, found in curves.items():
            axes.plot(found[key], np.exp(np.mean(found["losses"], axis=1)), label=name)
        if lowest is not None:
            axes.axhline(lowest, color="black", linestyle=":", label="lowest possible")
        axes.set(xlabel=f"training {key}", xscale="log", yscale="log")
        axes.xaxis.set_minor_formatter("")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("perplexity, validation")
    figure.axes[1].legend(frameon=False, fontsize="small")
    return figure


def lowest_perplexity(workdir: pathlib.Path) -> float | None:
    """Returns the lowest possible perplexity of a generated text; None for a text from files."""
    task = load_config(workdir).task
    if task.name != "zipf":
        return None
    source = ZipfSource(num_words=task.num_words, num_classes=task.num_classes, exponent=task.exponent)
    return float(np.exp(source.entropy(task.length) / (task.length + 1)))


def train_briefly(todo: list[Job], folder: pathlib.Path, common: list[str]) -> None:
    """Trains a few steps of each run, to measure their speed."""
    run_jobs([briefly(job) for job in todo], folder, common)


def briefly(job: Job) -> Job:
    """Returns a run of 50 steps with the settings and the work directory of another one.

    It is validated on ten examples and not tested.
    """
    kept = {key: value for key, value in job.overrides.items() if key not in ("train.num_epochs", "task.test")}
    short = {"train.num_steps": 50, "train.eval_every": 50, "train.log_every": 10, "task.valid_size": 10}
    return Job(job.name, job.config, kept | short)


def with_layer(job: Job, name: str) -> Job:
    """Returns a run with another output layer."""
    overrides = job.overrides | {"model.output.name": name}
    return Job(job.name.replace(job.overrides["model.output.name"], name), job.config, overrides)


def report(
    path: pathlib.Path,
    title: str,
    argv: list[str] | None,
    *,
    baseline: str = "full",
    converged: tuple[str, ...] = (),
    same: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Compares the runs of the sweep in a file, and writes the results beside each other: .md, .json, .png.

    A layer in `same` computes what the named layer of the sweep computes, at another speed: of it only the speed is
    measured.
    """
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--runs", type=user_path, default=ROOT / "runs" / path.stem)
    parser.add_argument("--timed", type=user_path, default=ROOT / "runs" / f"{path.stem}_time", help="short runs")
    parser.add_argument("--time", action="store_true", help="train the short runs")
    parser.add_argument("--out", type=user_path, default=RESULTS / f"{path.stem}.md")
    args, common = parser.parse_known_args(argv)
    todo = {job.overrides["model.output.name"]: job for job in placed(jobs(path), args.runs)}
    timed = todo | {name: with_layer(todo[of], name) for name, of in same.items()}
    if args.time:
        train_briefly(list(timed.values()), args.timed, common)
        return
    if common:
        parser.error(f"unrecognized arguments: {' '.join(common)}")
    begun = raw.begin(args.out.with_suffix(".json"))
    of_sweep.check(todo.values(), args.runs)
    found = {name: args.runs / todo[same.get(name, name)].name for name in timed}
    curves = {
        name: curve(run, args.timed / timed[name].name) for name, run in found.items() if (run / "result.json").exists()
    }
    if baseline not in curves:
        parser.exit(1, f"{path.name}: no finished run in {args.runs}; train with launch.py --sweep={path}\n")
    lowest, rows = lowest_perplexity(found[baseline]), compare(curves, baseline, converged)
    runs = {name: made_by(found[name]) for name in curves}
    results = {"runs": runs, "lowest_perplexity": lowest, "rows": rows, "curves": curves}
    record = raw.write(args.out.with_suffix(".json"), results, command=raw.command(path.stem), begun=begun)
    print(page_of(path.stem, title, baseline).save(record, args.out.parent))


def page_of(name: str, title: str, baseline: str = "full") -> raw.Page:
    """Returns the page of the experiment in NAME.py."""

    def text(record: dict[str, Any]) -> str:
        found, intervals = record["results"], "95 % intervals of the mean over three seeds, paired"
        lowest = found["lowest_perplexity"]
        known = "command" in record  # an earlier file has not all of the circumstances
        parts = [
            f"# {title}",
            f"{raw.circumstances(record)}\n- {intervals}" if known else f"`python experiments/{name}.py`; {intervals}",
            table(found["rows"], baseline),
            at_the_end(found["runs"]),
            f"Lowest possible perplexity: {lowest:.2f}." if lowest else "",
        ]
        return "\n\n".join(filter(None, parts)) + "\n"

    return raw.Page(name, text, {f"{name}.png": draw}, load=raw.read_any)


TITLE = "Which output layer learns most in the same time?"
PAGES = (page_of("output_layers", TITLE),)


def main(argv: list[str] | None = None) -> None:
    report(pathlib.Path(__file__), TITLE, argv)


if __name__ == "__main__":
    with one_line("output_layers.py"):
        main()
