"""Work directories: config.json, vocabularies.json (or points.npz) and checkpoints/ of a run.

Together they suffice to resume training, and to evaluate, predict and plot without the training data. Each file has a
checksum, and a checkpoint stores the config and the checksums of the data that its parameters were trained with.
config.json has the version of the package; a directory of one before OLDEST is refused. Options that were added later
take their defaults.
"""

import json
import math
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from attn_jax.cli.options import change, default_config, is_known, schema, schema_of
from attn_jax.errors import UserError
from attn_jax.models.families import FAMILIES
from attn_jax.options import Option, flatten
from attn_jax.tasks import TASKS
from attn_jax.tasks.data_files import data_checksum
from attn_jax.tasks.files import (
    check_links,
    is_text,
    load_checked,
    save_checked,
    short,
)
from attn_jax.training.progress import notice
from attn_jax.version import VERSION

KEY, OLDEST = "version", (0, 2)  # of config.json; first version whose runs open
SECTIONS = ("task", "model", "train", "optimizer", "decode", "eval")  # of config.json, in every version
KINDS = {bool: "true or false", int: "an integer", float: "a number", tuple: "a list", str: "a text"}
LENGTHS = ("train.num_steps", "train.num_epochs")  # of the training


def plain(config: ConfigDict) -> dict:
    """Returns the config as plain JSON values, where tuples become lists, with the version of the package."""
    return json.loads(config.to_json_best_effort()) | {KEY: VERSION}


def save_config(workdir: pathlib.Path, config: ConfigDict) -> None:
    """Writes config.json."""
    save_checked(workdir / "config.json", plain(config))


def load_config(workdir: pathlib.Path) -> ConfigDict:
    """Loads the config of a work directory; missing options take their defaults.

    Raises:
        UserError: config.json is missing, damaged, changed or a link, or a value has the wrong type.
    """
    check_links(workdir)
    stored, _ = _stored_config(workdir)
    return change(default_config(stored["task.name"], stored["model.name"]), stored)


def _stored_config(workdir: pathlib.Path) -> tuple[dict[str, Any], list[str]]:
    """Reads config.json; returns (options by key, unknown keys)."""
    path = workdir / "config.json"
    stored, _ = load_checked(path)
    version = stored.pop(KEY, "0.1")
    if not opens(version):
        raise UserError(
            f"{workdir} was made by attn_jax {short(version)}, whose runs {VERSION} does not open; train it again, "
            "or use the version that made it"
        )
    if missing := [section for section in SECTIONS if section not in stored]:
        raise UserError(f"cannot read {path}: it has no section {missing[0]!r}; expected the config of a run")
    for section in SECTIONS:
        if not isinstance(stored[section], dict):
            raise UserError(f"cannot read {path}: {section} is {short(stored[section])}; expected a section of options")
    for section, table in (("task", TASKS), ("model", FAMILIES)):
        name = stored[section].get("name")
        if not isinstance(name, str) or name not in table:
            raise UserError(f"cannot read {path}: {section}.name is {short(name)}; expected one of {', '.join(table)}")
    return known_options(stored, f"cannot read {path}: ")


def known_options(stored: dict[str, Any], where: str = "") -> tuple[dict[str, Any], list[str]]:
    """Separates the options of a stored config from unknown keys.

    Args:
        stored: content of config.json.
        where: beginning of messages.

    Returns:
        (options of its task and family, by key; keys that no task and no family has).

    Raises:
        UserError: a value has the wrong type, or is a section.
    """
    options, flat, others = schema_of(stored), {}, []
    for key, value in _leaves(stored, options):
        if key in options:
            if not _fits(value, options[key]):
                raise UserError(f"{where}{key} is {short(value)}; expected {KINDS[options[key].kind]}")
            flat[key] = _tuples(value)
        elif any(option.startswith(f"{key}.") for option in options):
            raise UserError(f"{where}{key} is {short(value)}; expected a section of options")
        elif key != KEY:
            others.append(key)
    return flat, [key for key in others if not is_known(key)]


def opens(version: Any) -> bool:
    """Tells whether a run of this version can be opened: the parameters of earlier ones have other places."""
    found = re.match(r"(\d+)\.(\d+)", version) if isinstance(version, str) else None
    return found is not None and tuple(map(int, found.groups())) >= OLDEST


def _leaves(stored: dict[str, Any], options: Mapping[str, Option], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (key, value) for all stored values; a dict under the key of an option counts as a value."""
    for name, value in stored.items():
        if isinstance(value, dict) and prefix + name not in options:
            yield from _leaves(value, options, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _fits(value: Any, option: Option) -> bool:
    """Returns whether a JSON value has the type of an option."""
    if value is None:
        return option.default is None
    if option.kind is float:
        return type(value) is float or (type(value) is int and abs(value) <= sys.float_info.max)
    if option.kind is tuple:
        return type(value) is list and all(map(_is_part, value))
    return is_text(value) if option.kind is str else type(value) is option.kind


def _is_part(value: Any) -> bool:
    """Returns whether a JSON value can be part of a tuple."""
    if type(value) is list:
        return all(map(_is_part, value))
    return type(value) in (bool, int, float) or is_text(value)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def holds(workdir: pathlib.Path, config: ConfigDict) -> bool:
    """Returns whether the work directory holds a run of this config.

    A run without a checkpoint does not count, since nothing of it could be lost. Options added since the run began
    take their defaults; a removed option gives a notice.

    Raises:
        UserError: it holds a run of another config.
    """
    path = workdir / "config.json"
    if not any(entry.name.isdigit() for entry in (workdir / "checkpoints").glob("*")):
        return False
    if not path.exists():
        raise UserError(
            f"{workdir} has checkpoints but no config.json, so it is not known what they are of; put it back, or "
            "choose another --workdir"
        )
    stored, unknown = _stored_config(workdir)
    if different := _difference(stored, flatten(config), schema_of(config)):
        raise other(workdir, *different)
    if unknown:
        notice(f"{'config':<14}{', '.join(unknown[:3])} of {path}: there is no such option any more; left out")
    return True


def check_model(workdir: pathlib.Path, config: ConfigDict) -> None:
    """Checks that the config describes the trained model; parameters can fit another model and mean something else.

    Raises:
        UserError: an option of the model or a seed differs.
    """
    stored, _ = _stored_config(workdir)
    if different := _difference(stored, flatten(config), schema_of(config), ("model.", "seed")):
        raise other(workdir, *different)


def check_result(workdir: pathlib.Path, config: ConfigDict) -> None:
    """Checks that a finished run is of this config, decoding and metrics included.

    Raises:
        UserError: an option differs that changes a number of its result.
    """
    stored, _ = _stored_config(workdir)
    if different := _difference(stored, flatten(config), schema_of(config), affects=("training", "results")):
        raise other(workdir, *different)


def measured_otherwise(workdir: pathlib.Path, config: ConfigDict) -> tuple[str, Any, Any] | None:
    """Returns (key, value of the finished run, value now) of a different option of decoding or metrics, else None."""
    stored, _ = _stored_config(workdir)
    return _difference(stored, flatten(config), schema_of(config), ("decode.", "eval."), ("results",))


def check_cut(workdir: pathlib.Path, config: ConfigDict, names: Sequence[str]) -> None:
    """Checks that a split that is cut off the training data is the one that the training left out.

    Args:
        workdir: of the trained run.
        config: of the measurement.
        names: options of the task that decide which examples are held out.

    Raises:
        UserError: one of them differs.
    """
    stored, _ = _stored_config(workdir)
    keys = tuple(f"task.{name}" for name in names)
    if different := _difference(stored, flatten(config), schema_of(config), keys):
        key, before, now = different
        raise UserError(
            f"{key} is {before!r} in the training and {now!r} here, which holds out other examples, some of which the "
            f"model was trained on; leave {key} as it was, or name files: --source and --target, or task.test"
        )


def check_checkpoint(workdir: pathlib.Path, step: int, config: dict, sums: dict[str, int]) -> None:
    """Checks that config.json and vocabularies.json (or points.npz) belong to a checkpoint.

    Args:
        workdir: the work directory.
        step: step of the checkpoint.
        config: config in the checkpoint.
        sums: `data_checksums` in the checkpoint; {} for an earlier version.

    Raises:
        UserError: a file has changed.
    """
    stored, _ = _stored_config(workdir)
    trained = {key: _tuples(value) for key, value in known_options(config)[0].items()}
    if different := _difference(stored, trained, schema(stored["task.name"], stored["model.name"])):
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
    before: dict[str, Any],
    now: dict[str, Any],
    options: dict[str, Option],
    only: tuple[str, ...] = ("",),
    affects: tuple[str, ...] = ("training",),
) -> tuple[str, Any, Any] | None:
    """Returns (key, value before, value now) of the first different option that affects so much, else None.

    Missing options take their defaults.
    """
    names = ("task.name", "model.name")
    for key in (*names, *sorted(options.keys() - set(names))):
        option = options[key]
        a, b = (_plain(values.get(key, option.default)) for values in (before, now))
        both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
        if key.startswith(only) and option.affects in affects and a != b and not both_nan:
            return key, a, b
    return None


def _plain(value: Any) -> Any:
    """Returns a value as plain JSON: tuples become lists."""
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


def other(workdir: pathlib.Path, key: str, before: Any, now: Any) -> UserError:
    """Returns the error for a work directory of another config."""
    # More steps are another run, since the schedule of the learning rate ends with the last one.
    longer = f" (--config.train.start_from={workdir} begins with its parameters)" if key in LENGTHS else ""
    return UserError(
        f"{workdir} holds the run of another config: {key} is {before!r} there and {now!r} here; choose another "
        f"--workdir{longer}, or leave it as it was"
    )
