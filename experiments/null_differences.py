"""How often does a comparison find a difference between a config and itself?

    python experiments/null_differences.py

Trains configs/babi_quickstart.py for 40 steps with 640 seeds, half of them in each of two vmapped programs, and deals
the seeds out: 40 repetitions of two groups of eight. Each pair of groups is compared as two runs of a sweep are, by the
exact sign-flip test and the interval of Student's t; and the first models of both groups by the paired bootstrap over
the sentences of the test split. There is nothing to find, so at the level of 5 % a test should find something in about
5 % of the cases, and not in more. The values of the seeds are also dealt out 2,000 times at random, which measures the
share more finely.

Answer (experiments/results/null_differences.md): the sign-flip test and the interval each find a difference in 2 of 40
repetitions, 5 %. The bootstrap over sentences finds one between two seeds of this config in 72 to 90 %: so early in
training two seeds are models that do differ. A comparison of two configs needs seeds.

Writes experiments/results/null_differences.json and .md. A run that is finished is not trained again.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.files import load_json  # noqa: E402
from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.evaluation.paired import over_sentences  # noqa: E402
from attn_jax.evaluation.statistics import LEVEL, compare  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from attn_jax.runs.sentences import read_sentences  # noqa: E402
from attn_jax.sweeps.jobs import jobs, placed  # noqa: E402
from attn_jax.sweeps.sweep import run_jobs  # noqa: E402
from experiments import raw  # noqa: E402

REPETITIONS, GROUP, PER_RUN = 40, 8, 320
METRICS = ("loss", "accuracy")
OVERRIDES = {
    "train.num_steps": 40,
    "train.eval_every": 40,
    "train.choose_seed": "",
    "eval.metrics": ("accuracy",),
    "eval.num_pictures": 0,
}


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the runs: the same config with other seeds."""
    for first in range(0, 2 * REPETITIONS * GROUP, PER_RUN):
        seeds = tuple(range(first, first + PER_RUN))
        yield {"config": "configs/babi_quickstart.py", **OVERRIDES, "seeds": seeds}


def measure(folders: list[pathlib.Path]) -> dict[str, Any]:
    """Returns the values of all seeds, and the p-values over sentences of the first models of each two groups."""
    found = [load_json(folder / "result.json") for folder in folders]
    values = {metric: [x for one in found for x in one["metrics"][metric]["seeds"]] for metric in METRICS}
    tables = [read_sentences(folder / "sentences.json") for folder in folders]
    p_values: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for repetition in range(REPETITIONS):
        one, other = (_alone(tables, (2 * repetition + group) * GROUP) for group in (0, 1))
        for metric in METRICS:
            p_values[metric].append(over_sentences(one, other, metric).p_value)
    sentences = next(one["sentences"] for one in found)
    return {"values": values, "p_values_over_sentences": p_values, "sentences": sentences, "overrides": OVERRIDES}


def _alone(tables: list[dict], seed: int) -> dict[str, Any]:
    """Returns the statistics of the sentences for one seed, as those of seed 0."""
    table, place = tables[seed // PER_RUN], seed % PER_RUN
    statistics = {metric: [table["statistics"][metric][place]] for metric in METRICS}
    return {"seeds": [0], "checksum": table["checksum"], "statistics": statistics}


def found_by(values: np.ndarray) -> tuple[int, int]:
    """Counts the repetitions in which (the sign-flip test, the interval of t) finds a difference.

    Args:
        values: [repetitions, 2, group].
    """
    each = [compare(*groups) for groups in values]
    by_sign = sum(one.p_value <= 1 - LEVEL for one in each)
    return by_sign, sum(not one.difference.low <= 0 <= one.difference.high for one in each)


def table(results: dict[str, Any]) -> str:
    """Formats a row for each metric and test."""
    rng, rows = np.random.default_rng(0), []
    for metric in METRICS:
        values = np.array(results["values"][metric])
        dealt = [rng.permutation(values).reshape(REPETITIONS, 2, GROUP) for _ in range(2000 // REPETITIONS)]
        often = np.mean([found_by(one) for one in dealt], axis=0) / REPETITIONS
        counts = found_by(values.reshape(REPETITIONS, 2, GROUP))
        over = sum(p <= 1 - LEVEL for p in results["p_values_over_sentences"][metric])
        spread = f"{np.mean(values):.4g} (SD {np.std(values, ddof=1):.2g})"
        tests = ("sign-flip test over 8 seeds", "interval of Student's t over 8 seeds")
        for test, count, share in zip(tests, counts, often, strict=True):
            rows.append([metric, spread, test, *_share(count), f"{100 * share:.1f} %"])
        rows.append([metric, spread, "paired bootstrap over sentences, one seed each", *_share(over), ""])
    head = ["metric", "640 seeds", "test", f"found in {REPETITIONS}", "95 % interval", "2,000 random deals"]
    return raw.table(head, rows, left=3)


def page(record: dict[str, Any]) -> str:
    """Formats the page."""
    smallest = 2 * (np.floor(0.05 * 2 ** (GROUP - 1))) / 2**GROUP
    return f"""# How often does a comparison find a difference between a config and itself?

{raw.circumstances(record)}

What is measured and how: [experiments/null_differences.py](../null_differences.py). The interval is that of Clopper and
Pearson. With {GROUP} pairs the sign-flip test can be significant at 5 % in {100 * smallest:.1f} % of the cases at most,
since its p-values are multiples of 1/{2 ** (GROUP - 1)}.

{table(record["results"])}

The bootstrap over sentences compares two trained models, and two seeds of a config are different models: it finds what
is there, and says nothing of the config. {record["results"]["sentences"]:,} sentences.
"""


def _share(count: int) -> tuple[str, str]:
    low, high = stats.binomtest(int(count), REPETITIONS).proportion_ci(LEVEL, "exact")
    return f"{count} ({100 * count / REPETITIONS:.1f} %)", f"{100 * low:.1f} to {100 * high:.1f} %"


PAGES = (raw.Page("null_differences", page),)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=user_path, default=ROOT / "runs" / "null_differences")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory of the results")
    options = parser.parse_args(argv)
    path = options.out / "null_differences.json"
    begun = raw.begin(path)
    todo = placed(jobs(pathlib.Path(__file__)), options.runs)
    if failed := run_jobs(todo, options.runs, [], at_once=1):
        raise UserError(f"{len(failed)} runs failed: {', '.join(failed)}")
    results = measure([options.runs / job.name for job in todo])
    command = "python experiments/null_differences.py"
    record = raw.write(path, results, command=command, begun=begun)
    print(PAGES[0].save(record, options.out))


if __name__ == "__main__":
    with one_line("null_differences.py"):
        main()
