"""Links in a work directory: no file outside of it is written through one, and the message names the link."""

import os
import pathlib
from collections.abc import Callable

from case import Case, Result
from sandbox import question, table, words

VICTIM = "all: mine\n"
# Names that a command writes in a work directory, or wrote once, or might write.
WRITTEN = "lock config.json config.partial vocabularies.json vocabularies.partial result.json result.partial".split()
WRITTEN += "eval.json eval.partial sentences.json eval_sentences.json comparison.json metrics.jsonl curves.png".split()
WRITTEN += "checkpoints attention attention/000.png visualize visualize/000.png visualize/000.json".split()
POINTS = ["points.npz", "points.partial.npz", "predictions.png"]
MODES = {
    "train": [*words("{words_data}", train__num_steps=1, train__eval_every=1), "--workdir={here}/run"],
    "eval": ["--mode=eval", "--workdir={here}/run"],
    "predict": ["--mode=predict", "--workdir={here}/run"],
    "visualize": ["--mode=visualize", "--workdir={here}/run"],
}


def cases() -> list[Case]:
    """Links to a file or a folder, links to nothing, second names of a file; in a new and in a used work directory."""
    found = []
    for name in WRITTEN:
        told = ("is a link|is not the work directory|is not a folder|cannot read", "{here}/run/" + name.split("/")[0])
        for mode, argv in MODES.items():
            add = Case("links", f"{mode}: {name}", argv, b"a bird\n", run="words", prepare=plants(name), words=told)
            if mode == "train":
                add = add._replace(name=f"train new: {name}", stdin=b"", run="")
                found.append(add)
                if "/" not in name:
                    found.append(add._replace(name=f"{add.name} to nothing", prepare=plants(name, nothing=True)))
            elif mode == "eval" or name.startswith(("visualize", "lock", "eval", "checkpoints")):
                found.append(add)
    for name in POINTS:
        argv = [*table("{table_data}", train__num_steps=1), "--workdir={here}/run"]
        found.append(Case("links", f"train table: {name}", argv, prepare=plants(name), words=("is a link", name)))
    # A sweep writes a log for each run.
    sweep = ["--sweep={here}/sweep.py", "--workdir={here}/run"]
    fine = {"either": True, "check": lambda here, result: ""}
    for name in ("base,seed=1", "base,seed=1/log.txt", "base,seed=1/lock"):
        found.append(Case("links", f"sweep: {name}", sweep, prepare=both(plants(name), write_sweep), **fine))
    for name in ("lock", "eval.json", "metrics.jsonl", "config.json", "visualize/000.png"):
        case = Case("links", f"a second name: {name}", MODES["visualize" if "/" in name else "eval"], b"a bird\n")
        found.append(case._replace(run="words", prepare=plants(name, hard=True), **fine))
    argv, stdin = question("words", "{here}/linked")
    to_run = Case("right", "the work directory itself is a link", argv, stdin, run="words", check=no_answer_is_none)
    found.append(to_run._replace(prepare=lambda here: (here / "linked").symlink_to(here / "run")))
    return found


def plants(name: str, nothing: bool = False, hard: bool = False) -> Callable:
    """A preparation: run/name is a link to a file (for a folder, to a folder) in {here}/mine, or to nothing there."""

    def prepare(here: pathlib.Path) -> None:
        mine, path = here / "mine", here / "run" / name
        (mine / "folder").mkdir(parents=True)
        (mine / "victim").write_text(VICTIM)
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = "." not in name.rpartition("/")[2] and name != "lock"
        if path.exists() and not path.is_dir():
            if hard and path.suffix == ".json":
                (mine / "victim").write_bytes(path.read_bytes())
            path.unlink()
        elif path.exists():
            path.rename(mine / "folder" / "moved")
        if hard:
            os.link(mine / "victim", path)
        else:
            path.symlink_to(mine / ("nothing" if nothing else "folder" if folder else "victim"))

    return prepare


def both(*prepares: Callable) -> Callable:
    return lambda here: [prepare(here) for prepare in prepares]


def write_sweep(here: pathlib.Path) -> None:
    (here / "sweep.py").write_text("def sweep():\n    yield {'config': 'configs/base.py', 'seed': 1}\n")


def no_answer_is_none(here: pathlib.Path, result: Result) -> str:
    return "" if result.out.strip() else "no answer"
