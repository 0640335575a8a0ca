"""What are the three tricks of hard attention worth: the moving-average baseline, the entropy, and the mean context?

    python experiments/where.py              # the soft run that all begin with
    python experiments/xu_tricks.py
    python experiments/xu_tricks.py --table

Xu 2015 (arXiv 1502.03044), section 4.1, samples one cell for each word, feeds it back, and lists three ways to reduce
the variance: a baseline that is a running mean of the reward, the entropy of the weights as a bonus, and, with
probability one half, the mean context in the place of the sampled one. Here each is on and off, alone and with the
others, from the parameters of the soft run (train.start), three seeds in one vmapped program. The first command
trains what is not trained yet and writes experiments/results/xu_tricks.json and .md; the second trains nothing.
Overrides are for all runs: --config.train.num_steps=100.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.paths import expanded, user_path  # noqa: E402
from attn_jax.sweeps.jobs import named, placed  # noqa: E402
from attn_jax.sweeps.sweep import run_jobs  # noqa: E402
from experiments import of_sweep, raw, where  # noqa: E402

RUNS = "runs/xu_tricks"
TRICKS = {  # trick -> (changes to config.model with it, without it)
    "baseline": ({"objective.baseline": "running_mean"}, {"objective.baseline": "none"}),
    # In the authors' code 0.002 of the sum over a batch, beside the mean of the likelihoods; here both are means.
    "entropy": ({"penalties": ("entropy",), "penalties.parts.entropy.weight": 0.002 * 32}, {}),
    "mean": ({"objective.mean_probability": 0.5}, {}),
}
ALL, NONE = "all three", "none of them"


def variant(on: Sequence[str]) -> dict[str, Any]:
    """Returns the changes to config.model with some of the tricks."""
    changes = dict(where.SAMPLED)
    for name, (with_it, without) in TRICKS.items():
        changes |= with_it if name in on else without
    return changes


VARIANTS = {
    ALL: variant(list(TRICKS)),
    **{f"without {name}": variant([other for other in TRICKS if other != name]) for name in TRICKS},
    **{f"{name} alone": variant([name]) for name in TRICKS},
    NONE: variant([]),
}


def sweep(start: str = where.RUNS) -> Iterator[dict[str, Any]]:
    """Yields the overrides of every run; `start` has the soft run of experiments/where.py."""
    for changes in VARIANTS.values():
        own = {f"model.{key}": value for key, value in changes.items()}
        yield where.COMMON | own | where.start_from(start)


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    found = record["results"]
    first = next(iter(found["runs"].values()))
    means, differences = where.tables(found["runs"], dict.fromkeys(found["runs"], ALL))
    apart = f"\nDifferences, paired by seed:\n\n{differences}\n" if differences else ""
    missing = f"\nNot trained to the end: {', '.join(found['missing'])}.\n" if found["missing"] else ""
    return f"""# The three tricks of hard attention

{raw.circumstances(record)}
- one sampled cell a word, fed back, from the parameters of the soft run; {first["steps"]} steps,
  {len(first["seeds"])} seeds, 95 % intervals
- `baseline`: running mean of the reward; `entropy`: its bonus; `mean`: mean contexts with probability 0.5

{means}
{apart}{missing}"""


PAGES = (raw.Page("xu_tricks", page),)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=expanded, default=RUNS, help="where the runs are or go")
    parser.add_argument("--start", default=where.RUNS, help="where the soft run of experiments/where.py is")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory of the results")
    parser.add_argument("--table", action="store_true", help="train nothing")
    args, common = parser.parse_known_args(argv)
    folder, path = pathlib.Path(args.runs), args.out / "xu_tricks.json"
    if wrong := [argument for argument in common if not argument.startswith("--config.")]:
        raise UserError(
            f"unknown argument {wrong[0]!r}; expected --config.KEY=VALUE, --start, --runs, --out or --table"
        )
    begun = raw.begin(path)
    todo = placed(named(sweep(args.start), pathlib.Path(__file__)), folder)
    of_sweep.check(todo, folder, common)
    failed = [] if args.table else run_jobs(todo, folder, common)
    found = where.collect(todo, folder, tuple(VARIANTS))
    if not found:
        raise UserError(f"{folder}: no run is finished")
    missing = [name for name in VARIANTS if name not in found]
    command = raw.command("xu_tricks", *common)
    results = {"runs": found, "missing": missing}
    print(PAGES[0].save(raw.write(path, results, command=command, begun=begun), args.out))
    if failed:
        raise UserError(f"{len(failed)} of {len(todo)} runs failed: {', '.join(failed)}")


if __name__ == "__main__":
    with one_line("xu_tricks.py"):
        main()
