"""Faults of the machine: disks that are full or read-only, and the loss of one of two processes that train together."""

import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
from launch_server import ENVIRONMENT, ROOT, Server
from runs_killed import BITWISE, Outcome, command, differs, since, wait_for
from tiny_run import timeless

MINUTE = 60.0
LOST = "another process of the training is gone"


@contextlib.contextmanager
def disk(folder: pathlib.Path, size: str) -> Iterator[bool]:
    """A disk of this size in a folder; False where only root could mount one."""
    folder.mkdir(parents=True)
    mounted = not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True
    ).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", folder], check=True)


def remount(folder: pathlib.Path, options: str) -> None:
    """Changes the options of a disk."""
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def full_and_read_only(server: Server, folder: pathlib.Path, whole: pathlib.Path) -> list[Outcome]:
    """Runs on disks that are too small, or read-only halfway; then the disk is as it should be, and they go on."""
    found = []
    for size in ("20k", "150k", "300k", "500k"):
        found.append(_on_disk(server, folder / f"disk_{size}", whole, f"disk of {size}B", size, "size=100m"))
    found.append(_on_disk(server, folder / "disk_ro", whole, "disk that becomes read-only", "100m", "rw", first="ro"))
    return found


def _on_disk(
    server: Server, folder: pathlib.Path, whole: pathlib.Path, what: str, size: str, mended: str, first: str = ""
) -> Outcome:
    began, notes = time.monotonic(), []
    words = "read-only file system" if first else "no space left"
    expected = f"one line, {words!r}; {BITWISE}"
    with disk(folder, size) as mounted:
        if not mounted:
            return Outcome(f"{what} (skipped: only root can mount one)", 0, 0, expected, 0.0)
        workdir = folder / "run"
        if first:
            job = server.start(*command(workdir))
            wait_for(workdir, 4)
            os.kill(job.pid, signal.SIGTERM)
            job.wait()
            remount(folder, first)
        failed = server.run(*command(workdir))
        lines = [line for line in failed.err.splitlines() if line.startswith("launch.py: ")]
        if failed.code != 1 or len(lines) != 1 or words not in lines[0] or "Traceback" in failed.err:
            notes.append(f"status {failed.code}: {failed.err.strip()[-200:]}")
        remount(folder, mended)
        again = server.run(*command(workdir))
        if wrong := again.err.strip()[-200:] if again.code else differs(whole, workdir):
            notes.append(wrong)
    return Outcome(what, 1, int(not notes), expected, since(began), tuple(notes))


class Cluster:
    """Processes of one training on this machine, which talk over loopback."""

    def __init__(self, argv: list[str], folder: pathlib.Path, count: int = 2):
        self.held = socket.socket()  # until all have bound the port, so that nobody else gets it
        self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.held.bind(("localhost", 0))
        address = f"localhost:{self.held.getsockname()[1]}"
        folder.mkdir(parents=True, exist_ok=True)
        self.logs = [folder / f"{i}.log" for i in range(count)]
        self.processes = []
        for i, log in enumerate(self.logs):
            options = [f"--coordinator={address}", f"--num_processes={count}", f"--process_id={i}"]
            with open(log, "w") as file:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, *argv, *options], env=ENVIRONMENT, cwd=ROOT, stdout=file, stderr=file
                    )
                )

    def wait(self, seconds: float) -> list[int | None]:
        """The exit statuses; None for a process that has not ended after so many seconds, and is killed."""
        deadline, codes = time.monotonic() + seconds, []
        for process in self.processes:
            try:
                codes.append(process.wait(max(0.1, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                codes.append(None)
        self.held.close()
        return codes


def together(folder: pathlib.Path, whole: pathlib.Path) -> list[Outcome]:
    """No fault: trainings of two and of four processes, whose losses are those of the one process."""
    expected, found = losses(whole), []
    for count in (2, 4):
        began, notes, workdir = time.monotonic(), [], folder / f"of_{count}"
        argv = [str(ROOT / "launch.py"), *command(workdir, parallel="fsdp")]
        codes = Cluster(argv, workdir.with_suffix(".logs"), count).wait(900)
        if codes != [0] * count:
            notes.append(f"status {codes}")
        elif not np.allclose(losses(workdir), expected, rtol=1e-4):
            notes.append("other losses")
        what = f"none: {count} processes of one device each, with a divided state"
        found.append(Outcome(what, 1, int(not notes), "the losses of one process", since(began), tuple(notes)))
    return found


def losses(workdir: pathlib.Path) -> list[float]:
    """All losses of a run, of training and validation."""
    return [value for line in timeless(workdir) for name, value in line.items() if name.endswith("/loss")]


def one_of_two_killed(folder: pathlib.Path, count: int, rng: random.Random) -> list[Outcome]:
    """Trainings of two processes, of which one is killed; the other ends, and both go on."""
    launch = str(ROOT / "launch.py")

    def start(workdir: pathlib.Path) -> Cluster:
        return Cluster([launch, *command(workdir, parallel="fsdp")], workdir.with_suffix(".logs"))

    whole = folder / "together"
    assert start(whole).wait(600) == [0, 0]
    found = []
    for victim in (1, 0):
        began, notes, slowest = time.monotonic(), [], 0.0
        for number in range(count):
            workdir = folder / f"lost_{victim}_{number}"
            cluster = start(workdir)
            wait_for(workdir, rng.choice((2, 6, 12)), 600)
            time.sleep(rng.uniform(0, 0.1))
            cluster.processes[victim].kill()
            killed_at = time.monotonic()
            codes = cluster.wait(MINUTE)
            slowest = max(slowest, time.monotonic() - killed_at)
            told = cluster.logs[1 - victim].read_text()
            if not codes[1 - victim]:
                notes.append(f"the other process: status {codes[1 - victim]}")
            elif victim == 1 and LOST not in told:
                notes.append(f"no line about the loss: {told.strip()[-200:]}")
            codes = start(workdir).wait(600)
            if wrong := f"again: {codes}" if codes != [0, 0] else differs(whole, workdir):
                notes.append(wrong)
        what = f"kill -9 of process {victim} of two; the other ended after at most {slowest:.0f} s"
        expected = f"the other ends within a minute; both {BITWISE}"
        found.append(Outcome(what, count, count - len(notes), expected, since(began), tuple(notes)))
    return found
