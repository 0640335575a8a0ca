"""Work directories: config.json, vocabularies.json (or points.npz) and checkpoints/ of a run.

Together they suffice to resume training, and to evaluate, predict and plot without the training data. Each file has a
checksum, and a checkpoint stores the config and the checksums of the data that its parameters were trained with.
config.json has the version of the package; a directory of a version before OLDEST is refused. Options that were added
later take their defaults.
"""

import json
import math
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from attn_jax.data.data_files import data_checksum
from attn_jax.data.files import (
    check_links,
    load_checked,
    save_checked,
    short,
)
from attn_jax.errors import UserError
from attn_jax.notices import notice
from attn_jax.parts import Option
from attn_jax.runs import plugins
from attn_jax.runs.options import RunOptions, schema_of
from attn_jax.runs.tree import as_tuple, flatten, resolve_tree
from attn_jax.version import VERSION

KEY = "version"  # of config.json
OLDEST = (0, 2, 0, 2)  # first version whose runs open: 0.2.0.dev2
SECTIONS = ("task", "model", "train", "optimizer", "decode", "eval")  # of config.json, in every version
LENGTHS = ("train.num_steps", "train.num_epochs")  # options of the length of training


def plain(config: ConfigDict) -> dict:
    """Returns the config as plain JSON values, where tuples become lists, with the version of the package."""
    return json.loads(config.to_json_best_effort()) | {KEY: VERSION}


def save_config(workdir: pathlib.Path, config: ConfigDict) -> None:
    """Writes config.json, and copies of plugins."""
    plugins.save(config.plugins, workdir)
    save_checked(workdir / "config.json", plain(config))


def load_config(workdir: pathlib.Path, trust: bool = False) -> ConfigDict:
    """Loads the config of a work directory; missing options take their defaults.

    Args:
        workdir: work directory.
        trust: execute the plugins of the run, if it has some; else they must have been executed before.

    Raises:
        UserError: config.json is missing, damaged, changed or a link, a value has the wrong type, or a plugin was not
            executed.
    """
    check_links(workdir)
    return _stored_config(workdir, trust)[0]


def _stored_config(workdir: pathlib.Path, trust: bool = False) -> tuple[ConfigDict, list[str]]:
    """Reads config.json; returns (config, unknown keys)."""
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
    if names := as_tuple(stored.get("plugins", ())):
        stored["plugins"] = plugins.check_executed(names, workdir, trust)
    return stored_tree(stored, f"cannot read {path}: ")


def stored_tree(stored: dict[str, Any], where: str = "") -> tuple[ConfigDict, list[str]]:
    """Completes a stored config.

    Args:
        stored: content of config.json.
        where: beginning of messages.

    Returns:
        (config, keys that no part has).

    Raises:
        UserError: a value has the wrong type, or a name is unknown.
    """
    try:
        config, notes = resolve_tree(RunOptions, stored, lenient=True)
    except UserError as error:
        raise UserError(f"{where}{error}") from error
    return config, [key for key in notes.unknown if key != KEY]


def opens(version: Any) -> bool:
    """Tells whether a run of this version can be opened; earlier versions stored parameters at other paths."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.dev(\d+))?", version) if isinstance(version, str) else None
    if found is None:
        return False
    major, minor, patch, dev = found.groups()
    return (int(major), int(minor), int(patch or 0), math.inf if dev is None else int(dev)) >= OLDEST


def holds(workdir: pathlib.Path, config: ConfigDict) -> bool:
    """Tells whether the work directory holds a run of this config, of any length: see training.check_length.

    A run without a checkpoint does not count, since there is nothing to lose. Options added since the run began take
    their defaults; a removed option gives a notice.

    Raises:
        UserError: the directory holds a run of another config.
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
    if different := _difference(stored, config, without=LENGTHS):
        raise other(workdir, *different)
    if unknown:
        notice(f"{'config':<14}{', '.join(unknown[:3])} of {path}: there is no such option any more; left out")
    return True


def length_before(workdir: pathlib.Path, config: ConfigDict) -> tuple[str, Any, Any] | None:
    """Returns (key, value there, value here) of an option of the length of training that is another one, else None."""
    return _difference(_stored_config(workdir)[0], config, LENGTHS)


def check_model(workdir: pathlib.Path, config: ConfigDict) -> None:
    """Checks that the config describes the trained model; the parameters could fit another model by chance.

    Raises:
        UserError: an option of the model or a seed differs.
    """
    stored, _ = _stored_config(workdir)
    if different := _difference(stored, config, ("model.", "seed")):
        raise other(workdir, *different)


def check_result(workdir: pathlib.Path, config: ConfigDict) -> None:
    """Checks that a finished run has this config, decoding and metrics included.

    Raises:
        UserError: an option differs that affects the numbers of the result.
    """
    stored, _ = _stored_config(workdir)
    if different := _difference(stored, config, affects=("training", "results")):
        raise other(workdir, *different)


def measured_otherwise(workdir: pathlib.Path, config: ConfigDict) -> tuple[str, Any, Any] | None:
    """Returns (key, value of the finished run, value now) of a changed option of decoding or metrics, else None."""
    stored, _ = _stored_config(workdir)
    return _difference(stored, config, ("decode.", "eval.", "task."), ("results",))


def check_cut(workdir: pathlib.Path, config: ConfigDict, names: Sequence[str]) -> None:
    """Checks that a split that is cut off the training data has the examples that training left out.

    Args:
        workdir: work directory of the trained run.
        config: config of the measurement.
        names: options of the task that determine the held-out examples.

    Raises:
        UserError: one of the options differs.
    """
    stored, _ = _stored_config(workdir)
    keys = tuple(f"task.{name}" for name in names)
    if different := _difference(stored, config, keys):
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
    if different := _difference(stored, stored_tree(config)[0], without=LENGTHS):
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
    before: ConfigDict,
    now: ConfigDict,
    only: tuple[str, ...] = ("",),
    affects: tuple[str, ...] = ("training",),
    without: tuple[str, ...] = (),
) -> tuple[str, Any, Any] | None:
    """Returns (key, value before, value now) of the first changed option whose `affects` is listed, else None.

    Names come first, outermost first, since the other keys depend on them.
    """
    options: dict[str, Option] = schema_of(before) | schema_of(now)
    values = flatten(before), flatten(now)

    def rank(key: str) -> tuple[bool, int, str]:
        named = key.endswith((".name", ".pattern"))
        return not named, key.count(".") if named else 0, key

    for key in sorted(options, key=rank):
        option = options[key]
        a, b = (_plain(of.get(key, option.default)) for of in values)
        both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
        if key.startswith(only) and key not in without and option.affects in affects and a != b and not both_nan:
            return key, a, b
    return None


def _plain(value: Any) -> Any:
    """Returns a value as plain JSON: tuples become lists."""
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


def other(workdir: pathlib.Path, key: str, before: Any, now: Any) -> UserError:
    """Returns the error for a work directory that holds another config."""
    return UserError(
        f"{workdir} holds the run of another config: {key} is {before!r} there and {now!r} here; choose another "
        "--workdir, or leave it as it was"
    )
