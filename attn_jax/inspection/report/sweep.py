"""The data of a sweep's page: the table of results, paired differences, and a figure with intervals."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attn_jax.evaluation.paired import Result, Sentences
from attn_jax.evaluation.statistics import LEVEL, t_interval
from attn_jax.evaluation.tables import differences_rows, results_rows, sentence_differences_rows
from attn_jax.inspection.report.page import rounded


def sweep_data(
    title: str,
    results: Mapping[str, Result],
    links: Mapping[str, str],
    notes: tuple = (),
    sentences: Mapping[str, Sentences] = MappingProxyType({}),
) -> dict:
    """Returns the data of a sweep's page.

    Args:
        title: name of the sweep.
        results: content of each run's result.json, in the order of the sweep; the first run is the baseline.
        links: relative address of the report of each run that has one.
        notes: lines about runs that are not in the table.
        sentences: content of the sentences.json of each run that has one.
    """
    shown, shared = short_names(list(results))
    named = {shown[name]: result for name, result in results.items()}
    differences, note = differences_rows(named)
    of_sentences = {shown[name]: found for name, found in sentences.items()}
    sentence_differences, sentence_note = sentence_differences_rows(named, of_sentences)
    return {
        "kind": "sweep",
        "title": title,
        "description": ", ".join([f"{len(results)} runs", *shared]),
        "table": results_rows(named),
        "differences": differences,
        "note": note,
        "sentence_differences": sentence_differences,
        "sentence_note": sentence_note,
        "notes": list(notes),
        "links": {shown[name]: link for name, link in links.items()},
        "level": LEVEL,
        "figure": figure_of(named),
    }


def short_names(names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Returns ({name: parts that not all names have}, parts that all names have).

    Names are config,key=value,...; values in brackets may hold commas. An otherwise empty name keeps its first part.
    """
    parts = {name: _parts(name) for name in names}
    shared = [part for part in parts[names[0]] if len(names) > 1 and all(part in own for own in parts.values())]
    short = {name: ",".join(part for part in own if part not in shared) or own[0] for name, own in parts.items()}
    if len(set(short.values())) < len(short):
        return {name: name for name in names}, []
    return short, shared


def _parts(name: str) -> list[str]:
    parts, depth = [""], 0
    for character in name:
        depth += (character == "(") - (character == ")")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def figure_of(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Returns [{"metric", "runs": [{"name", "mean", "low", "high", "values"}]}]; no interval for a single seed."""
    panels = []
    for metric in dict.fromkeys(name for result in results.values() for name in result["metrics"]):
        runs = []
        for name, result in results.items():
            if metric not in result["metrics"]:
                continue
            values = result["metrics"][metric]["seeds"]
            interval = t_interval(values) if len(values) > 1 else None
            runs.append(
                {
                    "name": name,
                    "mean": rounded(result["metrics"][metric]["mean"]),
                    "low": rounded(interval.low) if interval else None,
                    "high": rounded(interval.high) if interval else None,
                    "values": [rounded(value) for value in values],
                }
            )
        panels.append({"metric": metric.replace("_", " "), "runs": runs})
    return panels
