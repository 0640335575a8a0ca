"""Paired comparisons of two measured runs: over their common seeds, and over the sentences of a split.

A comparison over seeds is about two configs: would other seeds give the same sign? A comparison over sentences is about
the given trained models: would other sentences give the same sign? Two seeds of the same config often differ
significantly over sentences.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn_jax.evaluation.kinds import find_metric, possible
from attn_jax.evaluation.metrics import summarize
from attn_jax.evaluation.statistics import LEVEL, Comparison, common, compare, paired_bootstrap

LAYOUT = 1
MEASURED = ("examples", "images", "statistics")  # checksums of a result that each evaluation computes anew
ENSEMBLE = "ensemble"  # key of an ensemble, instead of a seed
Result = Mapping[str, Any]  # content of a result.json: {"metrics": {name: {"mean", "std", "seeds"}}, "seeds"}
Sentences = Mapping[str, Any]  # content of a sentences.json, see `sentences_of`


def sentences_of(
    seeds: list[int],
    statistics: Mapping[str, list[np.ndarray]],
    outputs: Any,
    checksum: int,
    ensemble: bool = False,
) -> dict:
    """Returns the content of sentences.json.

    Args:
        seeds: seeds of the run.
        statistics, outputs: fields of attn_jax.evaluation.base.Results.
        checksum: checksum of the sentences; only runs with the same one are compared.
        ensemble: whether the single table of each metric belongs to an ensemble, not to a seed.

    Returns:
        {"layout": 1, "seeds", "checksum", "statistics": {metric: [seeds, n, k]}, "outputs": [seeds, n]}. Metrics with
        the same statistics, such as loss and perplexity, each have a copy.
    """
    tables = {name: [_plain(one) for one in of_seeds] for name, of_seeds in statistics.items()}
    found = {"layout": LAYOUT, "seeds": seeds, "checksum": checksum, "statistics": tables, "outputs": list(outputs)}
    return found | ({"ensemble": True} if ensemble else {})


def _plain(table: np.ndarray) -> list[list[float | int]]:
    if np.issubdtype(table.dtype, np.integer):
        return table.tolist()
    return [[int(x) if x.is_integer() else x for x in row] for row in table.tolist()]


def same_examples(result: Result, baseline: Result) -> bool:
    """Tells whether two results may be of the same examples; results of earlier versions have no checksums."""
    ours, theirs = (each.get("checksums", {}) for each in (result, baseline))
    return all(ours.get(key, theirs.get(key)) == theirs.get(key, ours.get(key)) for key in ("examples", "images"))


def changed_data(results: Mapping[str, Result]) -> list[str]:
    """Returns a line for each run whose data differs from an earlier run with equal data options."""
    first: dict[str, tuple[str, dict[str, int]]] = {}
    lines = []
    for name, result in results.items():
        config, sums = result.get("config", {}), result.get("checksums", {})
        of = [result.get("split"), result["seeds"], config.get("data_dir"), config.get("task")]
        of += list(config.get("train", {}).get("start", {}).values())
        other, before = first.setdefault(json.dumps(of), (name, sums))
        if differs := [key for key in sums if key != "statistics" and before.get(key, sums[key]) != sums[key]]:
            lines.append(
                f"data differs: {', '.join(differs)} of {name} and of {other} have other checksums under the same "
                "options; a file was changed between the two"
            )
    return lines


def by_seed(result: Result, metric: str) -> dict[Any, float]:
    """Returns {seed: value} of a metric; {} if there is no value for each seed, as for an ensemble."""
    decode, values = result.get("decode", {}), result["metrics"].get(metric, {"seeds": []})["seeds"]
    ensemble = decode.get("ensemble")
    of_several = ensemble.get("name") != "none" if isinstance(ensemble, Mapping) else ensemble
    if of_several or decode.get("runs"):  # an ensemble; earlier versions stored it under these keys
        return {}
    return dict(zip(result["seeds"], values, strict=True)) if len(values) == len(result["seeds"]) else {}


def united(results: Sequence[Result]) -> Result | None:
    """Joins the results of one config for different seeds; None if a seed occurs twice, or they are of other examples.

    What is not of a seed, such as the date, is that of the first.
    """
    first, *others = results
    if not others:
        return first
    seeds = [seed for result in results for seed in result["seeds"]]
    alike = all(same_examples(each, first) and each.get("split") == first.get("split") for each in others)
    metrics = {}
    for metric in first["metrics"]:
        values = [by_seed(result, metric) for result in results]
        if all(values) and all(measured_alike(each, first, metric) for each in others):
            metrics[metric] = summarize([x for of in values for x in of.values()])
    if not alike or not metrics or len(set(seeds)) < len(seeds):
        return None
    return {**first, "seeds": seeds, "metrics": metrics}


def united_sentences(found: Sequence[Sentences | None]) -> Sentences | None:
    """Joins the statistics of `united` results; None if one has none, or other sentences."""
    first, *others = found
    if not others or first is None:
        return first
    if any(each is None or each["checksum"] != first["checksum"] for each in others):
        return None
    common = [metric for metric in first["statistics"] if all(metric in each["statistics"] for each in others)]
    statistics = {metric: [one for each in found for one in each["statistics"][metric]] for metric in common}
    joined = {key: [one for each in found for one in each[key]] for key in ("seeds", "outputs")}
    return {**first, **joined, "statistics": statistics}


def can_compare(sentences: Sentences | None, baseline: Sentences | None) -> bool:
    """Tells whether two runs were measured on the same sentences and have a seed in common."""
    if sentences is None or baseline is None or sentences["checksum"] != baseline["checksum"]:
        return False
    return bool(set(sentences["seeds"]) & set(baseline["seeds"]))


def signature_of(result: Result, metric: str) -> str:
    """Returns the settings that a value depends on, such as the tokenizer of BLEU; "" if there are none."""
    return result.get("signatures", {}).get(metric, "")


def measured_alike(result: Result, baseline: Result, metric: str) -> bool:
    """Tells whether two results have the same settings of a metric."""
    return signature_of(result, metric) == signature_of(baseline, metric)


def over_seeds(result: Result, baseline: Result, metric: str, level: float = LEVEL) -> Comparison | None:
    """Compares a metric over the common seeds; None for fewer than two, or if the settings of the metric differ."""
    if not measured_alike(result, baseline, metric):
        return None
    values, others = by_seed(result, metric), by_seed(baseline, metric)
    if len(set(values) & set(others)) < 2:
        return None
    return compare(*common(values, others), level, possible(metric))


def over_sentences(
    sentences: Sentences, baseline: Sentences, metric: str, level: float = LEVEL, num_resamples: int = 1000
) -> Comparison | None:
    """Compares the means over the common seeds by resampling sentences; None without statistics of both runs.

    An ensemble is compared with the mean over all seeds of the other run.

    Raises:
        ValueError: the runs have no common seed, or different sentences.
    """
    found, ours, theirs = find_metric(metric), _statistics(sentences, metric), _statistics(baseline, metric)
    if found is None or found.score is None or not ours or not theirs:
        return None
    if (ENSEMBLE in ours) != (ENSEMBLE in theirs):
        ours, theirs = _for_each(ours, theirs), _for_each(theirs, ours)
    if sentences["checksum"] != baseline["checksum"]:
        raise ValueError("over_sentences: expected the same sentences")
    tables = [np.array(of_seeds, np.float64).swapaxes(0, 1) for of_seeds in common(ours, theirs)]  # [n, seeds, k]
    num_seeds = tables[0].shape[1]

    def mean(total: np.ndarray) -> float:
        return float(np.mean([found.score(one) for one in total.reshape(num_seeds, -1)]))

    flat = (table.reshape(len(table), -1) for table in tables)
    return paired_bootstrap(*flat, mean, level=level, num_resamples=num_resamples)


def _for_each(tables: dict[Any, list], others: dict[Any, list]) -> dict[Any, list]:
    """Repeats the table of an ensemble for each seed of `others`; returns tables of single seeds unchanged."""
    return dict.fromkeys(others, tables[ENSEMBLE]) if ENSEMBLE in tables else tables


def _statistics(sentences: Sentences, metric: str) -> dict[Any, list]:
    tables = sentences["statistics"].get(metric, [])
    by_seed = len(tables) == len(sentences["seeds"]) and not sentences.get("ensemble")
    names = sentences["seeds"] if by_seed else [ENSEMBLE] * len(tables)
    return dict(zip(names, tables, strict=True))
