"""Files named on the command line, and lines of input."""

import sys
from collections.abc import Iterable
from typing import NamedTuple

from attn_jax.data.text import decode
from attn_jax.errors import UserError


class Files(NamedTuple):
    """Files and overrides of the command line; "" if not given.

    Without `source`, predict reads standard input. result.json stores the overrides as written.
    """

    source: str = ""
    target: str = ""
    overrides: tuple[str, ...] = ()
    gold: str = ""  # true alignments, for analyze
    num_examples: int = 50  # of a report
    baseline: str = ""  # work directory, for compare
    measured: str = "result"  # numbers that compare reads, "result" (after training) or "eval"
    split: str = ""  # of the run's data, for eval, analyze and report
    notes: str = ""  # on options that new names of parts kept or dropped, for train


def lines_of(files: Files) -> Iterable[str]:
    """Yields the lines of --source or of standard input, including empty lines.

    Raises:
        UserError: the file is missing or unreadable; while reading, if there is no line, or a line is not UTF-8.
    """
    if not files.source and sys.stdin is None:
        raise UserError("standard input is closed; give --source=FILE")
    if not files.source:
        return _some(decoded(sys.stdin.buffer, "standard input"), "standard input")
    try:
        stream = open(files.source, "rb")
    except OSError as error:
        raise UserError(f"{files.source}: {error.strerror.lower()}") from error
    return _some(decoded(stream, files.source), files.source)


def _some(lines: Iterable[str], name: str) -> Iterable[str]:
    """Yields the lines; raises a UserError if there is none, since a command before a pipe may have failed."""
    line = None
    for line in lines:
        yield line
    if line is None:
        raise UserError(f"{name} is empty; expected one input per line")


def decoded(stream: Iterable[bytes], name: str) -> Iterable[str]:
    """Yields lines without line ends, and without a byte order mark before the first line."""
    for number, raw in enumerate(stream, 1):
        yield decode(raw, name, number).rstrip("\r\n")
