"""Work directories: a run's config.json, vocabularies.json (or points.npz) and checkpoints/ are enough to go on with
the training, or to evaluate, translate and draw, without the training data.

Each of these files has its own checksum, and a checkpoint remembers the config and the checksums of the data that its
parameters were trained with. Directories of earlier versions have no checksums; of their files the config alone is
compared with the checkpoint. They lack the options that were added since, whose defaults mean what was before.
"""

import contextlib
import errno
import fcntl
import json
import math
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from ml_collections import ConfigDict

from attn_jax.errors import UserError
from attn_jax.tasks.data_files import data_checksum
from attn_jax.tasks.files import (
    check_links,
    clear_partial,
    is_text,
    load_checked,
    open_plain,
    reason,
    save_checked,
    short,
)
from attn_jax.training.progress import notice

# What may differ between a run and its continuation: nothing of this changes what is trained.
MAY_CHANGE = ("name", "description", "data_dir", "parallel", "decode.", "eval.", "train.log_every", "train.keep")
MAY_CHANGE += ("model.attention.k_max",)  # of evaluation and decoding alone
SECTIONS = ("task", "model", "train", "optimizer", "decode", "eval")  # of a config.json of any version
KINDS = {bool: "true or false", int: "an integer", float: "a number", tuple: "a list", str: "a text"}


def plain(config: ConfigDict) -> dict:
    """The config as JSON has it: tuples are lists."""
    return json.loads(config.to_json_best_effort())


def flatten(config: dict, prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    flat = {}
    for key, value in config.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def save_config(workdir: pathlib.Path, config: ConfigDict) -> None:
    """Writes config.json."""
    save_checked(workdir / "config.json", plain(config))


def load_config(workdir: pathlib.Path, base: ConfigDict) -> ConfigDict:
    """The config of a work directory; what it lacks is that of `base`, every option with its default.

    Raises:
        UserError: config.json is missing, damaged, changed, a link, or has a value of another type than the default.
    """
    check_links(workdir)
    stored, _ = _stored_config(workdir, base)
    config = base.copy_and_resolve_references()
    with config.unlocked():
        config.update_from_flattened_dict({key: _tuples(value) for key, value in stored.items()})
    return config


def _stored_config(workdir: pathlib.Path, base: ConfigDict) -> tuple[dict[str, Any], list[str]]:
    """(The values in config.json of the keys of `base`, flat; the other keys there)."""
    path = workdir / "config.json"
    stored, _ = load_checked(path)
    flat, unknown = {}, []
    if missing := [section for section in SECTIONS if section in base and section not in stored]:
        raise UserError(f"cannot read {path}: it has no section {missing[0]!r}; expected the config of a run")

    def walk(stored: dict, base: dict, prefix: str) -> None:
        for name, value in stored.items():
            key = prefix + name
            if name not in base:
                unknown.append(key)
            elif isinstance(base[name], dict) and isinstance(value, dict):
                walk(value, base[name], f"{key}.")
            elif isinstance(base[name], dict):
                raise UserError(f"cannot read {path}: {key} is {short(value)}; expected a section of options")
            elif not _fits(value, base[name]):
                kind = KINDS.get(type(base[name]), type(base[name]).__name__)
                raise UserError(f"cannot read {path}: {key} is {short(value)}; expected {kind}")
            else:
                flat[key] = value

    walk(stored, base.to_dict(), "")
    return flat, unknown


def _fits(value: Any, default: Any) -> bool:
    """Whether a value of JSON is of the type of a default."""
    if isinstance(default, float):
        return type(value) is float or (type(value) is int and abs(value) <= sys.float_info.max)
    if isinstance(default, tuple):
        return type(value) is list and all(
            _fits(part, ()) if type(part) is list else type(part) in (bool, int, float) or is_text(part)
            for part in value
        )
    return is_text(value) if isinstance(default, str) else type(value) is type(default)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def holds(workdir: pathlib.Path, config: ConfigDict, base: ConfigDict) -> bool:
    """Tells whether the work directory holds a run of this config; a UserError if it holds the run of another one.

    A run without a checkpoint is none: it failed before there was anything to lose. `base` has every option with its
    default, which counts where an option was added since the run began. Of one that is gone a notice is given.
    """
    path = workdir / "config.json"
    if not any(entry.name.isdigit() for entry in (workdir / "checkpoints").glob("*")):
        return False
    if not path.exists():
        raise UserError(
            f"{workdir} has checkpoints but no config.json, so it is not known what they are of; put it back, or "
            "choose another --workdir"
        )
    stored, unknown = _stored_config(workdir, base)
    if different := _difference(stored, flatten(plain(config)), base):
        raise other(workdir, *different)
    if unknown:
        notice(f"{'config':<14}{', '.join(unknown[:3])} of {path}: there is no such option any more; left out")
    return True


def check_model(workdir: pathlib.Path, config: ConfigDict, base: ConfigDict) -> None:
    """UserError if a trained model is to be used as another one: its parameters might fit and mean something else."""
    stored, _ = _stored_config(workdir, base)
    if different := _difference(stored, flatten(plain(config)), base, ("model.", "seed")):
        raise other(workdir, *different)


def check_checkpoint(workdir: pathlib.Path, base: ConfigDict, step: int, config: dict, sums: dict[str, int]) -> None:
    """UserError if config.json, vocabularies.json or points.npz is not the one of a checkpoint.

    Args:
        workdir: the work directory.
        base: every option with its default.
        step: of the checkpoint.
        config: of the checkpoint.
        sums: of the checkpoint, `data_checksums` when it was saved; {} if it is of an earlier version.
    """
    stored, _ = _stored_config(workdir, base)
    if different := _difference(stored, flatten(config), base):
        key, here, there = different
        raise UserError(
            f"{workdir / 'config.json'} is not that of the run: {key} is {short(here)}, but {short(there)} in "
            f"checkpoint {step}; put it back as it was, and set options on the command line: --config.key=value"
        )
    for name, expected in sums.items():
        if data_checksum(workdir / name) != expected:
            raise UserError(
                f"{workdir / name} is not that of the run: checkpoint {step} was trained with another one; put it "
                "back as it was"
            )


def _difference(
    before: dict[str, Any], now: dict[str, Any], base: ConfigDict, only: tuple[str, ...] = ("",)
) -> tuple[str, Any, Any] | None:
    """The first key that may not change and does, with its two values; of a key that is missing it is the default."""
    for key, default in sorted(flatten(plain(base)).items()):
        a, b = before.get(key, default), now.get(key, default)
        both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
        if key.startswith(only) and not key.startswith(MAY_CHANGE) and a != b and not both_nan:
            return key, a, b
    return None


def other(workdir: pathlib.Path, key: str, before: Any, now: Any) -> UserError:
    """The error of a work directory that is not one of this config."""
    return UserError(
        f"{workdir} holds the run of another config: {key} is {before!r} there and {now!r} here; choose another "
        "--workdir, or leave it as it was"
    )


@contextlib.contextmanager
def claim(workdir: pathlib.Path) -> Iterator[TextIO]:
    """Locks a work directory, and keeps it locked, unless there is an error within: then it is left as it was.

    Raises:
        UserError: as check_links and lock.
    """
    check_links(workdir)
    new = [folder for folder in (workdir, *workdir.parents) if not folder.exists()]
    locked_before = (workdir / "lock").exists()
    file = lock(workdir)
    try:
        clear_partial(workdir)
        yield file
    except BaseException:
        if not locked_before:
            (workdir / "lock").unlink(missing_ok=True)
        file.close()
        with contextlib.suppress(OSError):  # not empty: what was written stays
            for folder in new:
                folder.rmdir()
        raise


def lock(workdir: pathlib.Path) -> TextIO:
    """Keeps other processes from training in the work directory until this one ends, or the file is closed.

    Raises:
        UserError: another process has it, or nothing can be written there.
    """
    path = workdir / "lock"
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        file = open_plain(path)  # to which nothing is ever written: it may be a second name of another file
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):  # another process gave it up just now
            file.close()
            return lock(workdir)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise UserError(f"{workdir} is in use: another process is training there") from None
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):  # a file system without locks
            raise UserError(f"cannot write {workdir}: {reason(error)}") from error
    return file
