"""The data of a run's page: results, curves, config, and examples with their attention weights.

Weights are stored as integers from -1000 to 1000 in units of `unit`, a power of ten, each as two digits to the base 64;
a run of zeros is stored as two digits (see `digits_of`). The order is layers, heads, rows, columns. Labels that several
maps share are stored once.
"""

import base64
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn_jax.evaluation.collect import Collected, Map
from attn_jax.evaluation.kinds import possible
from attn_jax.evaluation.statistics import LEVEL, t_interval
from attn_jax.figures import plots
from attn_jax.inspection.analysis import effective_support, entropy
from attn_jax.inspection.report.page import rounded, to_json
from attn_jax.types import Float, Int

MAX_POINTS = 250  # points of a curve; more are averaged in groups
MAX_COLUMNS = 40  # columns of a map with one query, such as training points; only the largest are kept
SMALLEST = 1e-3  # columns of such a map with a smaller share of the largest weight are left out
MAX_BYTES = 4_500_000  # size of the examples as JSON
DIGITS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
OFFSET = 2048  # added to an integer, so that it is not negative
RUNS = OFFSET + 1000  # added to a number of zeros
LONGEST_RUN = 4095 - RUNS


def run_data(
    *,
    title: str,
    description: str,
    facts: Sequence[tuple[str, str]],
    config: Sequence[tuple[str, str, bool]],
    result: Mapping[str, Any],
    curves: Sequence[dict],
    examples: dict,
    analysis: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the data of a run's page.

    Args:
        title: name of the run.
        description: line about the run.
        facts: pairs (name, text).
        config: rows (key, value, whether it differs from the default).
        result: content of result.json.
        curves: result of `curves_of`.
        examples: result of `examples_of`.
        analysis: {"table": rows of cells, "meanings": [(column, text)], "of": line}; None without an analysis.
    """
    return {
        "kind": "run",
        "title": title,
        "description": description,
        "facts": [list(fact) for fact in facts],
        "config": [list(row) for row in config],
        "results": results_of(result),
        "curves": list(curves),
        "examples": examples,
        "analysis": analysis,
    }


def results_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {"seeds", "chosen", "level", "rows": [{"name", "mean", "std", "low", "high", "values", "note"}]}.

    low and high are the interval of Student's t, None for a single seed.
    """
    rows = []
    for name, values in result["metrics"].items():
        seeds = values["seeds"]
        interval = t_interval(seeds, within=possible(name)) if len(seeds) > 1 else None
        rows.append(
            {
                "name": name.replace("_", " "),
                "mean": rounded(values["mean"]),
                "std": rounded(values["std"], 2) if interval else None,
                "low": rounded(interval.low) if interval else None,
                "high": rounded(interval.high) if interval else None,
                "values": [rounded(value) for value in seeds],
                "note": str(result.get("signatures", {}).get(name, "")),
            }
        )
    return {"seeds": list(result["seeds"]), "chosen": result.get("chosen_seed"), "level": LEVEL, "rows": rows}


def curves_of(metrics_jsonl: str | os.PathLike, unit: str) -> list[dict[str, Any]]:
    """Returns [{"title", "lines": [{"name", "steps": [n], "values": [seeds, n]}]}], the panels of plots.plot_curves.

    Raises:
        UserError: the file cannot be read.
    """
    panels = []
    for title, lines in plots.curve_panels(metrics_jsonl, unit).items():
        panels.append({"title": title, "lines": [_line(name, *line) for name, line in lines.items()]})
    return panels


def _line(name: str, steps: np.ndarray, values: Float[np.ndarray, "n seeds"]) -> dict[str, Any]:
    groups = np.array_split(np.arange(len(steps)), min(len(steps), MAX_POINTS))
    means = [[rounded(float(np.mean(values[group, seed]))) for group in groups] for seed in range(values.shape[1])]
    return {"name": name, "steps": [int(steps[group[-1]]) for group in groups], "values": means}


def examples_of(
    collected: Sequence[Sequence[Collected]], seeds: Sequence[str], loss_unit: str, exact: bool
) -> dict[str, Any]:
    """Returns the examples of the page, as many as MAX_BYTES allow.

    Args:
        collected: for each seed, the same examples in the same order.
        seeds: name of each seed.
        loss_unit, exact: attributes of the collector.

    Returns:
        {"seeds", "unit", "exact", "left_out": number of examples beyond MAX_BYTES, "labels": list of lists of labels,
        "items": [{"source", "reference", "evidence", "of_seeds": [{"output", "loss", "maps"}]}]}. If seeds have
        different data, a seed has its own "source", "reference" and "evidence" where they differ. An example with an
        image also has "image": {"shape", "pixels" (base64), "cells"}; a seed of a glimpse model has "path", the
        squares of its glimpses. A map has "name", "axes", "shape", "rows" and "columns" (indices of labels), "unit",
        "weights", "entropy" and "support" (means over the rows, for each layer and head), "samples" (keys) or None, and
        "cut", the number of columns left out.
    """
    labels: dict[tuple[str, ...], int] = {}
    items: list[dict] = []
    size = 0
    for of_seeds in zip(*collected, strict=True):
        before, given = len(labels), _given(of_seeds[0])
        item: dict[str, Any] = given | {"of_seeds": []}
        for one in of_seeds:
            own = {name: value for name, value in _given(one).items() if value != given[name]}
            maps = [encode_map(map_, labels) for map_ in one.maps]
            own |= {"path": [list(square) for square in one.path]} if one.path else {}
            item["of_seeds"].append(own | {"output": one.output, "loss": rounded(one.loss), "maps": maps})
        added = list(labels)[before:]
        size += len(to_json([item, added]).encode())
        if size > MAX_BYTES and items:
            for label in added:
                del labels[label]
            break
        items.append(item)
    return {
        "seeds": list(seeds),
        "unit": loss_unit,
        "exact": exact,
        "left_out": (len(collected[0]) if collected else 0) - len(items),
        "labels": [list(label) for label in labels],
        "items": items,
    }


def _given(one: Collected) -> dict[str, Any]:
    """Returns the inputs of an example: the same for all seeds, unless seeds have different data."""
    given = {"source": one.source, "reference": one.reference, "evidence": list(one.evidence)}
    if one.image is None:
        return given
    pixels, cells = one.image
    packed = base64.b64encode(np.ascontiguousarray(pixels)).decode("ascii")
    return given | {"image": {"shape": list(pixels.shape), "pixels": packed, "cells": list(cells)}}


def encode_map(one: Map, labels: dict[tuple[str, ...], int]) -> dict[str, Any]:
    """Returns a map as JSON values; adds its labels to `labels`, which numbers them."""
    weights, columns, cut = np.asarray(one.weights, np.float64), one.columns, 0
    if weights.shape[-2] == 1 and len(columns) > MAX_COLUMNS:
        sizes = np.abs(weights).reshape(-1, len(columns)).max(0)
        largest = np.argsort(-sizes, kind="stable")[:MAX_COLUMNS]
        kept = np.sort(largest[sizes[largest] >= SMALLEST * sizes.max()])
        cut, weights, columns = len(columns) - len(kept), weights[..., kept], tuple(columns[i] for i in kept)
    most = float(np.abs(weights).max(initial=0.0))
    # A weight of 1 may be rounded up; weights up to 1.0002 become 1000 thousandths.
    exponent = math.ceil(math.log10(most) - 1e-4) - 3 if most > 0 else -3
    full = np.asarray(one.weights, np.float64)
    return {
        "name": one.name,
        "axes": list(one.axes),
        "shape": list(weights.shape),
        "rows": labels.setdefault(tuple(one.rows), len(labels)),
        "columns": labels.setdefault(tuple(columns), len(labels)),
        "unit": float(f"1e{exponent}"),
        "weights": digits_of(np.rint(weights / 10.0**exponent).astype(int)),
        "entropy": _means(entropy(full)),
        "support": _means(effective_support(full)),
        "samples": None if one.samples is None or cut else one.samples.tolist(),
        "cut": cut,
    }


def digits_of(integers: Int[np.ndarray, "..."]) -> str:
    """Writes integers from -1000 to 1000 as two digits each, the high digit first, in the order of the array.

    Two digits encode integer + OFFSET, or RUNS + count for `count` consecutive zeros.
    """
    flat = integers.reshape(-1)
    starts = np.flatnonzero(np.diff(flat == 0)) + 1
    numbers: list[np.ndarray] = []
    for part in np.split(flat, starts):
        if part[:1].any():
            numbers.append(part + OFFSET)
        else:
            whole, rest = divmod(len(part), LONGEST_RUN)
            numbers.append(RUNS + np.array([LONGEST_RUN] * whole + [rest] * (rest > 0), int))
    joined = np.concatenate(numbers)
    return DIGITS[np.stack([joined // 64, joined % 64], axis=-1)].tobytes().decode("ascii")


def _means(rows: Float[np.ndarray, "... q"]) -> list[float | int | None]:
    """Returns the mean over the rows that have weights, for each index of the other axes; None without such rows."""
    flat = rows.reshape(-1, rows.shape[-1])
    return [rounded(float(np.mean(row[~np.isnan(row)]))) if (~np.isnan(row)).any() else None for row in flat]
