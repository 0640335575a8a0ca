"""The data of a sweep's page: the table of results, paired differences, and a figure with intervals."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attn_jax.evaluation.kinds import possible
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
        results: content of the result.json of each row, in the order of the sweep; the first one is the baseline.
        links: relative address of the report of each row that has one.
        notes: lines about runs that are not in the table.
        sentences: content of the sentences.json of each row that has one.
    """
    differences, note = differences_rows(results)
    sentence_differences, sentence_note = sentence_differences_rows(results, sentences)
    return {
        "kind": "sweep",
        "title": title,
        "description": f"{len(results)} configs",
        "table": results_rows(results),
        "differences": differences,
        "note": note,
        "sentence_differences": sentence_differences,
        "sentence_note": sentence_note,
        "notes": list(notes),
        "links": dict(links),
        "level": LEVEL,
        "figure": figure_of(results),
    }


def figure_of(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Returns [{"metric", "runs": [{"name", "mean", "low", "high", "values"}]}]; no interval for a single seed."""
    panels = []
    for metric in dict.fromkeys(name for result in results.values() for name in result["metrics"]):
        runs = []
        for name, result in results.items():
            if metric not in result["metrics"]:
                continue
            values = result["metrics"][metric]["seeds"]
            interval = t_interval(values, within=possible(metric)) if len(values) > 1 else None
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
