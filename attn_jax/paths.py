"""Paths that a user gives."""

import os
import pathlib


def expanded(path: str) -> str:
    """Returns a path that a user gave, with the home folder for ~ or ~NAME, which a shell leaves alone after "="."""
    return os.path.expanduser(path)


def user_path(path: str | os.PathLike) -> pathlib.Path:
    """Returns a path that a user gave, see `expanded`."""
    return pathlib.Path(expanded(os.fspath(path)))
