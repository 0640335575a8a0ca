"""Runs launch.py again and again without importing jax again: each command is a fork of one process.

    with Server(directory) as server:
        code, out, err = server.run("--mode=predict", "--workdir=...", stdin=b"a line")

The server, `python tests/launch_server.py`, reads a JSON object per line, {"argv", "arm", "stdin", "stdout", "stderr"}
(the last three are paths) or {"wait": pid}, and answers with the pid or the exit status (-9 after kill -9). It
imports what commands need, and leaves the devices alone: no thread runs yet when it forks.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
# One device, and compiled in a hurry: here nothing runs long.
ENVIRONMENT = {**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0", "JAX_PLATFORMS": "cpu"}


class Result(NamedTuple):
    code: int
    out: str
    err: str


class Job:
    """A command under way."""

    def __init__(self, server, pid, out, err):
        self.server, self.pid, self.out, self.err = server, pid, out, err

    def wait(self) -> Result:
        code = self.server.ask({"wait": self.pid})
        return Result(code, self.out.read_text() if self.out.is_file() else "", self.err.read_text())


class Server:
    def __init__(self, directory: pathlib.Path):
        command = [sys.executable, __file__]
        self.directory, self.numbers = directory, itertools.count()
        self.process = subprocess.Popen(
            command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        self.process.wait()

    def ask(self, request: dict) -> int:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, *argv: str, stdin: bytes = b"", stdout: pathlib.Path | None = None, arm: str = "") -> Job:
        """Standard output goes to a file, or to the named pipe `stdout`. For `arm` see faults/armed.py."""
        prefix = self.directory / f"command{next(self.numbers)}"
        paths = [prefix.with_suffix(suffix) for suffix in (".in", ".out", ".err")]
        paths[0].write_bytes(stdin)
        out = stdout or paths[1]
        names = dict(zip(("stdin", "stdout", "stderr"), map(str, (paths[0], out, paths[2])), strict=True))
        return Job(self, self.ask({"argv": list(map(str, argv)), "arm": arm, **names}), out, paths[2])

    def run(self, *argv: str, stdin: bytes = b"") -> Result:
        return self.start(*argv, stdin=stdin).wait()


def serve() -> None:
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    while line := requests.readline():
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                os.close(requests.fileno())
                become(request)
                return
        answers.write(f"{answer}\n")
        answers.flush()


def become(request: dict) -> None:
    """The process that `python launch.py` would be, from here to its end."""
    for number, (name, flags) in enumerate({"stdin": 0, "stdout": os.O_WRONLY, "stderr": os.O_WRONLY}.items()):
        opened = os.open(request[name], flags | (os.O_CREAT if flags else 0))
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1)
    sys.argv = ["launch.py", *request["argv"]]
    if request["arm"]:
        sys.path.append(str(ROOT / "tests" / "faults"))
        import armed

        armed.arm(request["arm"])
    sys.exit(main.main(sys.argv))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    import attn_jax.cli.commands
    import attn_jax.sweeps.sweep  # noqa: F401
    from attn_jax.cli import main

    serve()
