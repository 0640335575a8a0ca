"""Plugins: Python of one's own that enters parts into tables, executed before any name of a config is read.

    config = base.get_config(plugins=("power.py", "my_package.mine"))        # or --config.plugins=power.py

A run keeps their names and, in WORKDIR/plugins, a copy of each file. A later command executes those with --trust only.
"""

import importlib
import os
import pathlib
import sys
from collections.abc import Sequence

from attn_jax.data.files import write
from attn_jax.errors import UserError
from attn_jax.paths import user_path
from attn_jax.runs.python_files import load_file

FOLDER = "plugins"  # of a work directory
_executed: dict[str, pathlib.Path | None] = {}  # name -> file, None for a module


def execute(names: Sequence[str]) -> None:
    """Executes plugins that were not executed before: files for names that end in .py, else modules.

    Raises:
        UserError: there is no such file or module, or it fails.
    """
    for name in names:
        key, path = _key(name), user_path(name) if name.endswith(".py") else None
        if path is None:
            _import(name)
        elif (before := _executed.get(key)) and (_same(before, path) or not path.is_file()):
            continue
        else:
            load_file(path)
        _executed[key] = path


def _import(name: str) -> None:
    if os.getcwd() not in sys.path:  # as for a script there
        sys.path.append(os.getcwd())
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UserError(f"plugins {name}: no module {error.name}; expected a module, or a file such as a.py") from None
    except Exception as error:  # any fault in the user's own code
        raise UserError(f"plugins {name}: {type(error).__name__}: {error}") from error


def check_executed(names: Sequence[str], workdir: pathlib.Path, trust: bool) -> tuple[str, ...]:
    """Returns the plugins of a stored run, each by the file that was executed; executes them if the run is trusted.

    A path in the run is never followed, since the run may be a stranger's: a file counts by its content.

    Raises:
        UserError: a plugin has not been executed, or its file is not the one that the run was begun with.
    """
    if trust:
        execute([str(workdir / FOLDER / _key(name)) if name.endswith(".py") else name for name in names])
    found = []
    for name in names:
        if (key := _key(name)) not in _executed:
            raise UserError(
                f"{workdir} was trained with {name}, which is Python: read it, then --trust (in Python load(..., "
                "trust=True)) executes it"
            )
        path, copy = _executed[key], workdir / FOLDER / key
        if path is not None and not _same(path, copy):
            raise UserError(
                f"{path} has changed since {workdir} was begun with it (see {copy}); put it back, or choose another "
                "--workdir"
            )
        found.append(name if path is None else str(path))
    return tuple(found)


def save(names: Sequence[str], workdir: pathlib.Path) -> None:
    """Copies the files of plugins to the work directory of a new run."""
    for path in filter(None, (_executed[_key(name)] for name in names)):
        if not _same(path, copy := workdir / FOLDER / path.name):
            copy.parent.mkdir(parents=True, exist_ok=True)
            write(copy, path.read_bytes())


def _same(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Tells whether two files have the same content."""
    return one.is_file() and other.is_file() and one.read_bytes() == other.read_bytes()


def _key(name: str) -> str:
    """Returns the name of a plugin in every place that its file may have."""
    return pathlib.PurePath(name).name if name.endswith(".py") else name
