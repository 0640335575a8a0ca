"""Analyses, reports and sweeps that cannot be made: of what does not belong together, or is damaged."""

import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

from case import Case
from command_line import writes

# Of the second of two copies of the run "words": (name, changes to config.json, changes to result.json, words)
PAIRS: list[tuple[str, dict, dict, str]] = [
    ("another task", {"task.name": "dates"}, {}, "expected the runs of one sweep, which can be compared"),
    ("another split", {}, {"split": "another"}, "expected one split"),
    ("no seeds in common", {}, {"seeds": [7, 8]}, "expected seeds in common"),
    ("no metrics", {}, {"metrics": None}, "expected the result of a run"),
    ("a metric that is none", {}, {"metrics": {"loss": 3}}, "expected the result of a run"),
    ("no number", {}, {"metrics": {"loss": {"mean": None, "std": 0, "seeds": [1]}}}, "with finite numbers"),
    ("no seeds", {}, {"seeds": 3}, "expected the result of a run"),
]
# Of result.json of the second copy, as text: (name, (good) -> text, words)
RESULTS: list[tuple[str, Callable[[str], str], str]] = [
    ("cut short", lambda good: good[: len(good) // 2], "not valid JSON"),
    ("empty", lambda good: "", "the file is empty"),
    ("a list", lambda good: "[]", "expected a JSON object"),
    ("not a number", lambda good: good.replace('"mean": ', '"mean": NaN, "old": '), "with finite numbers"),
]
# Of a gold file for the seven pairs of the split: (name, content, words)
GOLD: list[tuple[str, bytes, str]] = [
    ("another length", b"1-1\n" * 3, "has 3 lines, but there are 7 pairs; expected a line for each"),
    ("a line more", b"1-1\n" * 8, "has 8 lines, but there are 7 pairs; expected a line for each"),
    ("nothing", b"", "has 0 lines, but there are 7 pairs|the file is empty"),
    ("no links", b"1-1\n" * 6 + b"a b\n", "line 7: expected links such as 1-1 or 2p3"),
    ("words from 0", b"0-1\n" + b"1-1\n" * 6, "line 1: expected links such as 1-1 or 2p3, words from 1"),
    ("a word too far", b"1-1\n1-999\n" + b"1-1\n" * 5, "line 2: target word 999, but the target has"),
    ("no UTF-8", b"1-1\n\xff\n" + b"1-1\n" * 5, "line 2: not valid UTF-8"),
]


def cases() -> list[Case]:
    """The modes analyze and report, and sweeps on a cluster that is not there."""
    found = []
    report = ["--mode=report", "--workdir={here}/runs"]
    for name, config, result, told in PAIRS:
        prepare = two_runs(changes_of(config, result))
        found.append(Case("reports", f"sweep: {name}", report, run="words", prepare=prepare, words=(told,)))
    for name, change, told in RESULTS:
        prepare = two_runs(text_of(change))
        found.append(Case("reports", f"sweep: result {name}", report, run="words", prepare=prepare, words=(told,)))
    one = ["--mode=report", "--workdir={here}/run"]
    for name, change, told in RESULTS:
        prepare = within("run", text_of(change))
        found.append(Case("reports", f"run: result {name}", one, run="words", prepare=prepare, words=(told,)))
    none = two_runs(lambda first, second: [(run / "result.json").unlink() for run in (first, second)])
    words = ("none of its 2 runs has a result.json",)
    found.append(Case("reports", "sweep: no result", report, run="words", prepare=none, words=words))
    source = [*one, "--source={words_data}/test.source"]
    words = ("--source=FILE and --target=FILE together",)
    found.append(Case("reports", "run: source alone", source, run="words", words=words))
    gold = ["--mode=analyze", "--workdir={words}", "--gold={here}/gold"]
    for name, content, told in GOLD:
        found.append(Case("analyses", f"gold: {name}", gold, prepare=writes("gold", content), words=(told,)))
    found.append(Case("analyses", "gold: no file", gold, words=("no such file",)))
    folder = ["--mode=analyze", "--workdir={words}", "--gold={here}"]
    found.append(Case("analyses", "gold: a folder", folder, words=("is a directory|directory",)))
    table = ["--mode=analyze", "--workdir={table}", "--gold={here}/gold"]
    prepare = writes("gold", b"1-1\n")
    found.append(Case("analyses", "gold: of numbers", table, prepare=prepare, words=("is for models of text",)))
    source = [*gold[:2], "--source={words_data}/test.source"]
    words = ("--source=FILE and --target=FILE together",)
    found.append(Case("analyses", "source alone", source, words=words))
    return found


def two_runs(change: Callable[[pathlib.Path, pathlib.Path], Any]) -> Callable[[pathlib.Path], None]:
    """A preparation: a folder "runs" with two copies of the run, each of two seeds, of which the change is told."""

    def prepare(here: pathlib.Path) -> None:
        pair = here / "runs" / "a", here / "runs" / "b"
        for workdir in pair:
            shutil.copytree(here / "run", workdir)
            edit(workdir / "result.json", {"seeds": [0, 1]})
        change(*pair)

    return prepare


def within(name: str, change: Callable[[pathlib.Path, pathlib.Path], Any]) -> Callable[[pathlib.Path], None]:
    """A preparation: the change of one run."""
    return lambda here: change(here / name, here / name)


def changes_of(config: dict[str, Any], result: dict[str, Any]) -> Callable[[pathlib.Path, pathlib.Path], None]:
    """A change of the JSON files of the second run; "." in a key of the config is a level."""

    def change(_: pathlib.Path, second: pathlib.Path) -> None:
        edit(second / "result.json", result)
        if config:
            path = second / "config.json"
            content = json.loads(path.read_text())
            content.pop("crc32", None)
            for key, value in config.items():
                *groups, name = key.split(".")
                inner = content
                for group in groups:
                    inner = inner[group]
                inner[name] = value
            path.write_text(json.dumps(content))

    return change


def text_of(change: Callable[[str], str]) -> Callable[[pathlib.Path, pathlib.Path], None]:
    """A change of the text of result.json of the second run."""

    def apply(_: pathlib.Path, second: pathlib.Path) -> None:
        path = second / "result.json"
        path.write_text(change(path.read_text()))

    return apply


def edit(path: pathlib.Path, changes: dict[str, Any]) -> None:
    """Replaces values of a JSON object in a file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
