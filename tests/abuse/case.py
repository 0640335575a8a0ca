"""One attempt at abuse: a command, the files it meets, and what a program of good manners does then."""

import contextlib
import os
import pathlib
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

# Verdicts, the good ones first.
REFUSED, RIGHT = "clean refusal", "accepted rightly"
TRACEBACK, SILENT, UNCLEAR, WRONGLY, SLOW = ("traceback", "silently wrong", "unclear", "refused wrongly", "too slow")
SKIPPED = "skipped"
VERDICTS = (REFUSED, RIGHT, TRACEBACK, SILENT, UNCLEAR, WRONGLY, SLOW, SKIPPED)
GOOD = (REFUSED, RIGHT, SKIPPED)

PREFIX = "launch.py: "
# Control characters act on a terminal; a notice may hold tabs, and a progress bar returns to the start of its line.
RAW = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
PROGRESS = re.compile(r"\r|\x1b\[K")


class Skip(Exception):
    """The machine does not allow the attempt."""


class Result(NamedTuple):
    """The end of a command."""

    code: int
    out: str
    err: str
    slow: bool = False


class Case(NamedTuple):
    """One attempt.

    In argv "{here}" is the case's own folder, "{words}" the work directory of the run of that name, which is to stay as
    it is, and "{words_data}" what it was trained on. A copy of the run named by `run` is {here}/run, of its data
    {here}/data. In words "{here}" has the same meaning.
    """

    section: str
    name: str
    argv: Iterable[str]
    stdin: bytes = b""
    run: str = ""  # of which there is to be a copy
    data: str = ""  # run of whose data there is to be a copy
    prepare: Callable[[pathlib.Path], Any] | None = None  # (here): makes or spoils files
    around: Callable[[pathlib.Path], contextlib.AbstractContextManager] | None = None  # (here): a lock held, say
    words: tuple[str, ...] = ()  # of the one line of a refusal; "a|b": one of them
    check: Callable[[pathlib.Path, Result], str] | None = None  # (here, result): what is wrong with an accepted one
    either: bool = False  # refused, or accepted if `check` has nothing against it
    decoy: str = ""  # words of the refusal of something later: so this was taken
    alone: dict[str, str] | None = None  # a process of its own, with these variables added to the environment
    out: str = ""  # words that are to be on standard output whatever happens then
    stdout: str = ""  # where standard output goes, such as a device

    @property
    def id(self) -> str:
        """The name in lists."""
        return f"{self.section}/{self.name}"

    @property
    def expects(self) -> str:
        """The right ending."""
        return "either" if self.either else "accepted" if self.check else "refused"


def snapshot(folder: pathlib.Path, contents: bool = True) -> dict[str, Any]:
    """Name -> contents (or size and time) of every file below a folder; a link is its target."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        name, status = str(path.relative_to(folder)), path.lstat()
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file() and name.rpartition("/")[2] != "lock":
            found[name] = path.read_bytes() if contents else (status.st_size, status.st_mtime_ns)
    return found


def lost(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names of files that are not as they were; new ones do no harm, but in the folder "mine"."""
    changed = [name for name, content in before.items() if after.get(name) != content]
    return changed + [name for name in after if name not in before and name.startswith("mine/")]


def last_line(err: str) -> str:
    """The last line of standard error."""
    return (err.rstrip("\n").splitlines() or [""])[-1].rsplit("\r", 1)[-1]


def judge(case: Case, here: pathlib.Path, result: Result, harmed: list[str]) -> tuple[str, str]:
    """(verdict, message) of what a command did; `harmed` are the files that it changed and should not have."""
    line = last_line(result.err)
    if result.slow:
        return SLOW, line
    if "Traceback (most recent call last)" in result.err or result.code < 0:
        return TRACEBACK, line or f"signal {-result.code}"
    if harmed:
        return SILENT, f"changed: {', '.join(harmed[:3])}"
    if raw := RAW.search(PROGRESS.sub("", result.err)):
        return UNCLEAR, f"standard error has the control character {raw[0]!r}"
    if result.code == 0:
        if case.check is None:
            return SILENT, f"accepted: {(line or result.out.strip())[:200]}"
        wrong = case.check(here, result)
        return (SILENT, wrong) if wrong else (RIGHT, line)
    if case.decoy and case.decoy in line:
        return SILENT, f"accepted, as only this was refused: {line}"
    if not line.startswith(PREFIX) or result.err.count(PREFIX) != 1:
        return UNCLEAR, f"status {result.code}, not one line: {line[:200]!r}"
    if case.out and case.out not in result.out:
        return UNCLEAR, f"{line} (standard output lacks {case.out!r})"
    missing = [word for word in case.words if not any(part in line for part in fill(word, here).split("|"))]
    if missing:
        return UNCLEAR, f"{line} (lacks {missing[0]!r})"
    if case.expects == "accepted":
        return WRONGLY, line
    return REFUSED, line


def fill(text: str, here: pathlib.Path, **runs: pathlib.Path) -> str:
    """The text with the names of the folders that it means."""
    for name, path in {"here": here, **runs}.items():
        text = text.replace(f"{{{name}}}", str(path))
    return text
