"""Paths given by a user."""

import os
import pathlib


def expanded(path: str) -> str:
    """Replaces ~ or ~NAME in a user's path by the home folder; a shell does not replace it after "="."""
    return os.path.expanduser(path)


def user_path(path: str | os.PathLike) -> pathlib.Path:
    """Returns a user's path as a Path, see `expanded`."""
    return pathlib.Path(expanded(os.fspath(path)))
