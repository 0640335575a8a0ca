"""How accurate are the models of this package, beside another program and published numbers?

    python experiments/overview.py

Measures nothing: a row for each trained model whose raw numbers are in a JSON file of experiments/results. A peer is
another program that was run on the same machine and the same files.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import one_line  # noqa: E402
from attn_jax.evaluation.statistics import t_interval  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from experiments import babi, inflection, inflection_peer, raw  # noqa: E402

PEER_OF = "enja_soft"  # the config that experiments/translation_peer.py trains JoeyNMT beside
DEVELOPED = ("memnn", "dmn_supervised")  # their settings were changed after a first result on the test questions


class Row(NamedTuple):
    """What is known of a trained model."""

    task: str
    model: str
    split: str
    metric: str
    ours: str
    peer: str
    published: str
    seconds: float | None  # of training all seeds
    file: str  # name of the JSON file, whose page has the command


def interval(values: Sequence[float], digits: int = 1) -> str:
    """Formats the mean of the seeds with its 95 % interval (Student's t), or the one value there is."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}, one seed"
    found = t_interval(values)
    return f"{found.mean:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}], {len(values)} seeds"


def of_quickstarts(found: dict[str, Any]) -> Iterator[Row]:
    """Yields the rows of the quickstarts, whose metric has the name of its config's task."""
    tasks = {"quickstart": "dates to ISO", "scenes_quickstart": "captions of scenes", "babi_quickstart": "stories"}
    for name, run in found["results"].items():
        metric = "exact_match" if "exact_match" in run["metrics"] else "accuracy"
        values = run["metrics"][metric]["seeds"]
        ours = interval(values)
        yield Row(
            tasks[name], name, run["split"], metric.replace("_", " "), ours, "", "", run["train_seconds"], "quickstarts"
        )


def of_scenes(found: dict[str, Any]) -> Iterator[Row]:
    """Yields the rows of captions with relations, all cells read and one cell a word."""
    for variant, run in found["results"]["runs"].items():
        for metric, how in (("exact_match", "exact match"), ("one_cell", "exact match, one cell a word")):
            ours = interval(run["metrics"][metric]["seeds"])
            yield Row("captions of scenes", variant, "test", how, ours, "", "", run["train_seconds"], "where")


def of_images(found: dict[str, Any]) -> Iterator[Row]:
    """Yields the rows of models of scenes: captions, answers, and digits that glimpses find."""
    tasks = {"scenes_questions": "questions about scenes", "scenes_glimpses": "a digit among clutter"}
    for name, run in found["results"].items():
        task = tasks.get(name.split(",")[0], "captions of scenes")
        ours = interval(run["metrics"]["exact_match"]["seeds"])
        yield Row(task, name, "test", "exact match", ours, "", "", run["train_seconds"], "scenes")


def of_inflection(found: dict[str, Any], peer: dict[str, Any] | None) -> Iterator[Row]:
    """Yields the rows of inflection; the peer stands beside the runs that are nearest to its size."""
    others = {inflection_peer.Setting(**one["setting"]): one for one in peer["results"]["runs"]} if peer else {}
    for one in found["results"]["runs"]:
        run, result = inflection.Setting(**one["setting"]), one["result"]
        other = others.get(inflection_peer.Setting(run.language, run.reading, run.forms))
        beside = other and run.place == "fed" and run.width == inflection.LARGE and not run.made
        theirs = f"{other['chosen']['accuracy']:.1f}, one seed, chosen by dev (neural-transducer)" if beside else ""
        task = (
            f"inflection, {run.language.capitalize()}, {run.forms:,} forms{' and synthetic ones' if run.made else ''}"
        )
        network = f"Transformer {run.width}" if run.place == inflection.SET else f"LSTM {run.width}, {run.reading}"
        model = f"{network}, tags {run.place.partition(',')[0]}"
        ours = interval(result["metrics"]["exact_match"]["seeds"])
        split = "dev" if run.language == "hungarian" else "dev, development"  # nothing was tuned on Hungarian
        yield Row(task, model, split, "exact match", ours, theirs, "", result["train_seconds"], "inflection")


def of_babi(found: dict[str, Any]) -> Row:
    """Returns the row of a family of memory networks: the mean error over the tasks."""
    name = found["results"]["family"]
    tasks = [babi.Row(**task) for task in found["results"]["tasks"]]
    chosen = np.mean([task.errors[task.chosen] for task in tasks])
    seeds = np.mean([np.mean(task.errors) for task in tasks])
    fresh = [task.fresh for task in tasks if task.fresh is not None]
    ours = f"{chosen:.2f} (seed chosen in training), {seeds:.1f} (all seeds)"
    ours += f", {np.mean(fresh):.1f} (new stories)" if fresh else ""
    family = babi.FAMILIES[name]
    published = f"{np.mean([family.published[task.number - 1] for task in tasks]):.2f}: {family.source}"
    split = "test, development" if name in DEVELOPED else "test"
    return Row(f"bAbI, {len(tasks)} tasks", name, split, "error, %", ours, "", published, None, f"babi_{name}")


def of_translation(found: dict[str, Any], peer: dict[str, Any] | None, page: str = "attention") -> Iterator[Row]:
    """Yields the rows of translation, each seed and the ensemble; the peer stands beside the model of its kind."""
    split = f"{found['results']['split']}, development" if found["results"]["split"] == "dev" else "test"
    for run in found["results"]["runs"]:
        beside = peer if run["config"] == PEER_OF else None
        for metric, decoding in (("bleu", "greedy"), ("bleu", "beam"), ("perplexity", "greedy")):
            values = run["measured"][decoding][metric]
            name, digits = (f"BLEU, {decoding}", 1) if metric == "bleu" else (metric, 2)
            ours = f"{interval(values['seeds'], digits)}; ensemble {values['ensemble']:.{digits}f}"
            theirs = (
                f"{interval(_of_peer(beside, metric), digits)} (JoeyNMT)" if beside and decoding == "greedy" else ""
            )
            yield Row(
                "English to Japanese", f"{run['config']}, {run['size']}", split, name, ours, theirs, "",
                run["train_seconds"], page,
            )  # fmt: skip


def _of_peer(peer: dict[str, Any], metric: str) -> list[float]:
    """Returns the last value of each seed."""
    return [seed["bleu"][-1] if metric == "bleu" else seed["perplexity"] for seed in peer["results"].values()]


def rows(folder: pathlib.Path = raw.RESULTS) -> list[Row]:
    """Returns all rows for which there are JSON files."""

    def record(name: str) -> dict[str, Any] | None:
        path = folder / f"{name}.json"
        return raw.read(path) if path.exists() else None

    found = []
    if content := record("quickstarts"):
        found += of_quickstarts(content)
    if content := record("where"):
        found += of_scenes(content)
    if content := record("scenes"):
        found += of_images(content)
    if content := record("inflection"):
        found += of_inflection(content, record("inflection_peer"))
    if content := record("translation"):
        found += of_translation(content, None, "translation")
    for name in ("attention", "attention_dropout"):  # of the size of the peer
        if content := record(name):
            found += of_translation(content, record("translation_peer"), name)
    return found + [of_babi(content) for name in babi.FAMILIES if (content := record(f"babi_{name}"))]


def report(found: Sequence[Row]) -> str:
    """Formats a table."""
    lines = [
        [
            *(row.task, row.model, row.split, row.metric, row.ours, row.peer, row.published),
            f"[{row.file}]({row.file}.md)",
            "" if row.seconds is None else f"{row.seconds:,.0f}",
        ]
        for row in found
    ]
    head = ["task", "model", "split", "metric", "ours", "peer", "published", "command and every seed", "s"]
    return raw.table(head, lines, left=8)


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    return f"""# {__doc__.splitlines()[0]}

    python experiments/overview.py

Mean of the seeds with its 95 % interval (Student's t). "development": settings were chosen with results on this split
in view. A peer is another program, run on the same machine and files; s is the seconds of training of all seeds. The
page of each row has its command, commit, machine and date. Student's t does not know that a share ends at 100 %, so
some intervals go beyond it.

{report(rows())}
"""


PAGES = (raw.Page("overview", page, measured=False),)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    print(PAGES[0].save({}, parser.parse_args(argv).out))


if __name__ == "__main__":
    with one_line("overview.py"):
        main()
