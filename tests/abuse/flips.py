"""Single bits flipped in every file that a trained model is read from: refused, or all that is read is as it was.

Two hundred in each of config.json, vocabularies.json and points.npz, and ten in each file of a checkpoint, are read in
this process; ten of each of the three go through the command line. The places are the same each time.
"""

import pathlib
import re
import shutil
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from case import REFUSED, RIGHT, SILENT, TRACEBACK, UNCLEAR, Case
from checkpoints import same_or_told, steps_of
from sandbox import Sandbox
from workdirs import asked

FILES = {"config.json": "words", "vocabularies.json": "words", "points.npz": "table"}  # and the run it is of
COUNT, COUNT_CHECKPOINT, COUNT_COMMANDS = 200, 10, 10


def cases() -> list[Case]:
    """The commands."""
    return [
        asked("flip_commands", f"{file} {number}", run, flips(file, number), file)._replace(
            either=True, check=same_or_told(run), words=()
        )
        for file, run in FILES.items()
        for number in range(COUNT_COMMANDS)
    ]


def flips(file: str, number: int) -> Callable:
    """A preparation: the file of the copy with its flip of this number."""

    def prepare(here: pathlib.Path) -> None:
        path = here / "run" / file
        path.write_bytes(flipped(path.read_bytes(), number))

    return prepare


def flipped(content: bytes, number: int) -> bytes:
    """The content with one bit flipped."""
    rng = np.random.default_rng((2026, number))
    place, bit = rng.integers(max(len(content), 1)), rng.integers(8)
    changed = bytearray(content)
    if changed:
        changed[place] ^= 1 << int(bit)
    return bytes(changed)


def wanted(pattern: re.Pattern) -> bool:
    """Whether any of what `run` tries is chosen."""
    return any(pattern.search(f"{section}/") for section in ("flips", "checkpoint_files"))


def run(box: Sandbox, pattern: re.Pattern) -> Iterator[dict]:
    """The results of all that is tried in this process."""
    where = box.folder / "flips"
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    for file, name in FILES.items() if pattern.search("flips/") else ():
        folder = where / name
        shutil.copytree(box.runs[name], folder, dirs_exist_ok=True)
        content, good = (folder / file).read_bytes(), read(folder, file)
        for number in range(COUNT):
            (folder / file).write_bytes(flipped(content, number))
            yield result(f"flips/{file} {number}", lambda f=folder, file=file, good=good: tried(f, file, good), folder)
        (folder / file).write_bytes(content)
    for name in ("words", "table") if pattern.search("checkpoint_files/") else ():
        folder = where / f"{name}_checkpoint"
        shutil.copytree(box.runs[name], folder)
        steps = steps_of(box.runs[name].parent)
        steps = [folder / "checkpoints" / step.name for step in steps]
        for step in steps[:-1]:
            shutil.rmtree(step)
        good = read_checkpoint(folder)
        for path in sorted(path for path in steps[-1].rglob("*") if path.is_file()):
            content, short = path.read_bytes(), path.relative_to(steps[-1])
            spoilt = [(f"flip {number}", flipped(content, number)) for number in range(COUNT_CHECKPOINT)]
            for how, data in [*spoilt, ("cut", content[: len(content) // 2]), ("empty", b""), ("deleted", None)]:
                path.unlink()
                if data is not None:
                    path.write_bytes(data)
                attempt = lambda f=folder, good=good: tried_checkpoint(f, good)  # noqa: E731
                yield result(f"checkpoint_files/{name} {short} {how}", attempt, folder)
                path.write_bytes(content)


def result(name: str, attempt: Callable[[], tuple[str, str]], folder: pathlib.Path) -> dict:
    """As of a case: what an attempt came to, an error that is no user's error counting as a traceback."""
    from attn_jax.errors import UserError

    try:
        verdict, message = attempt()
    except UserError as error:
        verdict, message = (UNCLEAR if "\n" in str(error) else REFUSED), str(error)
    except Exception as error:
        verdict, message = TRACEBACK, "".join(traceback.format_exception_only(error)).strip()
    message = message.replace(str(folder), "HERE")
    return {"id": name, "expected": "either", "verdict": verdict, "message": message[:400], "seconds": 0.0}


def read(folder: pathlib.Path, file: str) -> Any:
    """What a command reads from a file of a work directory, in parts that can be compared."""
    from attn_jax.runs.options import resolve
    from attn_jax.runs.snapshot import kept_of
    from attn_jax.runs.workdir import load_config

    config = load_config(folder)
    if file == "config.json":
        return config.to_dict()
    kept = kept_of(resolve(config), folder)
    if file == "vocabularies.json":
        return [vocabulary.to_json() for vocabulary in kept]
    parts = [[(x.dtype.name, x.shape, x.tobytes()) for x in (s.inputs, s.targets)] for s in kept.splits.values()]
    return parts, kept.columns, kept.stats, kept.examples


def tried(folder: pathlib.Path, file: str, good: Any) -> tuple[str, str]:
    """(verdict, message) of reading a file that was spoilt; what is read as something else must fail with the rest."""
    from attn_jax.runs.checks import check
    from attn_jax.runs.options import resolve
    from attn_jax.runs.snapshot import restore
    from attn_jax.runs.workdir import load_config

    found = read(folder, file)
    if found == good:
        return RIGHT, "as before"
    options = resolve(load_config(folder))
    check(resolve(options))
    restore(resolve(options), folder)
    return SILENT, f"read as something else: {difference(good, found)}"


def difference(good: Any, found: Any, where: str = "") -> str:
    """The first place where they differ."""
    if isinstance(good, dict) and isinstance(found, dict):
        for key in good.keys() | found.keys():
            if good.get(key) != found.get(key):
                return difference(good.get(key), found.get(key), f"{where}.{key}")
    return f"{where} {str(good)[:80]!r}, {str(found)[:80]!r}"


def read_checkpoint(folder: pathlib.Path) -> Any:
    """All that the newest checkpoint holds."""
    import flax

    from attn_jax.runs.options import resolve
    from attn_jax.runs.training import open_checkpoints
    from attn_jax.runs.workdir import load_config

    config = load_config(folder)
    with open_checkpoints(resolve(config), folder, read_only=True) as checkpoints:
        step = checkpoints.latest_step()
        found = checkpoints._read(step)  # what restore and restore_params have in common
    arrays = flax.traverse_util.flatten_dict(found.state)
    bits = {"/".join(key): (str(x.dtype), x.shape, np.asarray(x).tobytes()) for key, x in arrays.items()}
    return {"step": step, "config": found.config, "extra": found.extra, "metrics": found.metrics, **bits}


def tried_checkpoint(folder: pathlib.Path, good: Any) -> tuple[str, str]:
    """(verdict, message) of reading a checkpoint with a file that was spoilt."""
    from attn_jax.training.checkpoints import Damaged

    try:
        found = read_checkpoint(folder)
    except Damaged as error:
        return REFUSED, f"damaged: {error}"
    return (RIGHT, "as before") if found == good else (SILENT, f"read as something else: {difference(good, found)}")
