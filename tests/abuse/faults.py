"""The machine's share: disks that are full or read-only, another process, several devices, special files."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

from case import Case, Skip
from command_line import says
from sandbox import question, table, words

FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"}
TRAIN = [*words("{words_data}", train__num_steps=1, train__eval_every=1), "--workdir={here}/run"]


def cases() -> list[Case]:
    """Those that need root are skipped without it."""
    argv, stdin = question("words", "{here}/run")
    parallel = [*words("{words_data}", parallel="mesh"), "--workdir={here}/run"]
    return [
        Case("machine", "in use", [*words("{words_data}"), "--workdir={here}/run"], around=in_use)._replace(
            words=("{here}/run is in use: another process is writing there",)
        ),
        Case("machine", "workdir below a file", [*TRAIN[:-1], "--workdir={here}/file/run"])._replace(
            prepare=lambda here: (here / "file").touch(), words=("cannot write|cannot read", "{here}/file")
        ),
        Case("machine", "workdir is a file", [*TRAIN[:-1], "--workdir={here}/file"])._replace(
            prepare=lambda here: (here / "file").touch(), words=("is a file; expected a folder", "{here}/file")
        ),
        Case("machine", "workdir too long", [*TRAIN[:-1], f"--workdir={{here}}/{'x' * 300}"], words=("name too long",)),
        Case("machine", "train, read-only", TRAIN, around=read_only, words=("read-only",)),
        Case("machine", "train a table, read-only", [*table("{table_data}"), "--workdir={here}/run"])._replace(
            around=read_only, words=("read-only",)
        ),
        Case("machine", "eval, read-only", ["--mode=eval", "--workdir={here}/run"], around=read_only_run)._replace(
            words=("cannot write", "eval.json|eval_sentences.json", "read-only"), out="loss"
        ),
        Case("machine", "visualize, read-only", ["--mode=visualize", "--workdir={here}/run"], b"a\n")._replace(
            around=read_only_run, words=("cannot write", "read-only")
        ),
        Case("right", "score, read-only", argv, stdin, around=read_only_run, check=says("-")),
        Case("machine", "train, 4 KB disk", TRAIN, around=small_disk("4k"), words=("no space left",)),
        Case("machine", "train, 40 KB disk", TRAIN, around=small_disk("40k"), words=("no space left",)),
        Case("machine", "train, 200 KB disk", TRAIN, around=small_disk("200k"), either=True)._replace(
            words=("no space left",), check=lambda here, result: ""
        ),
        Case("machine", "output is full", ["--mode=predict", "--workdir={words}"], b"a bird\n")._replace(
            stdout="/dev/full", words=("no space left",), alone={}
        ),
        Case("machine", "config.json is a pipe", argv, stdin, run="words", prepare=pipe("run/config.json")),
        Case("machine", "a pipe in the directory", argv, stdin, run="words", prepare=pipe("run/pipe"))._replace(
            words=("neither a file nor a folder",)
        ),
        Case("machine", "the source is a pipe", [*argv, "--source=/dev/null", "--target=/dev/null"], run="words"),
        Case("machine", "a batch for 4 devices", [*parallel, "--config.task.batch_size=18"], alone=FOUR)._replace(
            words=("cannot be shared equally by 4 devices; the next size that can is 20",)
        ),
        Case("machine", "microbatches on 4 devices", [*parallel, "--config.train.microbatches=3"], alone=FOUR)._replace(
            words=("microbatches",)
        ),
        Case("right", "score on 4 devices", *question("words", "{words}"), alone=FOUR, check=says("-")),
    ]


@contextlib.contextmanager
def in_use(here: pathlib.Path) -> Iterator[None]:
    """Another process has the work directory: this one."""
    (here / "run").mkdir()
    with open(here / "run" / "lock", "a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@contextlib.contextmanager
def mounted(here: pathlib.Path, size: str) -> Iterator[pathlib.Path]:
    """A small disk at {here}/run."""
    folder = here / "run"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        raise Skip("only root can mount a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def small_disk(size: str):
    """A context: {here}/run is an empty disk of this size."""
    return lambda here: mounted(here, size)


@contextlib.contextmanager
def read_only(here: pathlib.Path) -> Iterator[None]:
    """{here}/run is an empty disk on which nothing can be written."""
    with mounted(here, "4m") as folder:
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield


@contextlib.contextmanager
def read_only_run(here: pathlib.Path) -> Iterator[None]:
    """The same, with the run "words" on it."""
    with mounted(here, "40m") as folder:
        shutil.copytree(here.parents[1] / "words" / "run", folder, dirs_exist_ok=True)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield


def pipe(name: str):
    """A preparation: a named pipe, from which nothing ever comes."""

    def prepare(here: pathlib.Path) -> None:
        (here / name).unlink(missing_ok=True)
        os.mkfifo(here / name)

    return prepare
