"""Runs of launch.py that are killed, and what is left of them; a run of 30 steps that saves every second one.

Each command is a fork of a process that has imported jax (tests/launch_server.py), so a kill costs a second or two.
"""

import os
import pathlib
import random
import shutil
import signal
import threading
import time
from typing import NamedTuple

import flax
import numpy as np
from armed import CLOCK, POINTS
from launch_server import ROOT, Server
from tiny_run import timeless, tiny_options

from attn_jax.training.checkpoints import Checkpoints

NUM_STEPS = 30
OPTIONS = {"train.num_steps": NUM_STEPS, "train.eval_every": 10, "train.checkpoint_every": 2, "train.keep": 2}
BITWISE = "started again: bitwise the run that was never stopped"


class Outcome(NamedTuple):
    """What became of a fault: one line of the table."""

    fault: str
    times: int
    survived: int
    expected: str
    seconds: float
    notes: tuple[str, ...] = ()  # what went wrong


def command(workdir: pathlib.Path, **changes) -> list[str]:
    """The command line of a run."""
    values = tiny_options() | OPTIONS | {key.replace("__", "."): value for key, value in changes.items()}
    options = [f"--config.{key}={value}" for key, value in values.items()]
    return [f"--config={ROOT}/configs/quickstart.py", *options, f"--workdir={workdir}"]


def bits(workdir: pathlib.Path) -> dict[str, bytes]:
    """All arrays of the newest checkpoint: parameters, optimizer state, step and keys."""
    with Checkpoints(workdir / "checkpoints", read_only=True) as checkpoints:
        state = checkpoints._read(checkpoints.latest_step()).state
    arrays = {"/".join(path): np.asarray(x) for path, x in flax.traverse_util.flatten_dict(state).items()}
    return {name: f"{x.dtype}{x.shape}".encode() + x.tobytes() for name, x in arrays.items()}


def differs(whole: pathlib.Path, broken: pathlib.Path) -> str:
    """What of a run is not that of the run that was never stopped; "" if all is."""
    for folder in (whole, broken):
        if not (folder / "result.json").exists():
            return f"{folder.name} has no result.json"
    expected, found = bits(whole), bits(broken)
    if expected.keys() != found.keys():
        return "other arrays"
    if wrong := [name for name in expected if expected[name] != found[name]]:
        return f"{len(wrong)} of {len(expected)} arrays differ, such as {wrong[0]}"
    if timeless(whole) != timeless(broken):
        return "metrics.jsonl differs"
    left = [path.name for path in broken.glob(".*.partial")] + [p.name for p in broken.glob("checkpoints/*tmp*")]
    return f"left behind: {', '.join(left)}" if left else ""


def killed(
    server: Server, folder: pathlib.Path, whole: pathlib.Path, *, count: int, rng: random.Random, longest: float
) -> list[Outcome]:
    """`count` kills -9, and a fifth as many SIGTERM and Ctrl-C, at random moments of runs that are started again."""
    kinds = {"kill -9": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "Ctrl-C": signal.SIGINT}
    wanted = {"kill -9": count, "SIGTERM": -(-count // 5), "Ctrl-C": -(-count // 5)}
    outcomes = []
    for kind, number in kinds.items():
        done, saving, notes, began, runs = 0, 0, [], time.monotonic(), 0
        while done < wanted[kind]:
            workdir = folder / f"killed_{number}_{runs}"
            runs += 1
            while True:
                job = server.start(*command(workdir))
                hit = threading.Event()

                def shoot(pid=job.pid, number=number, hit=hit, workdir=workdir):
                    time.sleep(rng.uniform(0, longest))
                    hit.saving = any((workdir / "checkpoints").glob("*tmp*"))
                    try:
                        os.kill(pid, number)
                        hit.set()
                    except ProcessLookupError:
                        pass

                shooter = threading.Thread(target=shoot, daemon=True) if done < wanted[kind] else None
                if shooter:
                    shooter.start()
                result = job.wait()
                if shooter:
                    shooter.join()
                stopped = result.code in (-number, 128 + number)
                done += stopped
                saving += stopped and getattr(hit, "saving", False)
                if not stopped and result.code:
                    notes.append(result.err.strip().splitlines()[-1][:200] if result.err.strip() else str(result.code))
                    break
                if not stopped:
                    break
            if wrong := differs(whole, workdir):
                notes.append(wrong)
            shutil.rmtree(workdir, ignore_errors=True)
        survived = done if not notes else max(0, done - len(notes))
        what = f"{kind} at random moments, in {runs} runs, while a checkpoint was written: {saving}"
        outcomes.append(Outcome(what, done, survived, BITWISE, since(began), tuple(notes)))
    return outcomes


def killed_at_points(
    server: Server, folder: pathlib.Path, whole: pathlib.Path, points: tuple[str, ...] = POINTS
) -> list[Outcome]:
    """One run, killed at each of the moments in armed.py, in their order, and started again after each."""
    workdir, killed_there, outcomes = folder / "points", {}, []
    for point in points:
        began = time.monotonic()
        first = server.start(*command(workdir), arm=point).wait()
        killed_there[point] = first.code == -signal.SIGKILL, since(began)
    again = server.run(*command(workdir))
    wrong = again.err.strip()[-200:] if again.code else differs(whole, workdir)
    for point, (was_killed, seconds) in killed_there.items():
        notes = [*([] if was_killed else ["was not killed"]), *([wrong] if wrong else [])]
        outcomes.append(Outcome(f"kill -9: {point}", 1, int(not notes), BITWISE, seconds, tuple(notes)))
    return outcomes


def with_wrong_clock(server: Server, folder: pathlib.Path, whole: pathlib.Path) -> Outcome:
    """A run whose clock goes backwards, interrupted once."""
    began, workdir, notes = time.monotonic(), folder / "clock", []
    job = server.start(*command(workdir), arm=CLOCK)
    wait_for(workdir, 4)
    os.kill(job.pid, signal.SIGTERM)
    if job.wait().code not in (0, 128 + signal.SIGTERM):
        notes.append("was not interrupted")
    again = server.start(*command(workdir), arm=CLOCK).wait()
    if wrong := again.err.strip()[-200:] if again.code else differs(whole, workdir):
        notes.append(wrong)
    return Outcome("clock that goes backwards", 1, int(not notes), BITWISE, since(began), tuple(notes))


def beside_another(server: Server, folder: pathlib.Path, whole: pathlib.Path) -> Outcome:
    """A second process on a work directory, then a crash of the first."""
    began, workdir, notes = time.monotonic(), folder / "beside", []
    first = server.start(*command(workdir))
    wait_for(workdir, 2)
    os.kill(first.pid, signal.SIGSTOP)  # so that it is still there, however slow the second one is
    second = server.run(*command(workdir))
    if second.code != 1 or not second.err.strip().endswith("is in use: another process is writing there"):
        notes.append(f"second process: status {second.code}, {second.err.strip()[-200:]}")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    third = server.run(*command(workdir))
    if wrong := third.err.strip()[-200:] if third.code else differs(whole, workdir):
        notes.append(wrong)
    what = "second process on one work directory, then kill -9 of the first"
    return Outcome(what, 1, int(not notes), f"the second refuses; {BITWISE}", since(began), tuple(notes))


def wait_for(workdir: pathlib.Path, step: int, seconds: float = 300.0) -> None:
    """Waits until a checkpoint of this step, or a later one, is complete."""
    deadline = time.monotonic() + seconds
    while not any(path.name.isdigit() and int(path.name) >= step for path in (workdir / "checkpoints").glob("*")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{workdir} has no checkpoint {step}")
        time.sleep(0.002)


def since(began: float) -> float:
    """Seconds since a moment of time.monotonic()."""
    return round(time.monotonic() - began, 1)
