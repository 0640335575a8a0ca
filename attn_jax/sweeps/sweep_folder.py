"""The folder of a sweep: a work directory for each run, and their order."""

import math
import pathlib

from attn_jax.data.files import load_json, save_json
from attn_jax.errors import UserError

ORDER = "sweep.json"


def save_order(folder: pathlib.Path, names: list[str]) -> None:
    """Writes the names of the runs of a sweep, in order; the first one is the baseline."""
    save_json(folder / ORDER, {"runs": names})


def is_sweep(folder: pathlib.Path) -> bool:
    """Tells whether a folder contains work directories, and is none itself."""
    return folder.is_dir() and not (folder / "config.json").exists() and bool(_workdirs(folder))


def runs_of(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the work directories in a folder: the runs of the sweep in its order, then others sorted by name.

    Raises:
        UserError: the file of the order is damaged.
    """
    names: list = []
    if (folder / ORDER).exists():
        names = load_json(folder / ORDER).get("runs", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(f"cannot read {folder / ORDER}: expected the names of the runs in order")
    place = {name: i for i, name in enumerate(names)}
    return sorted(_workdirs(folder), key=lambda path: (place.get(path.name, math.inf), path.name))


def _workdirs(folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in folder.iterdir() if path.is_dir() and (path / "config.json").exists()]
