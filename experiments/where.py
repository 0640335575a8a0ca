r"""Where did it look? Soft, sparse, hard and marginal attention over images whose true boxes are known.

    python experiments/where.py
    python experiments/where.py --table
    python experiments/where.py --name=where_mnist --small --config.data_dir=data/mnist --config.task.glyphs=mnist \
        --config.task.kinds="('digits',)" --config.task.sizes="(14,)" --config.task.canvas=40 \
        --config.task.num_objects="(1,2)"                       # scenes of written digits
    python experiments/where.py --name=where_questions --small --config.task.form=questions      # answers

Captions of generated scenes (configs/scenes_soft.py), every variant with three seeds in one vmapped program. Hard
attention of Xu 2015 (arXiv 1502.03044) learns slowly from random parameters, so the variants in STARTED begin with the
parameters of the soft run (train.start); soft attention that is trained on for as many steps stands beside them.
The first command trains what is not trained yet and writes experiments/results/where.json and .md; the second trains
nothing. Overrides are for all runs: --config.train.num_steps=100. With --small there are the variants of SMALL alone.
With --name the results and the runs have a name of their own; experiments/xu_tricks.py and where_beyond.py go on from
these runs.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from ml_collections import ConfigDict

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.files import load_json  # noqa: E402
from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.evaluation.statistics import compare, t_interval  # noqa: E402
from attn_jax.figures.overlays import shaded  # noqa: E402
from attn_jax.paths import expanded, user_path  # noqa: E402
from attn_jax.runs.build import build_setup, build_task  # noqa: E402
from attn_jax.runs.options import change, resolve  # noqa: E402
from attn_jax.runs.snapshot import kept_of, own_split, restore  # noqa: E402
from attn_jax.runs.workdir import load_config  # noqa: E402
from attn_jax.sweeps.jobs import Job, named, placed  # noqa: E402
from attn_jax.sweeps.sweep import run_jobs  # noqa: E402
from experiments import of_sweep, raw  # noqa: E402
from experiments.soft_vs_hard import EXACT, hard  # noqa: E402

RUNS = "runs/where"
SEEDS = (0, 1, 2)
COMMON = {"config": "configs/scenes_soft.py", "seeds": SEEDS, "eval.num_pictures": 0}
LUONG = {"decoder": "luong", "decoder.input_feeding": False}
LEARNED = hard("reinforce", 4, "learned", 96)
BASELINE, STARTED_BASELINE = "soft", "soft, trained on"
FRESH = {  # name -> changes to config.model of configs/scenes_soft.py; from random parameters
    BASELINE: {},
    "sparsemax": {"attention.normalize": "sparsemax"},
    "largest norm, 2 cells": {"attention.score": "norm", "objective": "top", "objective.num_samples": 2},
    "marginal": EXACT,
    "soft, step then attend": LUONG,
    "soft, step then attend, self-attention": LUONG | {"decoder.extras": ("self_attention",)},
    "hard, learned baseline, no start": LEARNED,
}
STARTED = {  # from the parameters of the soft run
    STARTED_BASELINE: {},
    "hard, running mean": hard("reinforce", 4, "running_mean"),
    "hard, learned baseline": LEARNED,
    "hard, leave-one-out": hard("reinforce", 4, "leave_one_out"),
    "hard, unordered set of 4": hard("unordered_set", 4, "leave_one_out"),
}
SMALL = (BASELINE, "sparsemax", "marginal", STARTED_BASELINE, "hard, learned baseline")
METRICS = {  # of a result -> (heading, digits)
    "exact_match": ("exact", 1),
    "one_cell": ("exact, one cell a word", 1),
    "touch": ("weight in the box", 1),
    "touch_by_centre": ("the same, cells by their centres", 1),
    "point": ("pointing game", 1),
    "cells": ("cells per word", 2),
}
SHOWN = 1  # number of the scene of the figure: not the first, which has a single object in most worlds
KEPT = ("seeds", "num_parameters", "steps", "train_seconds", "checkpoint")  # of result.json
SAMPLED = hard("reinforce", 1, "none") | {"objective": "trajectory"}  # one cell a word, whose context enters the state


def sweep(folder: str = RUNS, names: Sequence[str] = (*FRESH, *STARTED)) -> Iterator[dict[str, Any]]:
    """Yields the overrides of the runs `names`; those in STARTED need the soft run in `folder`."""
    for name in names:
        if name in FRESH:
            yield COMMON | _of_model(FRESH[name])
    for name in names:
        if name in STARTED:
            yield COMMON | _of_model(STARTED[name]) | start_from(folder)


def soft_run() -> Job:
    """Returns the run that others start from."""
    (soft,) = named([COMMON], pathlib.Path(__file__))
    return soft


def start_from(folder: str) -> dict[str, Any]:
    """Returns the overrides of a run that begins with the parameters of the soft run in `folder`."""
    return {"train.start": "run", "train.start.workdir": f"{folder}/{soft_run().name}"}


def _of_model(changes: dict[str, Any]) -> dict[str, Any]:
    return {f"model.{key}": value for key, value in changes.items()}


def train(todo: Sequence[Job], folder: pathlib.Path, common: list[str]) -> list[str]:
    """Trains what is not trained yet, first the runs that others start from; returns the names of failed runs."""
    first = [job for job in todo if "train.start" not in job.overrides]
    then = [job for job in todo if "train.start" in job.overrides]
    return [*run_jobs(first, folder, common), *run_jobs(then, folder, common)]


def collect(todo: Sequence[Job], folder: pathlib.Path, names: Sequence[str] = (*FRESH, *STARTED)) -> dict[str, Any]:
    """Returns {variant: what is kept of its result}, of the finished runs."""
    found = {}
    for variant, job in zip(names, todo, strict=True):
        path = folder / job.name / "result.json"
        if path.exists():
            result = load_json(path)
            found[variant] = {key: result[key] for key in KEPT} | {"metrics": measure(folder / job.name)}
    return found


def measure(workdir: pathlib.Path) -> dict[str, dict[str, list[float]]]:
    """Computes METRICS, and the weight in the box of equal weights, of each seed of a finished run.

    Soft attention, and the loss for contexts of single keys, read all cells with weight when a model is used. So the
    captions are also measured with the cell of the largest weight alone, as hard attention reads when its sampled
    context is fed back. A number that is not defined is None: the cells that weights on words alone are on.
    """
    config = load_config(workdir)
    snapshot = restore(resolve(config), workdir)
    task = build_task(resolve(config), kept_of(resolve(config), workdir))
    _, split = own_split(task)
    names = ["exact_match", "touch", "point", "cells", "uniform"]
    values = snapshot.evaluator.measure(snapshot.params, split, names).values
    single = build_setup(resolve(one_cell(config)), task.kept).evaluator
    edges = snapshot.model.module.picture.grid.edges(*snapshot.predictor.image[:2])
    centred = [100 * snapshot.evaluator.places(params, split, edges)["touch"] for params in snapshot.params]
    values |= {"touch_by_centre": {"seeds": centred}}
    values |= {"one_cell": single.measure(snapshot.params, split, ["exact_match"]).values["exact_match"]}
    names = (*METRICS, "uniform")
    return {name: {"seeds": [float(x) if np.isfinite(x) else None for x in values[name]["seeds"]]} for name in names}


def one_cell(config: ConfigDict) -> ConfigDict:
    """Returns the config of the same model that reads the cell of the largest weight of each word, and no other."""
    soft = config.model.objective.name in ("soft", "top")
    changes = {"objective": "top", "objective.num_samples": 1} if soft else SAMPLED
    return change(config, {f"model.{key}": value for key, value in changes.items()})


def looks(todo: Sequence[Job], folder: pathlib.Path, names: Sequence[str]) -> dict[str, Any]:
    """Returns a scene, its caption, and the weights of each variant for it, of the first seed."""
    found: dict[str, Any] = {"variants": {}}
    for variant, job in zip(names, todo, strict=True):
        path = folder / job.name
        if not (path / "result.json").exists():
            continue
        config = load_config(path)
        snapshot = restore(resolve(config), path)
        _, split = own_split(build_task(resolve(config), kept_of(resolve(config), path)))
        one, predictor = split.select([SHOWN]), snapshot.predictor
        (weights,) = predictor.grids(snapshot.params[0], one)
        image = predictor.gallery.pixels(one.source[0].partition("\t")[0])
        words = one.target[0].split()
        edges = [axis.tolist() for axis in predictor.edges]
        found |= {"source": one.source[0], "words": words, "boxes": one.boxes[0], "image": image.astype(int)}
        found["edges"] = edges  # of the cells
        found["variants"][variant] = raw.rounded(weights[: len(words)], 3)
    return found


def figure(record: dict[str, Any]) -> Figure:
    """Draws the overlays of all variants side by side: a row for each, a column for each word."""
    found = record["results"]["looks"]
    image, words, variants = np.array(found["image"], np.uint8), found["words"], found["variants"]
    size = (0.95 * len(words) + 2.4, 1.0 * len(variants) + 0.5)
    drawn = Figure(figsize=size, layout="constrained")
    extent, edges = (0, image.shape[1], image.shape[0], 0), tuple(map(np.array, found["edges"]))
    for axes_of, (variant, weights) in zip(
        drawn.subplots(len(variants), len(words), squeeze=False), variants.items(), strict=True
    ):
        for axes, word, cells, boxes in zip(axes_of, words, np.array(weights), found["boxes"], strict=True):
            axes.imshow(shaded(image, cells, edges), interpolation="nearest", extent=extent)
            for left, top, right, bottom in boxes:
                axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor="white"))
            axes.set_xticks([]), axes.set_yticks([])
            if axes.get_subplotspec().is_first_row():
                axes.set_title(word, fontsize=8)
        axes_of[0].set_ylabel(variant.replace(", ", ",\n"), fontsize=6, rotation=0, ha="right", va="center")
    return drawn


def report(found: dict[str, Any]) -> str:
    """Formats two tables: means over the seeds, and paired differences to soft attention of as many steps."""
    baselines = {variant: STARTED_BASELINE if variant in STARTED else BASELINE for variant in found}
    stars = {variant: f"{variant} *" for variant in STARTED}
    means, differences = tables(found, baselines, stars)
    lines = [means, "", "\\* begins with the parameters of soft, and is trained for as many steps again"]
    return "\n".join([*lines, "", "Differences, paired by seed:", "", differences] if differences else lines)


def tables(
    found: dict[str, Any], baselines: Mapping[str, str], labels: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, str]:
    """Formats (means over the seeds, paired differences of each variant to its baseline, "" without any)."""
    head = ["", *(heading for heading, _ in METRICS.values())]
    rows, apart = [], []
    for variant, result in found.items():
        baseline = baselines[variant]
        cells, differences = [labels.get(variant, variant)], [f"{variant} − {baseline}"]
        for name, (_, digits) in METRICS.items():
            values = result["metrics"][name]["seeds"]
            if len(values) == 1 or None in values:
                cells.append(", ".join("-" if value is None else f"{value:.{digits}f}" for value in values))
            else:
                cells.append(raw.interval(t_interval(values), digits))
            if baseline in found and len(values) > 1:
                other = found[baseline]["metrics"][name]["seeds"]
                known = None not in values + other
                differences.append(raw.interval(compare(values, other).difference, digits) if known else "")
        rows.append(cells)
        if variant != baseline and len(differences) == len(head):
            apart.append(differences)
    return raw.table(head, rows), raw.table(head, apart) if apart else ""


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    found = record["results"]
    seeds = max(len(result["seeds"]) for result in found["runs"].values())
    first = next(iter(found["runs"].values()))
    uniform, name = np.mean(first["metrics"]["uniform"]["seeds"]), found.get("name", "where")
    picture = f"\n![The weights of each variant, word by word]({name}.png)\n" if "looks" in found else ""
    missing = f"\nNot trained to the end: {', '.join(found['missing'])}.\n" if found["missing"] else ""
    undefined = any(None in of["seeds"] for result in found["runs"].values() for of in result["metrics"].values())
    note = "\n- a number for each seed, - for none, where all the weight of a seed is on words" if undefined else ""
    return f"""# {TITLES[name]}

{raw.circumstances(record)}
- test scenes of `configs/scenes_soft.py`, {first["steps"]} steps, mean of {seeds} seeds with its 95 % interval
- exact captions or answers, in percent; the same when the model reads the cell of the largest weight alone (soft and
  marginal attention, and hard attention with the mean context in its state, read all cells otherwise); weight on the
  cells that touch the box of the word's object, in percent (equal weights: {uniform:.1f}); the same when a cell is no
  equal part of the image but the pixels nearest to the centre of what it sees, half a cell further down and right;
  percent of the words whose cell of largest weight touches the box; number of equal weights with the entropy of the
  weights{note}

{report(found["runs"])}
{picture}{missing}"""


TITLES = {
    "where": "Where did it look?",
    "where_mnist": "Where did it look? Written digits",
    "where_questions": "Where did it look? Answers to questions",
}
NAMES = tuple(TITLES)
PAGES = tuple(raw.Page(name, page, {f"{name}.png": figure}) for name in NAMES)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default=NAMES[0], choices=NAMES, help="of the results")
    parser.add_argument("--small", action="store_true", help=f"only {'; '.join(SMALL)}")
    parser.add_argument("--runs", type=expanded, help="where the runs are or go; default runs/NAME")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory of the results")
    parser.add_argument("--table", action="store_true", help="train nothing")
    args, common = parser.parse_known_args(argv)
    args.runs = args.runs or f"runs/{args.name}"
    folder, path = pathlib.Path(args.runs), args.out / f"{args.name}.json"
    if wrong := [argument for argument in common if not argument.startswith("--config.")]:
        raise UserError(
            f"unknown argument {wrong[0]!r}; expected --config.KEY=VALUE, --name, --small, --runs, --out, --table"
        )
    begun = raw.begin(path)
    names = SMALL if args.small else (*FRESH, *STARTED)
    todo = placed(named(sweep(args.runs, names), pathlib.Path(__file__)), folder)
    of_sweep.check(todo, folder, common)
    failed = [] if args.table else train(todo, folder, common)
    found = collect(todo, folder, names)
    if not found:
        raise UserError(f"{folder}: no run is finished")
    missing = [variant for variant in names if variant not in found]
    chosen = [f"--name={args.name}"] * (args.name != NAMES[0]) + ["--small"] * args.small
    command = raw.command("where", *chosen, *common)
    results = {"name": args.name, "runs": found, "missing": missing, "looks": looks(todo, folder, names)}
    record = raw.write(path, results, command=command, begun=begun)
    print(PAGES[NAMES.index(args.name)].save(record, args.out))
    if failed:
        raise UserError(f"{len(failed)} of {len(todo)} runs failed: {', '.join(failed)}")


if __name__ == "__main__":
    with one_line("where.py"):
        main()
