"""Tables of results in Markdown: the metrics of each run, and its paired differences to a baseline."""

from collections.abc import Mapping
from typing import Any

from attn_jax.evaluation.paired import Result, Sentences, can_compare, measured_alike, over_seeds, over_sentences
from attn_jax.evaluation.statistics import LEVEL, ROUNDING, Comparison, holm, seeds_needed, seeds_to_show

DEVIATION = "SD: standard deviation over the seeds"
QUESTIONS = (
    "Over seeds asks whether the config differs, whatever its seed; over sentences, whether these trained models do, "
    "on other sentences: a star in one alone is no contradiction."
)


def results_table(results: Mapping[str, Result]) -> str:
    """Formats a row per run and a column per metric: mean and standard deviation over seeds."""
    return markdown(results_rows(results))


def results_rows(results: Mapping[str, Result]) -> list[list[str]]:
    """Returns the rows of cells of `results_table`, head first."""
    metrics = _metrics(results)
    rows = [["run", *metrics, "seeds"]]
    for name, result in results.items():
        cells = [_cell(result["metrics"].get(metric)) for metric in metrics]
        rows.append([name, *cells, str(len(result["seeds"]))])
    return rows


def differences_table(results: Mapping[str, Result], level: float = LEVEL) -> str:
    """Formats the paired differences of each run to the first one: mean [interval], over the common seeds.

    Intervals are by Student's t. A star marks a difference whose p-value by the exact sign-flip test, adjusted for all
    comparisons of its column (Holm), is at most 1 - level; a line below the table says if there are too few seeds for
    any star. Returns "" if there is nothing to compare: fewer than two runs, or fewer than two common seeds.
    """
    rows, note = differences_rows(results, level)
    return f"{markdown(rows)}\n\n{note}" if rows else ""


def differences_rows(results: Mapping[str, Result], level: float = LEVEL) -> tuple[list[list[str]], str]:
    """Returns (rows of cells of `differences_table`, head first; the line below it), ([], "") for an empty table."""
    if len(results) < 2:
        return [], ""
    (baseline, first), *others = results.items()
    metrics = [name for name in _metrics(results) if name in first["metrics"]]
    columns = {
        metric: {name: c for name, result in others if (c := over_seeds(result, first, metric, level)) is not None}
        for metric in metrics
    }
    rows = _rows(f"difference to {baseline}", [name for name, _ in others], columns, level)
    if not rows:
        return [], ""
    note = f"{level:.0%} intervals of paired differences (Student's t)"
    return rows, note + (_too_few(columns, level) or "; * differs by the exact sign-flip test, adjusted by Holm.")


def sentence_differences_table(
    results: Mapping[str, Result], sentences: Mapping[str, Sentences], level: float = LEVEL
) -> str:
    """Formats the differences of each run to the first one by the paired bootstrap over sentences: mean [interval].

    A star marks a p-value that is at most 1 - level after adjustment for all comparisons of its column (Holm). Metrics
    and runs without statistics of sentences, or with other sentences, are left out; "" if nothing is left.
    """
    rows, note = sentence_differences_rows(results, sentences, level)
    return f"{markdown(rows)}\n\n{note}" if rows else ""


def sentence_differences_rows(
    results: Mapping[str, Result], sentences: Mapping[str, Sentences], level: float = LEVEL
) -> tuple[list[list[str]], str]:
    """Returns (rows of cells of `sentence_differences_table`, head first; the line below it), ([], "") if empty."""
    if not results or (baseline := next(iter(results))) not in sentences:
        return [], ""
    first, *_ = results.values()
    others = [name for name in results if name != baseline]
    columns: dict[str, dict[str, Comparison]] = {}
    for metric in (name for name in _metrics(results) if name in first["metrics"]):
        columns[metric] = {}
        for name in others:
            alike = measured_alike(results[name], first, metric)
            if alike and can_compare(sentences.get(name), sentences[baseline]):
                found = over_sentences(sentences[name], sentences[baseline], metric, level)
                columns[metric] |= {name: found} if found else {}
    rows = _rows(f"over sentences, to {baseline}", others, columns, level)
    note = f"{level:.0%} intervals of the paired bootstrap over sentences; * differs (Holm). {QUESTIONS}"
    return rows, note if rows else ""


def answers(results: Mapping[str, Result], level: float = LEVEL) -> str:
    """Says in a sentence for each run how it differs from the first one in the first metric; "" without a comparison.

    A difference counts if its test, corrected for all runs (Holm), says so; else the sentence says about how many seeds
    would show a difference as large as the one that was found.
    """
    if len(results) < 2:
        return ""
    (baseline, first), *others = results.items()
    metric = next(iter(first["metrics"]), "")
    found = {name: over_seeds(result, first, metric, level) for name, result in others if metric in result["metrics"]}
    found = {name: comparison for name, comparison in found.items() if comparison is not None}
    adjusted = holm({name: comparison.p_value for name, comparison in found.items()})
    lines = []
    for name, comparison in found.items():
        over = f"{metric} over {comparison.difference.num} seeds"
        lines.append(f"{name} − {baseline}, {over}: {_verdict(comparison, adjusted[name], level)}")
    return "\n".join(lines)


def _verdict(comparison: Comparison, p_value: float, level: float) -> str:
    """Says a difference with its interval, and whether it can be told from chance."""
    of = comparison.difference
    cell = difference_cell(of.mean, of.low, of.high, False)
    if comparison.concludes(level) and p_value <= 1 - level:
        return f"{cell}, {'more' if of.mean > 0 else 'less'} than by chance"
    if abs(of.mean) < 1e-12:
        return f"{cell}, no difference"
    deviation = abs(of.mean / comparison.effect_size) if comparison.effect_size else 0.0
    return (
        f"{cell}, cannot be told; about {seeds_to_show(of.mean, deviation, level):,} seeds would show this difference"
    )


def _rows(
    head: str, names: list[str], columns: Mapping[str, Mapping[str, Comparison]], level: float
) -> list[list[str]]:
    """Returns the rows of cells of a table of differences, head first; [] without differences."""
    columns = {metric: found for metric, found in columns.items() if found}
    adjusted = {metric: holm({name: c.p_value for name, c in found.items()}) for metric, found in columns.items()}
    rows = [[head, *columns]]
    for name in names:
        cells = [""] * len(columns)
        for place, (metric, found) in enumerate(columns.items()):
            if name in found:
                interval = found[name].difference
                stands_out = found[name].concludes(level) and adjusted[metric][name] <= 1 - level
                cells[place] = difference_cell(interval.mean, interval.low, interval.high, stands_out)
        rows.append([name, *cells])
    return rows if columns else []


def difference_cell(mean: float, low: float, high: float, stands_out: bool) -> str:
    """Formats a difference with its interval, and a star if it is significant."""
    return f"{mean:+.3g} [{low:+.3g}, {high:+.3g}]{' *' if stands_out else ''}"


def markdown(rows: list[list[str]]) -> str:
    """Formats rows of cells as a table in Markdown; the first row is the head."""
    head, *others = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *others])


def _too_few(columns: Mapping[str, Mapping[str, Comparison]], level: float) -> str:
    """Returns a line for tables where no comparison has enough seeds for a star; "" for others."""
    if any(len(found) * c.smallest_p_value <= 1 - level for found in columns.values() for c in found.values()):
        return ""
    number = max(map(len, columns.values()))
    chance = f"a difference from chance at {1 - level:.2g}"
    return f". Fewer than {enough_seeds(number, 'runs', level)}: no test can tell {chance}."


def enough_seeds(number: int, what: str, level: float = LEVEL) -> str:
    """Says how many seeds a test needs that is adjusted for a number of runs or metrics."""
    why = f" ({seeds_needed(level)} for one of the {number} {what} alone)" if number > 1 else ""
    return f"{seeds_needed(level, number)} seeds{why}"


def _metrics(results: Mapping[str, Result]) -> list[str]:
    return list(dict.fromkeys(name for result in results.values() for name in result["metrics"]))


def _cell(values: Mapping[str, Any] | None) -> str:
    if values is None:
        return ""
    if len(values["seeds"]) == 1:
        return f"{values['mean']:.4g}"
    rounding = ROUNDING * abs(values["mean"])  # equal values may have a deviation by rounding
    return f"{values['mean']:.4g} (SD {0 if values['std'] <= rounding else values['std']:.2g})"
