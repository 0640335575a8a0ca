"""Data files of a work directory: vocabularies.json with facts about the data, or points.npz for a kernel regression.

Both contain a checksum, which a checkpoint stores too. Files of earlier versions have none.
"""

import io
import json
import pathlib
from typing import Any

import numpy as np

from attn_jax.data import facts
from attn_jax.data.facts import Kept
from attn_jax.data.files import (
    CHECKSUM,
    changed,
    checksum,
    is_base64,
    is_text,
    load_checked,
    reason,
    save_checked,
    short,
    text_checksum,
    write,
)
from attn_jax.data.vocabulary import Vocabulary, from_json
from attn_jax.errors import UserError

POINTS = ("inputs", "targets", "test_inputs", "test_targets")  # members of points.npz


def save_kept(workdir: pathlib.Path, kept: Kept) -> None:
    """Writes vocabularies.json."""
    source, target = map(_vocabulary_as_json, (kept.source, kept.target))
    about = {} if kept.facts is None else {"facts": facts.to_json(kept.facts)}
    save_checked(workdir / "vocabularies.json", {"source": source, "target": target} | about)


def _vocabulary_as_json(vocabulary: Vocabulary) -> dict[str, Any]:
    counts = {} if vocabulary.counts is None else {"counts": vocabulary.counts.tolist()}
    return vocabulary.to_json() | counts


def load_kept(workdir: pathlib.Path) -> Kept:
    """Returns the vocabularies that a run was trained with, and facts about stories or images.

    Raises:
        UserError: the file is missing, damaged, or of another kind.
    """
    path = workdir / "vocabularies.json"
    stored, _ = load_checked(path)
    source, target = (
        _load_vocabulary(stored.get(side), f"cannot read {path}: {side}") for side in ("source", "target")
    )
    if "facts" not in stored:
        return Kept(source, target)
    if not isinstance(stored["facts"], dict):
        raise UserError(f"cannot read {path}: facts is {short(stored['facts'])}; expected those of stories or images")
    try:
        return Kept(source, target, facts.from_json(stored["facts"]))
    except UserError as error:
        raise UserError(f"cannot read {path}: facts: {error}") from None


def load_vocabularies(workdir: pathlib.Path) -> tuple[Vocabulary, Vocabulary]:
    """Returns the vocabularies (of the source, of the target) that a run was trained with; see `load_kept`."""
    kept = load_kept(workdir)
    return kept.source, kept.target


def _load_vocabulary(stored: Any, where: str) -> Vocabulary:
    if not isinstance(stored, dict) or not isinstance(stored.get("kind"), str):
        raise UserError(f"{where} is {short(stored)}; expected a vocabulary, with its kind and its tokens")
    for name in ("tokens", "tags"):
        tokens = stored.get(name, [])
        if not isinstance(tokens, list):
            raise UserError(f"{where}.{name} is {short(tokens)}; expected a list of texts")
        for number, token in enumerate(tokens, 1):
            if not is_text(token) or not token:
                raise UserError(f"{where}.{name} has {short(token)} at place {number}; expected a text, not empty")
    if "texts" in stored:
        _load_vocabulary(stored["texts"], f"{where}.texts")
    if "model" in stored and not is_base64(stored["model"]):
        raise UserError(f"{where}.model is {short(stored['model'])}; expected the base64 text of a model")
    try:
        vocabulary = from_json(stored)
        if "counts" in stored:
            vocabulary.counts = _load_counts(stored["counts"], len(vocabulary), where)
        return vocabulary
    except KeyError as error:
        raise UserError(f"{where} has no {error.args[0]!r}; expected a vocabulary of {stored['kind']}") from None
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _load_counts(counts: Any, size: int, where: str) -> np.ndarray:
    valid = isinstance(counts, list) and all(type(count) is int and 0 <= count < 2**53 for count in counts)
    if not valid or len(counts) != size:
        raise UserError(f"{where}.counts is {short(counts)}; expected {size} integers of at least 0")
    return np.array(counts, np.int64)


def save_points(workdir: pathlib.Path, names: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Writes points.npz: `arrays` under the names in POINTS, and `names` as JSON."""
    path, file = workdir / "points.npz", io.BytesIO()
    members = {"names": np.array(json.dumps(names, ensure_ascii=False)), **arrays}
    np.savez_compressed(file, **members, **{CHECKSUM: np.uint32(_points_checksum(members))})
    try:
        write(path, file.getvalue())
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}") from error


def load_points(workdir: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the members of points.npz: the arrays in POINTS and "names", a JSON text."""
    return _read_points(workdir / "points.npz")[0]


def _read_points(path: pathlib.Path) -> tuple[dict[str, np.ndarray], bool]:
    """Returns (members of points.npz, whether they have a checksum); raises a UserError if the checksum is wrong."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            members = {name: stored[name] for name in ("names", *POINTS)}
            expected = int(stored[CHECKSUM]) if CHECKSUM in stored.files else None
    except FileNotFoundError:
        where = f"{path.parent} is not the work directory of a regression, or lost it"
        raise UserError(f"{path} does not exist: {where}") from None
    except PermissionError as error:
        raise UserError(f"cannot read {path}: {reason(error)}") from error
    except Exception as error:  # any error of zlib, zipfile, struct or numpy for a broken file
        raise UserError(f"cannot read {path}: it is damaged, or no file of points") from error
    if expected is not None and expected != _points_checksum(members):
        raise changed(path)
    return members, expected is not None


def _points_checksum(members: dict[str, np.ndarray]) -> int:
    arrays = {name: checksum(members[name]) for name in POINTS}
    return text_checksum({"names": str(members["names"]), **arrays})


def data_checksum(path: pathlib.Path) -> int:
    """Returns the checksum of the contents of vocabularies.json or points.npz."""
    return _points_checksum(_read_points(path)[0]) if path.suffix == ".npz" else text_checksum(load_checked(path)[0])


def data_checksums(workdir: pathlib.Path) -> dict[str, int]:
    """Returns {name of the file: checksum} for the data files of a work directory."""
    paths = [workdir / name for name in ("vocabularies.json", "points.npz")]
    return {path.name: data_checksum(path) for path in paths if path.exists()}


def has_checksums(workdir: pathlib.Path) -> bool:
    """Tells whether the data files of a work directory have checksums; files of earlier versions have none."""
    vocabularies, points = workdir / "vocabularies.json", workdir / "points.npz"
    checked = [load_checked(vocabularies)[1]] if vocabularies.exists() else []
    checked += [_read_points(points)[1]] if points.exists() else []
    return all(checked)
