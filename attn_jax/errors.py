"""Errors that a user can fix: one line each, printed without a traceback."""

import contextlib
import difflib
import re
import sys
from collections.abc import Iterable, Iterator

# Control characters except the tab, line ends, marks that change the direction of writing, lone surrogates.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class UserError(ValueError):
    """Wrong input from a user. The message is one line: the mistake, its place, expected value, nearest name."""


class Lost(UserError):
    """Loss of another process of the same training; the processes can no longer communicate."""


class Interrupted(Exception):
    """Interruption by a signal after everything was saved. `status` is the exit status, 128 + signal."""

    def __init__(self, number: int):
        super().__init__(f"interrupted by signal {int(number)}")
        self.status = 128 + int(number)


@contextlib.contextmanager
def one_line(program: str) -> Iterator[None]:
    """Ends a script at a UserError: prints its line on standard error and exits with status 1."""
    try:
        yield
    except Interrupted as error:
        sys.exit(error.status)
    except UserError as error:
        sys.exit(f"{program}: {printable(' '.join(str(error).split()))}")


def printable(line: str) -> str:
    """Replaces characters that would control a terminal by visible escapes, such as \\x1b."""

    def escape(match: re.Match) -> str:
        code = ord(match[0])
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"

    return UNPRINTABLE.sub(escape, line)


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns 'did you mean X?' if a known name is close to `name` or begins with it, else the known names."""
    known = sorted(known)
    longer = [other for other in known if other.startswith(f"{name}_")]
    close = dict.fromkeys([*difflib.get_close_matches(name, known, n=1), *longer])
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"


def check_known(name: str, names: Iterable[str], what: str) -> None:
    """Checks that `name` is one of `names`.

    Raises:
        UserError: `name` is unknown; the message gives the nearest name, or all names.
    """
    if name not in names:
        raise UserError(f"unknown {what} {name!r}; {nearest(str(name), names)}")


def lookup(table: dict, name: str, what: str):
    """Returns table[name].

    Raises:
        UserError: `name` is unknown; the message gives the nearest name, or all names.
    """
    check_known(name, table, what)
    return table[name]
