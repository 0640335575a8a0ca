"""Every file of a checkpoint, damaged in turn: noticed, never loaded, and an older checkpoint is read in its place."""

import contextlib
import io
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from runs_killed import Outcome, since

from attn_jax.training.checkpoints import Checkpoints
from attn_jax.training.pytrees import flatten, to_numpy

PLACES = (0.1, 0.5, 0.9)  # of a file, where a bit is flipped


def flipped(content: bytes, place: float) -> bytes:
    """The content with one bit flipped."""
    if not content:
        return b"\x01"
    changed = bytearray(content)
    changed[int(place * (len(content) - 1))] ^= 1 << (len(content) % 8)
    return bytes(changed)


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    **{f"a bit flipped at {place:.0%}": lambda content, place=place: flipped(content, place) for place in PLACES},
    "cut in half": lambda content: content[: len(content) // 2],
    "emptied": lambda content: b"",
    "deleted": lambda content: None,
}


def steps_of(directory: pathlib.Path) -> list[int]:
    """The steps of the checkpoints in a directory, in order."""
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())


def read(directory: pathlib.Path, target: Any) -> tuple[int, list[bytes], str]:
    """(step, arrays, notices) of the newest sound checkpoint."""
    told = io.StringIO()
    with contextlib.redirect_stderr(told), Checkpoints(directory, read_only=True) as checkpoints:
        found = checkpoints.restore(target)
    return found.step, contents(found.state), told.getvalue()


def contents(state: Any) -> list[bytes]:
    """The bytes of all arrays, in order of their names."""
    return [np.asarray(to_numpy(x)).tobytes() for _, x in sorted(flatten(state).items())]


def damaged(directory: pathlib.Path, target: Any) -> Iterator[tuple[str, str, bool, str]]:
    """Damages each file of the newest checkpoint in each way; the file is then put back.

    Args:
        directory: of at least two checkpoints.
        target: a state of the same structure.

    Yields:
        (file, damage, whether it was noticed, what was wrong or "").
    """
    *_, older, newest = steps_of(directory)
    _, good, _ = read(directory, target)
    shutil.move(directory / str(newest), directory.parent / "aside")
    _, before, _ = read(directory, target)
    shutil.move(directory.parent / "aside", directory / str(newest))
    for path in sorted(path for path in (directory / str(newest)).rglob("*") if path.is_file()):
        content = path.read_bytes()
        for how, damage in DAMAGES.items():
            spoilt = damage(content)
            if spoilt == content:
                continue
            path.unlink()
            if spoilt is not None:
                path.write_bytes(spoilt)
            step, found, told = read(directory, target)
            path.write_bytes(content)
            noticed, wrong = step != newest, ""
            if noticed:
                said = f"/{newest} is damaged" in told and f"going on from step {older}" in told
                wrong = "" if (step, found) == (older, before) and said else f"read step {step}: {told.strip()[-200:]}"
            elif found != good:
                wrong = "loaded, though it differs"
            yield str(path.relative_to(directory)), how, noticed, wrong


def outcomes(workdir: pathlib.Path, folder: pathlib.Path) -> list[Outcome]:
    """A line for each way to damage a file, on a copy of the checkpoints of a run."""
    directory = folder / "damaged" / "checkpoints"
    shutil.copytree(workdir / "checkpoints", directory)
    with Checkpoints(directory, read_only=True) as checkpoints:
        target = checkpoints._read(checkpoints.latest_step()).state
    began, counts = time.monotonic(), {}
    for file, how, noticed, wrong in damaged(directory, target):
        kind = "a bit flipped" if how.startswith("a bit") else how
        times, seen, notes = counts.setdefault(kind, [0, 0, []])
        counts[kind] = [times + 1, seen + noticed, [*notes, *([f"{file} {how}: {wrong}"] if wrong else [])]]
    seconds = since(began) / len(counts)
    return [
        Outcome(
            f"each file of a checkpoint {kind}; noticed {seen}, the others in files that nothing is read from",
            times,
            times - len(notes),
            "never loaded; the checkpoint before it is read, and a line says so",
            round(seconds, 1),
            tuple(notes),
        )
        for kind, (times, seen, notes) in counts.items()
    ]
