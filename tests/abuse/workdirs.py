"""Work directories that were damaged, edited, or made by a stranger: refused, or the answers are those of before."""

import json
import os
import pathlib
import shutil
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from case import Case
from sandbox import MAKERS, RUNS, question

# Values in config.json that would make another model, another decoding or none, of (run, key)
CONFIG = {
    ("words", "model.attention.normalize.name"): ["sigmoid", "sparsemax"],
    ("words", "model.attention.score.name"): ["scaled_dot", "__class__"],
    ("words", "model.decoder.input_feeding"): [True],
    ("words", "model.hidden_size"): [16],
    ("words", "model.decoder.cell"): ["lstm"],
    ("words", "model.encoder"): [{"name": "lstm"}],
    ("words", "model.attention.wrappers"): [{"pattern": ["gate"]}],
    ("words", "model.dropout"): [0.7],
    ("words", "model.name"): ["transformer"],
    ("words", "task.vocabulary.name"): ["characters"],
    ("words", "task.name"): ["plain_text"],
    ("words", "seed"): [4],
    ("words", "dtype"): ["bfloat16"],
    ("words", "optimizer.learning_rate"): [5.0],
    ("table", "model.degrees"): [[0]],
    ("table", "model.attention.score.name"): ["epanechnikov"],
    ("table", "model.attention.score.per_column"): [False],
    ("table", "task.name"): ["dates"],
    ("stories", "model.num_hops"): [2],
    ("stories", "model.encoding"): ["bag"],
    ("stories", "model.attend_empty"): [False],
    ("stories", "seeds"): [[1, 0]],
    ("stories", "train.choose_seed"): ["valid"],
    ("labels", "model.pooling.name"): ["structured"],
    ("labels", "model.encoder.kernel_size"): [5],
    ("labels", "model.encoder.name"): ["rnn"],
}
# (name, (text of config.json) -> text)
JSON = [
    ("an empty object", lambda text: "{}"),
    ("two objects", lambda text: text + text),
    ("deep object", lambda text: '{"model":' * 50_000 + "1" + "}" * 50_000),
    ("UTF-16", lambda text: text.encode("utf-16")),
    ("binary", lambda text: bytes(range(256))),
]
# (name, (contents of vocabularies.json) -> None, in place); of the run "words"
VOCABULARIES = [
    ("tokens reversed", lambda v: v["target"]["tokens"].reverse()),
    ("two tokens swapped", lambda v: swap(v["target"]["tokens"])),
    ("a list among the tokens", lambda v: put(v["source"]["tokens"], ["a"])),
    ("a token less", lambda v: v["target"]["tokens"].pop()),
    ("a token more", lambda v: v["target"]["tokens"].append("NEW")),
    ("escapes", lambda v: put(v["target"]["tokens"], "\x1b[2J")),
    ("no target", lambda v: v.pop("target")),
    ("another kind", lambda v: v["source"].update(kind="characters")),
    ("source for target", lambda v: v.update(target=v["source"], source=v["target"])),
]
CHECKSUMS = ("kept", "dropped", "renewed")  # what becomes of a file's own checksum


def cases() -> list[Case]:
    """About three hundred."""
    found = []
    for run, key, value in ((*place, value) for place, values in CONFIG.items() for value in values):
        for how in CHECKSUMS:
            prepare = edits("config.json", sets(key, value), how)
            told = ("config.json", "another config", key.rpartition(".")[2], "model.name")
            found.append(asked("config", f"{run} {key}={value} {how}", run, prepare, *told))
    for name, change in VOCABULARIES:
        for how in CHECKSUMS:
            prepare = edits("vocabularies.json", change, how)
            found.append(asked("vocabularies", f"{name} {how}", "words", prepare, "vocabularies.json"))
    for run, file in (("words", "config.json"), ("words", "vocabularies.json"), ("labels", "vocabularies.json")):
        for name, change in JSON:
            said = f"{file}|was made by" if name == "an empty object" else file  # no version is an early one
            found.append(asked("json", f"{run} {file} {name}", run, rewrites(file, change), said))
    for name, prepare in points():
        found.append(asked("points", name, "table", prepare, "points.npz"))
    for run in RUNS:
        kept = "points.npz" if run == "table" else "vocabularies.json"
        for file in ("config.json", kept, "checkpoints"):
            found.append(asked("missing", f"{run} {file}", run, removes(file), file))
            found.append(asked("missing", f"{run} {file} is something else", run, replaces(file)))
            argv = [*MAKERS[run]("" if run == "stories" else f"{{{run}_data}}"), "--workdir={here}/run"]
            name = f"{run} {file} is something else, trained again"
            found.append(Case("missing", name, argv, run=run, prepare=replaces(file)))
    return found


def points() -> list[tuple[str, Callable]]:
    """(name, preparation) of a points.npz that is damaged or made to do harm."""

    def member(name: str, change: Callable) -> Callable:
        def prepare(here: pathlib.Path) -> None:
            with np.load(here / "run" / "points.npz") as stored:
                arrays = {key: stored[key] for key in stored.files}
            changed = change(arrays[name])
            arrays = {key: x for key, x in arrays.items() if key != name} | ({} if changed is None else {name: changed})
            np.savez_compressed(here / "run" / "points.npz", **arrays)

        return prepare

    return [
        ("a zip of something else", zip_of_text),
        ("one number changed", member("inputs", lambda x: x + np.eye(*x.shape[1:]) * 1e-3)),
        ("rows in another order", member("targets", lambda x: x[:, ::-1])),
        ("a pickled object", member("inputs", lambda x: np.array([Harm()], dtype=object))),
    ]


class Harm:
    """Makes a file when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch PWNED",)


def asked(section: str, name: str, run: str, prepare: Callable, *told: str) -> Case:
    """The questions of a run, asked of a copy that was spoilt."""
    argv, stdin = question(run, "{here}/run")
    words = ("|".join(told),) if told else ()
    return Case(section, name, argv, stdin, run=run, prepare=prepare, words=words)


def edits(name: str, change: Callable[[dict], Any], how: str) -> Callable:
    """A preparation: a JSON file with other contents, and its checksum "kept", "dropped", or "renewed"."""

    def prepare(here: pathlib.Path) -> None:
        path = here / "run" / name
        content = json.loads(path.read_text(encoding="utf-8"))
        kept = content.pop("crc32", None)
        change(content)
        if how == "renewed":
            kept = zlib.crc32(json.dumps(content, sort_keys=True).encode())
        content |= {} if how == "dropped" or kept is None else {"crc32": kept}
        path.write_text(json.dumps(content), encoding="utf-8")

    return prepare


def sets(key: str, value: Any) -> Callable[[dict], None]:
    """A change: content["a"]["b"] = value for "a.b"."""

    def change(content: dict) -> None:
        *sections, name = key.split(".")
        for section in sections:
            content = content[section]
        content[name] = value

    return change


def put(tokens: list, value: Any) -> None:
    tokens[-2] = value


def swap(tokens: list) -> None:
    tokens[-1], tokens[-2] = tokens[-2], tokens[-1]


def rewrites(name: str, change: Callable[[str], str | bytes]) -> Callable:
    """A preparation: a file of the copy with another content."""

    def prepare(here: pathlib.Path) -> None:
        path = here / "run" / name
        new = change(path.read_text(encoding="utf-8", errors="replace"))
        path.write_bytes(new.encode("utf-8") if isinstance(new, str) else new)

    return prepare


def removes(name: str) -> Callable:
    """A preparation: a file or folder of the copy is gone."""

    def prepare(here: pathlib.Path) -> None:
        path = here / "run" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return prepare


def replaces(name: str) -> Callable:
    """A preparation: a folder where there was a file, a file where there was a folder."""

    def prepare(here: pathlib.Path) -> None:
        path = here / "run" / name
        folder = path.is_dir()
        removes(name)(here)
        path.write_text("x") if folder else path.mkdir()

    return prepare


def cut(path: pathlib.Path) -> None:
    """Leaves the first half of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def zip_of_text(here: pathlib.Path) -> None:
    with zipfile.ZipFile(here / "run" / "points.npz", "w") as file:
        file.writestr("names.npy", "hello")
