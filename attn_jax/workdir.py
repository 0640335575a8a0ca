"""Work directories: a run's config.json, vocabularies.json (or points.npz) and checkpoints/ are enough to go on with
the training, or to evaluate, translate and draw, without the training data.
"""

import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import zipfile
from typing import Any, TextIO

import numpy as np
from ml_collections import ConfigDict

from attn_jax.errors import UserError
from attn_jax.tasks.regression import Columns, Points, PointsTask, make_task
from attn_jax.tasks.vocabulary import Vocabulary, from_json

# What may differ between a run and its continuation: nothing of this changes what is trained.
MAY_CHANGE = ("name", "description", "data_dir", "parallel", "decode.", "eval.", "train.log_every", "train.keep")
MAY_CHANGE += ("model.attention.k_max",)  # of evaluation and decoding alone


def save_json(path: pathlib.Path, data: Any) -> None:
    """Written as a whole or not at all."""
    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror.lower()}") from error


def load_json(path: pathlib.Path) -> dict:
    """The contents, or a UserError where the file is missing or no JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: {path.parent} is not the work directory of a run") from None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if not isinstance(data, dict):
        raise UserError(f"cannot read {path}: expected a JSON object")
    return data


def plain(config: ConfigDict) -> dict:
    """The config as JSON has it: tuples are lists."""
    return json.loads(config.to_json_best_effort())


def flatten(config: dict, prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    flat = {}
    for key, value in config.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def holds(workdir: pathlib.Path, config: ConfigDict) -> bool:
    """Whether the work directory holds a run of this config; a UserError if it holds the run of another one.

    A run without a checkpoint is none: it failed before there was anything to lose.
    """
    path = workdir / "config.json"
    if not path.exists() or not any(entry.name.isdigit() for entry in (workdir / "checkpoints").glob("*")):
        return False
    before, now = flatten(load_json(path)), flatten(plain(config))
    for key in sorted(before.keys() | now.keys()):
        if not key.startswith(MAY_CHANGE) and before.get(key) != now.get(key):
            raise other(workdir, key, before.get(key), now.get(key))
    return True


def check_model(workdir: pathlib.Path, config: ConfigDict) -> None:
    """UserError if a trained model is to be used as another one: its parameters might fit and mean something else."""
    before, now = flatten(load_json(workdir / "config.json")), flatten(plain(config))
    for key in sorted(before.keys() & now.keys()):
        if key.startswith(("model.", "seed")) and not key.startswith(MAY_CHANGE) and before[key] != now[key]:
            raise other(workdir, key, before[key], now[key])


def other(workdir: pathlib.Path, key: str, before: Any, now: Any) -> UserError:
    """That a work directory is not one of this config."""
    return UserError(
        f"{workdir} holds the run of another config: {key} is {before!r} there and {now!r} here; choose another "
        "--workdir, or leave it as it was"
    )


def lock(workdir: pathlib.Path) -> TextIO:
    """Keeps other processes from training in the work directory until this one ends, or the file is closed.

    Raises:
        UserError: another process has it, or nothing can be written there.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        file = open(workdir / "lock", "w", encoding="utf-8")
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise UserError(f"{workdir} is in use: another process is training there") from None
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):  # a file system without locks
            raise UserError(f"cannot write {workdir}: {error.strerror.lower()}") from error
    return file


def load_config(workdir: pathlib.Path, base: ConfigDict) -> ConfigDict:
    """The config of a work directory, typed like `base`."""
    config = base.copy_and_resolve_references()
    known = flatten(plain(base))
    stored = {key: value for key, value in flatten(load_json(workdir / "config.json")).items() if key in known}
    try:
        with config.unlocked():
            config.update_from_flattened_dict({k: _tuples(v) if isinstance(v, list) else v for k, v in stored.items()})
    except TypeError as error:
        raise UserError(f"cannot read {workdir / 'config.json'}: {' '.join(str(error).split())}") from error
    return config


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def save_vocabularies(workdir: pathlib.Path, vocabularies: tuple[Vocabulary, Vocabulary]) -> None:
    """As vocabularies.json."""
    source, target = (vocabulary.to_json() for vocabulary in vocabularies)
    save_json(workdir / "vocabularies.json", {"source": source, "target": target})


def load_vocabularies(workdir: pathlib.Path) -> tuple[Vocabulary, Vocabulary]:
    """Those that a run was trained with."""
    path = workdir / "vocabularies.json"
    stored = load_json(path)
    try:
        return from_json(stored["source"]), from_json(stored["target"])
    except (UserError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def save_points(workdir: pathlib.Path, task: PointsTask) -> None:
    """As points.npz: the memory of a kernel regression, and the points it is measured on."""
    path = workdir / "points.npz"
    partial = workdir / "points.partial.npz"
    train, test = task.splits["train"], task.splits["test"]
    arrays = {
        "inputs": train.inputs,
        "targets": train.targets,
        "test_inputs": test.inputs,
        "test_targets": test.targets,
    }
    names = {"columns": dataclasses.asdict(task.columns), "note": task.note, "examples": task.examples}
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(partial, names=json.dumps(names, ensure_ascii=False), **arrays)
        os.replace(partial, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror.lower()}") from error


def load_points(workdir: pathlib.Path) -> PointsTask:
    """Those that a run was trained with."""
    path = workdir / "points.npz"
    try:
        with np.load(path, allow_pickle=False) as stored:
            names = json.loads(str(stored["names"]))
            train = Points(stored["inputs"], stored["targets"])
            test = Points(stored["test_inputs"], stored["test_targets"])
        columns = Columns(**{name: tuple(v) if isinstance(v, list) else v for name, v in names["columns"].items()})
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: {workdir} is not the work directory of a regression") from None
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    return make_task(train, test, columns, names["note"], tuple(names["examples"]))
