"""The command report: report.html of a run or of the folder of a sweep."""

import dataclasses
import pathlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from attn_jax.cli.analyze import MEASURES, analysis_rows, measures_of, read_analysis
from attn_jax.data.files import check_links, is_finite, reason, text_checksum, write
from attn_jax.errors import UserError
from attn_jax.evaluation.base import Evaluator, Split
from attn_jax.evaluation.collect import Collector
from attn_jax.evaluation.paired import changed_data
from attn_jax.inspection.report.page import render
from attn_jax.inspection.report.run import curves_of, examples_of, run_data
from attn_jax.inspection.report.sweep import sweep_data
from attn_jax.notices import notice
from attn_jax.runs.options import RunOptions, resolve, schema_of
from attn_jax.runs.results import read_result
from attn_jax.runs.tree import flatten
from attn_jax.runs.workdir import load_config
from attn_jax.sweeps.sweep_folder import rows_of, runs_of
from attn_jax.tasks import Pairs
from attn_jax.types import Params

FILE = "report.html"
SOURCES = ("config.json", "result.json", "metrics.jsonl", "analysis.json")  # files of a run that its page shows


class Written(NamedTuple):
    """A report that was written."""

    path: pathlib.Path
    size: int  # bytes
    num_examples: int


def write_report(
    options: RunOptions,
    workdir: pathlib.Path,
    *,
    evaluator: Evaluator,
    collector: Collector,
    params: Sequence[Params],
    split: Split,
    split_name: str,
    count: int,
    used: str,
    together: bool = False,
) -> Written:
    """Writes the report of a run: results, curves, config, and the attention in the first `count` examples of a split.

    `params` has a set for each seed or, with `together`, one set of an ensemble; `used` describes their checkpoints.

    Raises:
        UserError: a file of the work directory is damaged, or the report cannot be written.
    """
    path, sources = workdir / "result.json", sources_of(workdir)
    result = read_result(path) if path.exists() else {"metrics": {}, "seeds": []}
    metrics = workdir / "metrics.jsonl"
    some = first(split, count)
    notice(f"{'report':<14}the attention in {len(some)} examples of {split_name} ...")
    names = ["ensemble"] if together else [str(seed) for seed in options.all_seeds]
    collected = [collector.collect(each, some, seed=i) for i, each in enumerate(params)]
    examples = examples_of(collected, names, collector.loss_unit, collector.exact)
    data = run_data(
        title=options.name,
        description=options.description,
        facts=facts_of(options, workdir, result, split_name, used),
        config=config_rows(options),
        result=result,
        curves=curves_of(metrics, evaluator.loss_unit) if metrics.exists() else [],
        examples=examples,
        analysis=analysis_in(workdir),
    )
    return save(workdir / FILE, data, len(examples["items"]), sources)


def analysis_in(workdir: pathlib.Path) -> dict[str, Any] | None:
    """Returns the table of analysis.json with the meanings of its columns; None without the file.

    Raises:
        UserError: it is damaged.
    """
    path = workdir / "analysis.json"
    if not path.exists():
        return None
    found = read_analysis(path)
    meanings = {name: MEASURES[name] for name in measures_of(found["rows"])}
    # With the checkpoint, since the run may have gone on after the analysis.
    of = [f"Means over {found.get('split', 'a split')}", str(found.get("checkpoint", ""))]
    of = ", ".join(filter(None, [*of, f"measured {str(found.get('date', ''))[:10]}."]))
    return {"table": analysis_rows(found["rows"]), "meanings": list(map(list, meanings.items())), "of": of}


def write_sweep_report(
    folder: pathlib.Path, report_run: Callable[[RunOptions, pathlib.Path], None], refresh: bool = False
) -> Written:
    """Writes the report of a sweep; `report_run` writes the reports of single runs that are missing or outdated.

    With `refresh` the report of every run is written.

    The first run of the sweep is the baseline. Runs without a result are named below the table.

    Raises:
        UserError: no run has a result, a result is damaged, the runs have different tasks or splits, or a run of
            several seeds has no seed in common with the first run.
    """
    check_links(folder)
    runs = runs_of(folder)
    tasks = {run.name: load_config(run).task.name for run in runs}
    for name, task in tasks.items():
        if task != tasks[runs[0].name]:
            raise UserError(
                f"{folder}: {runs[0].name} is of task.name {tasks[runs[0].name]}, {name} of {task}; expected the runs "
                "of one sweep, which can be compared"
            )
    rows = rows_of(runs)
    if not rows:
        raise UserError(f"{folder}: none of its {len(runs)} runs has a result.json; train them first")
    results = {name: row.result for name, row in rows.items()}
    splits = {name: str(result.get("split", "")) for name, result in results.items()}
    (baseline, split), *_ = splits.items()
    for name, other in splits.items():
        if other != split:
            raise UserError(f"{folder}: {baseline} was measured on {split!r}, {name} on {other!r}; expected one split")
    check_seeds(folder, results)
    finished = [run for row in rows.values() for run in row.runs]
    for run in finished:
        path = run / FILE
        if refresh or not (path.exists() and path.read_bytes().endswith(sources_of(run))):
            report_run(resolve(load_config(run)), run)
    links = {name: f"{quote(row.runs[0].name)}/{FILE}" for name, row in rows.items() if (row.runs[0] / FILE).exists()}
    missing = [run.name for run in runs if run not in finished]
    notes = ((f"Without a result yet: {', '.join(missing)}",) if missing else ()) + tuple(changed_data(results))
    sentences = {name: row.sentences for name, row in rows.items() if row.sentences}
    return save(folder / FILE, sweep_data(folder.resolve().name, results, links, notes, sentences), 0)


def sources_of(workdir: pathlib.Path) -> bytes:
    """Returns the end of the page of a run: a comment with the checksum of the files that it shows."""
    paths = [workdir / name for name in SOURCES]
    found = text_checksum([zlib.crc32(path.read_bytes()) if path.exists() else None for path in paths])
    return f"<!-- of {found} -->\n".encode()


def check_seeds(folder: pathlib.Path, results: dict[str, dict[str, Any]]) -> None:
    """Checks that runs of several seeds share seeds with the first of these runs; the comparison pairs by seed.

    Raises:
        UserError: a run shares no seed.
    """
    several = {name: result["seeds"] for name, result in results.items() if len(result["seeds"]) > 1}
    for name, seeds in several.items():
        baseline, first = next(iter(several.items()))
        if not any(seed in first for seed in seeds):
            those, these = (", ".join(map(str, some)) for some in (first, seeds))
            raise UserError(
                f"{folder}: {baseline} has the seeds {those}, {name} {these}; expected seeds in common, since runs are "
                "compared seed by seed"
            )


def first(split: Split, count: int) -> Split:
    """Returns the first examples of a split."""
    if isinstance(split, Pairs):
        return split.select(range(min(count, len(split))))
    return dataclasses.replace(split, inputs=split.inputs[:, :count], targets=split.targets[:, :count])


def facts_of(options: RunOptions, workdir: pathlib.Path, result: dict, split: str, used: str) -> list[tuple[str, str]]:
    """Returns (name, value) of the facts about a run at the head of the page."""
    found = [("task", options.task.name), ("model", options.model.name), ("examples of", split)]
    found.append(("seeds", ", ".join(map(str, options.all_seeds))))
    for key, what in (("num_parameters", "parameters"), ("steps", "steps"), ("train_seconds", "seconds of training")):
        if is_finite(result.get(key)):
            found.append((what, f"{result[key]:,}"))
    for key in ("checkpoint", "date"):
        if isinstance(result.get(key), str):
            found.append((key, result[key]))
    if used != result.get("checkpoint"):  # no result yet, or an ensemble
        found.append(("attention of", used))
    return [*found, ("work directory", str(workdir))]


def config_rows(options: RunOptions) -> list[tuple[str, str, bool]]:
    """Returns (key, value, whether it differs from the default) of every option."""
    known = schema_of(options.config)
    return [
        (key, str(value), value != known[key].default) for key, value in flatten(options.config).items() if key in known
    ]


def save(path: pathlib.Path, data: dict, num_examples: int, end: bytes = b"") -> Written:
    """Writes a page, and `end` after it.

    Raises:
        UserError: the page cannot be written.
    """
    content = render(data).encode() + end
    try:
        write(path, content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}") from error
    return Written(path, len(content), num_examples)
