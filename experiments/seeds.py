"""Are several seeds in one program the same as one program for each seed, and what do they cost?

    python experiments/seeds.py --num_seeds=6 --repeats=3

Trains the config once with all seeds in one vmapped program and once with each seed in a process of its own, one after
another, `repeats` times in turns. Compares, seed by seed, all training losses that were logged, the metrics of
result.json and the final parameters; and the seconds of the whole processes (each turn begins with an empty cache of
compiled programs, which the processes of one turn share) and of the training steps alone. Writes
experiments/results/seeds.json and .md. Options of the config may follow, such as
--config.train.num_steps=300. Times need a machine without other work.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np
from absl import logging

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.files import load_json  # noqa: E402
from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.evaluation.tables import markdown  # noqa: E402
from attn_jax.notices import notice  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from attn_jax.runs.options import resolve  # noqa: E402
from attn_jax.runs.snapshot import restore  # noqa: E402
from attn_jax.runs.workdir import load_config  # noqa: E402
from attn_jax.types import Params  # noqa: E402
from experiments import raw  # noqa: E402

COMMON = ("--config.eval.num_pictures=0",)


def train(config: str, workdir: pathlib.Path, overrides: list[str], cache: pathlib.Path) -> float:
    """Trains in a process of its own, with a cache of compiled programs; returns the seconds it took.

    Raises:
        UserError: it failed.
    """
    command = [sys.executable, "-m", "attn_jax.cli", f"--config={config}", f"--workdir={workdir}", *COMMON, *overrides]
    notice(f"{'seeds':<14}{workdir.name} ...")
    begin = time.monotonic()
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{workdir.name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    return time.monotonic() - begin


def seconds_of_steps(workdir: pathlib.Path) -> float:
    """Computes the number of steps times the median seconds of a step between two logs."""
    records = map(json.loads, (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    logs = np.array([(record["step"], record["seconds"]) for record in records if "seconds" in record])
    steps, times = np.diff(logs, axis=0).T
    return float(np.median(times / steps) * logs[-1, 0])


def losses(workdir: pathlib.Path) -> np.ndarray:
    """Reads the training losses of a run: [logs, seeds]."""
    records = map(json.loads, (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return np.array([np.atleast_1d(record["train/loss"]) for record in records if "train/loss" in record], np.float64)


def params_of(workdir: pathlib.Path) -> list[Params]:
    """Loads the parameters of each seed of a run."""
    return restore(resolve(load_config(workdir)), workdir).params


def largest_difference(a: Params, b: Params) -> float:
    """Returns max |a - b| / max |b| over all parameters."""
    pairs = list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    difference = max(float(np.max(np.abs(np.asarray(x) - np.asarray(y)))) for x, y in pairs)
    return difference / max(float(np.max(np.abs(np.asarray(y)))) for _, y in pairs)


def compare(together: pathlib.Path, alone: list[pathlib.Path]) -> list[dict]:
    """Compares each seed of the one program with its own process."""
    ours, curves, params = load_json(together / "result.json"), losses(together), params_of(together)
    found = []
    for index, (workdir, seed) in enumerate(zip(alone, ours["seeds"], strict=True)):
        theirs, curve = load_json(workdir / "result.json"), losses(workdir)[:, 0]
        metrics = {
            name: [values["seeds"][index], theirs["metrics"][name]["mean"]] for name, values in ours["metrics"].items()
        }
        difference = np.abs(curves[:, index] - curve) / np.abs(curve)
        found.append(
            {
                "seed": seed,
                "metrics": metrics,
                "loss_difference_first_log": float(difference[0]),
                "loss_difference_largest": float(difference.max()),
                "parameter_difference_largest": largest_difference(params[index], params_of(workdir)[0]),
            }
        )
    return found


def table(result: dict) -> str:
    """Formats the comparison and the times as Markdown."""
    names = list(result["seeds"][0]["metrics"])
    rows = [
        ["seed", *(f"{name}: together, alone" for name in names), "losses differ by: first log", "most", "parameters"]
    ]
    for of in result["seeds"]:
        cells = ["{:.6g}, {:.6g}".format(*of["metrics"][name]) for name in names]
        names_of = ("loss_difference_first_log", "loss_difference_largest", "parameter_difference_largest")
        differences = [of[name] for name in names_of]
        rows.append([str(of["seed"]), *cells, *(f"{difference:.1e}" for difference in differences)])
    times = [["seconds", "one program", "one process after another", "ratio"]]
    for name, label in (("wall", "whole processes"), ("steps", "training steps")):
        one, many = (float(np.median([run[name] for run in result["seconds"][how]])) for how in ("together", "alone"))
        times.append([label, f"{one:.1f}", f"{many:.1f}", f"{many / one:.2f}"])
    return f"{markdown(rows)}\n\n{markdown(times)}"


def page(record: dict) -> str:
    """Formats the page."""
    found = record["results"]
    return f"""# Are several seeds in one program the same as one program for each seed, and what do they cost?

{raw.circumstances(record)}

{found["config"]}, {found["steps"]} steps; what is measured: [experiments/seeds.py](../seeds.py). Differences are
relative: of the training loss at its first log and the largest at any log, and of the final parameters. Where the
first log agrees to rounding and later ones do not, training has amplified a small difference; that it is rounding alone
was not measured. Turns whose median is shown: {len(found["seconds"]["alone"])}.

{table(found)}
"""


PAGES = (raw.Page("seeds", page),)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/quickstart.py")
    parser.add_argument("--num_seeds", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    args, overrides = parser.parse_known_args(argv)
    if args.num_seeds < 2 or args.repeats < 1:
        parser.error("expected at least 2 seeds and 1 repetition")
    if wrong := [text for text in overrides if not text.startswith("--config.")]:
        parser.error(f"unknown option {wrong[0]}; options of the config look like --config.train.num_steps=300")
    path = args.out / "seeds.json"
    begun = raw.begin(path)
    seconds: dict[str, list[dict]] = {"together": [], "alone": []}
    with tempfile.TemporaryDirectory() as folder:
        for repeat, how in itertools.product(range(args.repeats), seconds):
            here = pathlib.Path(folder) / f"{how}{repeat}"
            if how == "together":
                options = {here / "together": f"--config.seeds={tuple(range(args.num_seeds))}"}
            else:
                options = {here / f"seed{seed}": f"--config.seeds=({seed},)" for seed in range(args.num_seeds)}
            cache = pathlib.Path(folder) / f"cache of {here.name}"
            walls = [train(args.config, workdir, [option, *overrides], cache) for workdir, option in options.items()]
            seconds[how].append({"wall": sum(walls), "steps": sum(map(seconds_of_steps, options))})
        first = pathlib.Path(folder)
        seeds = compare(first / "together0" / "together", sorted((first / "alone0").iterdir(), key=_number))
        steps = load_json(first / "together0" / "together" / "result.json")["steps"]
    found = {"config": args.config, "overrides": overrides, "steps": steps, "seeds": seeds, "seconds": seconds}
    options = [f"--config={args.config}", f"--num_seeds={args.num_seeds}", f"--repeats={args.repeats}", *overrides]
    command = raw.command("seeds", *options)
    print(PAGES[0].save(raw.write(path, found, command=command, begun=begun), args.out))


def _number(path: pathlib.Path) -> int:
    return int(path.name.removeprefix("seed"))


if __name__ == "__main__":
    logging.set_verbosity(logging.ERROR)  # orbax logs the options that it sets
    with one_line("seeds.py"):
        main()
