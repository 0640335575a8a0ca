"""Training in Python: attn_jax.get_config and attn_jax.train do the same as launch.py."""

import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from attn_jax.cli import commands
from attn_jax.notices import notice
from attn_jax.paths import user_path
from attn_jax.runs.checks import check
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.failures import user_errors
from attn_jax.runs.inputs import Files
from attn_jax.runs.lines import changes as described
from attn_jax.runs.load import Loaded, load
from attn_jax.runs.options import change, resolve
from attn_jax.runs.tree import Notes


def get_config(name: str | os.PathLike, changes: Mapping[str, Any] | None = None) -> ConfigDict:
    """Returns a config with some of its options changed.

        config = attn_jax.get_config("quickstart", {"model.attention.score": "dot", "seeds": (0, 1, 2)})

    Args:
        name: a config of the package, such as "quickstart", or the path of a file with a function get_config().
        changes: new values by key, with dots; None: no change. A list stands for a tuple. The name of a part, such as
            {"model.encoder": "gru"}, brings its own keys.

    Raises:
        UserError: there is no such config or key, or a value is wrong; the message is one line.
    """
    changes = {key: _plain(value) for key, value in (changes or {}).items()}
    notes: list[Notes] = []
    config = change(load_config_file(os.fspath(name)), changes, notes)
    if told := str(notes[0]):
        notice(f"{'options':<14}{told}")
    check(resolve(config))
    changed = described(config, [f"{key}={value}" for key, value in changes.items()])
    config.description = f"{config.description}{changed}"
    return config


def _plain(value: Any) -> Any:
    """Converts a value to the types of options: lists to tuples, numpy numbers to Python numbers."""
    if isinstance(value, list | tuple):
        return tuple(_plain(part) for part in value)
    return value.item() if isinstance(value, np.generic) else value


def train(config: ConfigDict | str | os.PathLike, workdir: str | os.PathLike) -> Loaded:
    """Trains a model to the end of its training, evaluates it, and loads it.

        model = attn_jax.train("quickstart", "runs/quickstart")
        model.result["metrics"]["exact_match"]["mean"]

    It prints and writes the same as `launch.py --config=... --workdir=...`: checkpoints, result.json, plots. An
    interrupted run is resumed; a finished run is only loaded.

    Args:
        config: a config, or its name or file.
        workdir: folder of the run, which is created.

    Raises:
        UserError: the config or the data is wrong, or the folder has another run; the message is one line.
        Interrupted: Ctrl-C or SIGTERM; everything was saved, and the same call resumes the run.
    """
    if not isinstance(config, ConfigDict):
        config = get_config(config)
    with user_errors(), jax.enable_x64(False):
        commands.train(resolve(config), user_path(workdir), Files())
    return load(workdir)
