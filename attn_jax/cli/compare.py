"""Comparison of two runs over their common seeds and over the sentences that both were measured on.

    python launch.py --mode=compare --workdir=DIR --baseline=DIR [--measured=eval]

Prints a row for each metric that both runs have, and writes comparison.json. It reads result.json and sentences.json
or, with --measured=eval, the files of --mode=eval: eval.json and eval_sentences.json.
"""

import pathlib
from typing import Any

import numpy as np

from attn_jax.errors import UserError
from attn_jax.evaluation.kinds import find_metric
from attn_jax.evaluation.paired import (
    Result,
    by_seed,
    can_compare,
    changed_data,
    measured_alike,
    over_seeds,
    over_sentences,
    same_examples,
    signature_of,
)
from attn_jax.evaluation.statistics import LEVEL, Comparison, almost_stochastic_order, holm, seeds_needed
from attn_jax.evaluation.tables import QUESTIONS, difference_cell, enough_seeds, markdown
from attn_jax.runs import results
from attn_jax.runs.sentences import EVAL_FILE, FILE
from attn_jax.runs.tree import flatten
from attn_jax.sweeps.sweep_folder import row_of

FILES = {"result": (results.FILE, FILE), "eval": (results.EVAL_FILE, EVAL_FILE)}
UNITS = ("sentences", "images", "points")


def compare_runs(workdir: pathlib.Path, baseline: pathlib.Path, measured: str = "result") -> dict[str, Any]:
    """Compares a run with a baseline, metric by metric.

    Returns:
        {"workdir", "baseline", "split", "seeds": common seeds, "without_sentences": folders without statistics of
        sentences, "left_out": {metric: how each run measured it}, "data": lines on data that was changed,
        "decode": {option: its values} where they differ, "united": runs of other seeds that are read together,
        "rows": [{"metric", "value", "baseline", "seeds", "order", "sentences"}]}. In a row, "seeds" and
        "sentences" are comparisons or None, {"difference", "low", "high", "p_value", "adjusted" (by Holm),
        "effect_size", "concludes"}; "order" is the bound of almost stochastic order that the run is better, None for
        fewer than two seeds and for metrics without a better direction.

    Raises:
        UserError: a file is missing or damaged, or the runs share no metric or no seed, or have different sentences.
    """
    name, _ = FILES[measured]
    for folder in (workdir, baseline):
        if (folder / "config.json").exists() and not (folder / name).exists():
            first = "--mode=eval" if measured == "eval" else "--mode=train"
            raise UserError(f"{folder} has no {name} yet; run --workdir={folder} {first} before")
    rows_read = [row_of(folder, FILES[measured]) for folder in (workdir, baseline)]
    (ours, mine), (theirs, other) = ((row.result, row.sentences) for row in rows_read)
    if not (mine and other):
        check_same_split(workdir, ours, baseline, theirs)
    if not same_examples(ours, theirs) or (mine and other and mine["checksum"] != other["checksum"]):
        unit = next((unit for unit in UNITS if unit in ours), "examples")
        raise UserError(f"{workdir} and {baseline} were measured on other {unit}; expected the same")
    common = [metric for metric in ours["metrics"] if metric in theirs["metrics"]]
    metrics = [metric for metric in common if measured_alike(ours, theirs, metric)]
    if not metrics:
        raise UserError(f"{workdir} and {baseline} have no metric in common that was measured in the same way")
    seeds = [seed for seed in ours["seeds"] if seed in theirs["seeds"]]
    if not seeds:
        raise UserError(
            f"{baseline} has the seeds {_listed(theirs)}, {workdir} {_listed(ours)}; expected seeds in common, since "
            "runs are compared seed by seed"
        )
    both = can_compare(mine, other)
    of_seeds = {metric: over_seeds(ours, theirs, metric) for metric in metrics}
    of_sentences = {metric: over_sentences(mine, other, metric) if both else None for metric in metrics}
    adjusted = [holm({metric: c.p_value for metric, c in table.items() if c}) for table in (of_seeds, of_sentences)]
    rows = [
        {
            "metric": metric,
            "value": _mean(ours, theirs, metric),
            "baseline": _mean(theirs, ours, metric),
            "seeds": _plain(of_seeds[metric], adjusted[0].get(metric)),
            "order": order(ours, theirs, metric),
            "sentences": _plain(of_sentences[metric], adjusted[1].get(metric)),
        }
        for metric in metrics
    ]
    about = {"workdir": str(workdir), "baseline": str(baseline), "split": ours.get("split"), "seeds": seeds}
    left_out = [metric for metric in common if metric not in metrics]
    about |= {"left_out": {metric: [signature_of(result, metric) for result in (theirs, ours)] for metric in left_out}}
    about |= {"data": changed_data({str(baseline): theirs, str(workdir): ours})}
    about |= {"decode": _differing(*(flatten(result.get("decode") or {}) for result in (theirs, ours)))}
    about |= {"united": [list(map(str, row.runs)) for row in rows_read if len(row.runs) > 1]}
    without = [str(folder) for folder, row in zip((workdir, baseline), rows_read, strict=True) if not row.sentences]
    return about | {"without_sentences": without, "rows": rows}


def _mean(result: Result, other: Result, metric: str) -> float:
    """Returns the mean over the common seeds, the same seeds as in the differences.

    Against an ensemble, which has no seed, it is the mean over all seeds.
    """
    values, others = by_seed(result, metric), by_seed(other, metric)
    seeds = [seed for seed in values if seed in others or not others]
    return float(np.mean([values[seed] for seed in seeds])) if values else result["metrics"][metric]["mean"]


def _differing(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, list[Any]]:
    """Returns {option: [theirs, ours]} where two sets of options differ."""
    return {
        name: [theirs.get(name), ours.get(name)]
        for name in sorted(theirs.keys() | ours.keys())
        if theirs.get(name) != ours.get(name)
    }


def check_same_split(workdir: pathlib.Path, ours: Result, baseline: pathlib.Path, theirs: Result) -> None:
    """Raises a UserError if the splits of two results differ in name or number of examples."""
    splits = [str(result.get("split", "")) for result in (theirs, ours)]
    if splits[0] != splits[1]:
        raise UserError(f"{baseline} was measured on {splits[0]!r}, {workdir} on {splits[1]!r}; expected one split")
    counts = [next((result[unit] for unit in UNITS if unit in result), None) for result in (theirs, ours)]
    if counts[0] != counts[1]:
        raise UserError(f"{baseline} was measured on {counts[0]} examples, {workdir} on {counts[1]}; expected the same")


def order(result: Result, baseline: Result, metric: str) -> float | None:
    """Returns the bound of almost stochastic order that a run is better than the baseline; None for too few seeds.

    The order needs no pairs, but uses only the common seeds: others could contradict the difference beside it.
    """
    sign = {"max": 1.0, "min": -1.0}.get(found.best if (found := find_metric(metric)) else None)
    values, others = by_seed(result, metric), by_seed(baseline, metric)
    seeds = [seed for seed in values if seed in others] if sign else []
    if len(seeds) < 2:
        return None
    return almost_stochastic_order(*([sign * of[seed] for seed in seeds] for of in (values, others)))


def comparison_lines(found: dict[str, Any]) -> list[str]:
    """Formats a comparison: a table in Markdown, and what its columns mean."""
    rows = [["metric", "baseline", "run", "over seeds", "p", "effect", "order", "over sentences", "p"]]
    for row in found["rows"]:
        seeds, sentences = row["seeds"], row["sentences"]
        shown = "" if row["order"] is None else f"{row['order']:.2f}"
        effect = "" if seeds is None or seeds["effect_size"] is None else f"{seeds['effect_size']:+.2f}"
        cells = [_difference(seeds), _p(seeds), effect, shown, _difference(sentences), _p(sentences)]
        rows.append([row["metric"], f"{row['baseline']:.4g}", f"{row['value']:.4g}", *cells])
    lines = [*markdown(rows).splitlines(), ""]
    for metric, (theirs, ours) in found["left_out"].items():
        lines.append(f"{metric} is left out: it was measured with {theirs or 'none'} and with {ours or 'none'}")
    lines += found["data"]
    lines += [f"seeds: those of {' and '.join(runs)} together" for runs in found["united"]]
    for option, (theirs, ours) in found["decode"].items():
        lines.append(f"decoding differs: decode.{option} is {theirs!r} in the baseline, {ours!r} in the run")
    count = len(found["seeds"])
    if count < 2:
        lines.append("over seeds: one seed in common, which says nothing of others; train both with config.seeds")
    elif not any(row["seeds"] for row in found["rows"]):
        lines.append("over seeds: nothing to compare, since an ensemble is of no single seed")
    else:
        compared = sum(row["seeds"] is not None for row in found["rows"])
        few = f"; fewer than {enough_seeds(compared, 'metrics')} are too few for any conclusion"
        lines.append(
            f"over seeds: {count} pairs, {LEVEL:.0%} interval of Student's t; p of the exact sign-flip test, adjusted "
            f"by Holm{few if count < seeds_needed(LEVEL, compared) else ', * at most 0.05'}"
        )
        lines.append("effect: mean of the differences over their standard deviation; order: almost stochastic order,")
        lines.append("  below 0.2 the run is better in almost all quantiles of its seeds (needs about ten of them)")
    if any(row["sentences"] for row in found["rows"]):
        lines.append(f"over sentences: {LEVEL:.0%} interval and p of the paired bootstrap, * at most 0.05 after Holm")
        lines.append(QUESTIONS)
    elif found["without_sentences"]:
        lines.append(
            f"over sentences: no statistics in {' and '.join(found['without_sentences'])}; --mode=eval of both writes "
            "them, of a model of texts, images or stories; then add --measured=eval"
        )
    return lines


def _plain(found: Comparison | None, adjusted: float | None) -> dict[str, Any] | None:
    if found is None:
        return None
    finite = abs(found.effect_size) < float("inf")
    return {
        "difference": found.difference.mean,
        "low": found.difference.low,
        "high": found.difference.high,
        "p_value": found.p_value,
        "adjusted": adjusted,
        "effect_size": found.effect_size if finite else None,
        "concludes": found.concludes(),
    }


def _difference(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    stands_out = one["concludes"] and one["adjusted"] <= 1 - LEVEL
    return difference_cell(one["difference"], one["low"], one["high"], stands_out)


def _p(one: dict[str, Any] | None) -> str:
    return "" if one is None else f"{one['adjusted']:.2g}"


def _listed(result: Result) -> str:
    return ", ".join(map(str, result["seeds"]))
