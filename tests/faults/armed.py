"""Moments of a run at which a process kills itself with SIGKILL, as a loss of power would end it; and a wrong clock.

    arm("half config.json")       the new content of the file is half written, under the name of a partial file
    arm("before config.json")     it is written, and not yet renamed
    arm("after config.json")      it is renamed
    arm("half a checkpoint")      the first arrays of the first checkpoint are on the disk
    arm("before a checkpoint")    the first checkpoint is written, and not yet renamed
    arm("after a checkpoint")     it is renamed
    arm("retention")              one of the files of the oldest checkpoint is deleted
    arm("before retention")       nothing of it is deleted
    arm("one core")               no kill: the process runs on one core, so that XLA has one thread
    arm("clock backwards")        no kill: the clock goes back by a minute each time it is read

`arm` is called in the process itself, before anything else happens.
"""

import itertools
import os
import pathlib
import shutil
import signal
import sys
import threading
import time

PASSED = ("vocabularies.json", "config.json", "a checkpoint", "retention", "result.json")  # in the order of a run
POINTS = tuple(
    point
    for name in PASSED
    for point in (
        ("before retention", "retention")
        if name == "retention"
        else tuple(f"{moment} {name}" for moment in ("half", "before", "after"))
    )
)
CLOCK, ONE_CORE = "clock backwards", "one core"


def kill() -> None:
    """Ends this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # never reached: the signal may come a moment later


def arm(point: str) -> None:
    """Lets this process be killed at a moment of POINTS, or at that of another file; or turns its clock back."""
    moment, _, name = point.partition(" ")
    if point == CLOCK:
        began, minutes = time.time(), itertools.count()
        time.time = lambda: began - 60.0 * next(minutes)
    elif point == ONE_CORE:
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    elif point == "half a checkpoint":
        threading.Thread(target=_watch, daemon=True).start()
    elif point.endswith("retention"):
        _at_deletion(half=moment != "before")
    else:
        _at_rename(moment, None if name == "a checkpoint" else name)


def _at_rename(moment: str, name: str | None) -> None:
    """Kills at the renaming of a partial file to `name`, or of a checkpoint (a number) if it is None."""
    rename, replace = os.rename, os.replace

    def armed(function):
        def move(source, target, **options):
            base = os.path.basename(target)
            if base != name and not (name is None and base.isdigit()):
                return function(source, target, **options)
            if moment == "after":
                function(source, target, **options)
            if moment == "half":
                os.truncate(source, os.path.getsize(source) // 2)
            kill()

        return move

    os.rename, os.replace = armed(rename), armed(replace)


def _at_deletion(half: bool) -> None:
    """Kills when a checkpoint, a folder named by a number, is deleted; with `half`, after its first file."""
    rmtree = shutil.rmtree

    def armed(path, *args, **options):
        folder = pathlib.Path(path)
        if not folder.name.isdigit():
            return rmtree(path, *args, **options)
        if half:
            next(file for file in sorted(folder.rglob("*")) if file.is_file()).unlink()
        kill()

    shutil.rmtree = armed


def _watch() -> None:
    """Kills as soon as an array of the first checkpoint of the work directory --workdir=DIR is being written."""
    workdir = next(argument.partition("=")[2] for argument in sys.argv if argument.startswith("--workdir="))
    folder = pathlib.Path(workdir) / "checkpoints"
    while True:
        for unfinished in folder.glob("*tmp*"):
            try:
                if sum(path.is_file() for path in unfinished.rglob("*")) > 1:
                    kill()
            except OSError:  # renamed meanwhile
                kill()
        time.sleep(0.0005)
