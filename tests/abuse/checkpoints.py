"""Checkpoints and results of a work directory that were damaged or edited: refused, or a good checkpoint answers."""

import json
import pathlib
import shutil
from collections.abc import Callable

from case import Case, Result
from sandbox import MAKERS
from workdirs import asked, cut, removes, rewrites


def cases() -> list[Case]:
    """Both."""
    return checkpoints() + results()


def checkpoints() -> list[Case]:
    """Checkpoints that lack something, or have something more: refused, or a good one answers and a notice says so."""
    found = []
    for run in ("words", "table"):
        for name, spoil in (
            ("an empty step more", lambda steps: (steps[-1].parent / "9999").mkdir()),
            ("a step abc", lambda steps: (steps[-1].parent / "abc").mkdir()),
            ("a file for a step", lambda steps: (steps[-1].parent / "9999").write_text("x")),
            ("no params", lambda steps: shutil.rmtree(steps[-1] / "params")),
            ("no meta", lambda steps: shutil.rmtree(steps[-1] / "meta")),
            ("no state", lambda steps: shutil.rmtree(steps[-1] / "state")),
            ("all without params", lambda steps: [shutil.rmtree(step / "params") for step in steps]),
            ("all without meta", lambda steps: [shutil.rmtree(step / "meta") for step in steps]),
            ("a huge step", lambda steps: steps[-1].rename(steps[-1].parent / str(10**30))),
            ("a step renamed", lambda steps: steps[-1].rename(steps[-1].parent / "77")),
            ("no steps", lambda steps: [shutil.rmtree(step) for step in steps]),
            ("largest files cut", lambda steps: [cut(largest(step)) for step in steps]),
            ("largest files empty", lambda steps: [largest(step).write_bytes(b"") for step in steps]),
            ("largest file of the newest cut", lambda steps: cut(largest(steps[-1]))),
            ("swapped", lambda steps: exchange(steps[0] / "params", steps[-1] / "params")),
        ):
            case = asked("checkpoints", f"{run} {name}", run, lambda here, spoil=spoil: spoil(steps_of(here)))
            found.append(case._replace(either=True, check=same_or_told(run)))
    foreign = asked("checkpoints", "of another run", "words", of_another_run)
    return [*found, foreign._replace(words=("of another configuration|not that of the run",))]


def results() -> list[Case]:
    """A result.json that is none: what it says is shown and used when the run is finished."""
    texts = ("", "{}", "[]", "{", '{"metrics": 3, "split": "test"}', '{"split": 3, "metrics": {}}', "\xff")
    texts += (
        '{"chosen_seed": []}',
        '{"metrics": {"loss": {"mean": "x", "seeds": [1]}}, "split": "test"}',
        '{"chosen_seed": 1e400}',
    )
    found = []
    for text in texts:
        spoil = rewrites("result.json", lambda _, text=text: text)
        for run in ("words", "stories"):
            case = asked("results", f"{run} {text!r}", run, spoil)
            found.append(case._replace(either=True, check=same_or_told(run)))
        argv = [*MAKERS["words"]("{words_data}"), "--workdir={here}/run"]
        case = Case("results", f"trained again {text!r}", argv, run="words", prepare=spoil, either=True)
        found.append(case._replace(check=lambda here, result: ""))
    return found


def same_or_told(run: str) -> Callable:
    """A check: the answers of before, or of another checkpoint and a notice says that one was damaged."""

    def check(here: pathlib.Path, result: Result) -> str:
        answers = json.loads((here.parents[1] / "answers.json").read_text())
        if result.out == answers[run] or " is damaged " in result.err:
            return ""
        return f"other answers than before, without a word: {result.out!r}"

    return check


def steps_of(here: pathlib.Path) -> list[pathlib.Path]:
    """The checkpoints of the copy, oldest first."""
    folders = [path for path in (here / "run" / "checkpoints").iterdir() if path.name.isdigit()]
    return sorted(folders, key=lambda path: int(path.name))


def largest(folder: pathlib.Path) -> pathlib.Path:
    """The largest file below a folder."""
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def exchange(a: pathlib.Path, b: pathlib.Path) -> None:
    """Each gets the name of the other."""
    if a == b:
        return
    other = a.with_name("other")
    a.rename(other)
    b.rename(a)
    other.rename(b)


def of_another_run(here: pathlib.Path) -> None:
    """The checkpoints of the classifier in the directory of the seq2seq."""
    removes("checkpoints")(here)
    shutil.copytree(here.parents[1] / "labels" / "run" / "checkpoints", here / "run" / "checkpoints")
