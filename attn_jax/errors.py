"""Errors that are the user's to mend: one clear line, shown without a traceback."""

import contextlib
import difflib
import re
import sys
from collections.abc import Iterable, Iterator

# Control characters but the tab, ends of lines, marks that turn the direction of writing, halves of characters.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class UserError(ValueError):
    """Wrong input from a user. The message is one line: what, where, what was expected, the nearest right thing."""


class Lost(UserError):
    """Another process of a training went away, so that nothing can be agreed upon any more."""


class Interrupted(Exception):
    """The end of work that a signal broke off, everything being saved. `status` of the process: 128 + signal."""

    def __init__(self, number: int):
        super().__init__(f"interrupted by signal {int(number)}")
        self.status = 128 + int(number)


@contextlib.contextmanager
def one_line(program: str) -> Iterator[None]:
    """For a script: a UserError within it ends the process with its one line on standard error and status 1."""
    try:
        yield
    except Interrupted as error:
        sys.exit(error.status)
    except UserError as error:
        sys.exit(f"{program}: {printable(' '.join(str(error).split()))}")


def printable(line: str) -> str:
    """The line with visible escapes, such as \\x1b, for what would act on a terminal instead of being shown by it."""

    def escape(match: re.Match) -> str:
        code = ord(match[0])
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"

    return UNPRINTABLE.sub(escape, line)


def nearest(name: str, known: Iterable[str]) -> str:
    """'did you mean X?' when a known name is close to `name`, else the list of known names."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"


def check_known(name: str, names: Iterable[str], what: str) -> None:
    """UserError that says which names there are, unless `name` is one of them."""
    if name not in names:
        raise UserError(f"unknown {what} {name!r}; {nearest(name, names)}")


def lookup(table: dict, name: str, what: str):
    """table[name], or a UserError that says which names there are."""
    check_known(name, table, what)
    return table[name]
