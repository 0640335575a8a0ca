"""What does a sweep survive: a kill in the middle, a run that fails, a machine that is lost?

    python experiments/sweep_faults.py                  # on this machine, and on a Ray cluster of two nodes
    python experiments/sweep_faults.py --only local     # without Ray

Twelve tiny runs, one of which fails by itself: its data is not there. On this machine two run at once; SIGKILL ends the
sweep when four are finished, and the same command is given again. With Ray (pip install "attn_jax[ray]") two nodes of
one CPU are started on the loopback interface; when four runs are finished, SIGKILL ends all processes of the second.
What counts: every good run is trained once, apart from those that were under way; the failed one is reported and stops
nothing; the results are equal to the last digit. Writes experiments/results/sweep_faults.json and .md.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.files import load_json  # noqa: E402
from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.notices import notice  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from attn_jax.sweeps.sweep import jobs  # noqa: E402
from experiments import raw  # noqa: E402

NUM_RUNS, FAILS, KILL_AFTER = 12, 6, 4
OVERRIDES = {
    "task.num_examples": 300,
    "task.valid_size": 20,
    "task.batch_size": 32,
    "model.encoder": "gru",
    "model.encoder.bidirectional": False,
    "model.decoder.cell": "gru",
    "model.decoder.bridge": "copy",
    "model.decoder.readout_size": 8,
    "model.embedding_size": 8,
    "model.hidden_size": 8,
    "model.attention.score": "dot",
    "train.num_steps": 20,
    "train.eval_every": 0,
    "eval.metrics": ("perplexity",),
    "eval.num_pictures": 0,
}
NO_DATA = {"task.name": "parallel_text", "task.train": ("missing.source", "missing.target"), "eval.num_pictures": 0}
LIMIT = 1800.0  # seconds


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the runs; the seventh has no data."""
    for seed in range(NUM_RUNS):
        yield {"config": "configs/quickstart.py", **(NO_DATA if seed == FAILS else OVERRIDES), "seed": seed}


def local(folder: pathlib.Path) -> dict[str, Any]:
    """Kills the sweep, and gives the same command again."""
    begun, environment = time.monotonic(), os.environ
    first = launch(folder, ["--at_once=2"], environment)
    before = wait_for(folder, first)
    first.send_signal(signal.SIGKILL)
    first.wait()
    again = launch(folder, ["--at_once=2"], environment)
    return summary(folder, again, before, begun) | {"engine": "--at_once=2, then the same again"}


def ray(folder: pathlib.Path) -> dict[str, Any]:
    """Kills one of two nodes while the sweep goes on."""
    environment = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address, common = f"127.0.0.1:{port}", ["--num-cpus=1", "--disable-usage-stats", "--block"]
    with tempfile.TemporaryDirectory(prefix="ray") as temporary, contextlib.ExitStack() as nodes:
        head = ["--head", f"--port={port}", "--node-ip-address=127.0.0.1", f"--temp-dir={temporary}"]
        nodes.enter_context(node([*head, "--include-dashboard=false", *common], environment))
        answers(port)
        second = nodes.enter_context(
            node([f"--address={address}", "--node-ip-address=127.0.0.1", *common], environment)
        )
        time.sleep(20)  # until the cluster knows of it
        begun = time.monotonic()
        running = launch(folder, ["--engine=ray", f"--address={address}"], environment)
        before = wait_for(folder, running)
        kill(second.pid)
        found = summary(folder, running, before, begun)
    return found | {"engine": "--engine=ray --address=127.0.0.1:PORT, two nodes of one CPU"}


ENGINES: dict[str, Callable[[pathlib.Path], dict[str, Any]]] = {"local": local, "ray": ray}


def launch(folder: pathlib.Path, options: list[str], environment: Any) -> subprocess.Popen:
    """Starts the sweep; what it prints goes to a file beside its folder."""
    command = [sys.executable, "-m", "attn_jax.cli", f"--sweep={__file__}", f"--workdir={folder}", *options]
    with open(folder.with_suffix(".txt"), "ab") as file:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)


def wait_for(folder: pathlib.Path, running: subprocess.Popen) -> dict[str, int]:
    """Waits until KILL_AFTER runs are finished; returns {name of a finished run: time of its result in ns}.

    Raises:
        UserError: the sweep ended before, or it takes too long.
    """
    end = time.monotonic() + LIMIT
    while len(done := finished(folder)) < KILL_AFTER:
        if running.poll() is not None or time.monotonic() > end:
            raise UserError(f"{folder}: {len(done)} runs are finished; see {folder.with_suffix('.txt')}")
        time.sleep(0.2)
    return done


def finished(folder: pathlib.Path) -> dict[str, int]:
    """Returns {name of a finished run: time of its result in ns}."""
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("*/result.json")}


def summary(folder: pathlib.Path, running: subprocess.Popen, before: dict[str, int], begun: float) -> dict[str, Any]:
    """Waits for the end of a sweep; returns what became of its runs."""
    status = running.wait(timeout=LIMIT)
    after, names = finished(folder), [job.name for job in jobs(pathlib.Path(__file__))]
    starts = {name: text_of(folder / name / "log.txt").count("training      compiling") for name in names}
    (failed,) = (name for name in names if name not in after)
    return {
        "finished_before": len(before),
        "trained_again": sum(after.get(name) != time_ns for name, time_ns in before.items()),
        "begun_twice": sum(count > 1 for count in starts.values()),
        "finished": len(after),
        "exit_status": status,
        "reported": text_of(folder.with_suffix(".txt")).strip().splitlines()[-1],
        "failed_log": text_of(folder / failed / "log.txt").strip().splitlines()[-1],
        "loss": {name: load_json(folder / name / "result.json")["metrics"]["loss"]["mean"] for name in sorted(after)},
        "seconds": round(time.monotonic() - begun, 1),
    }


def text_of(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


@contextlib.contextmanager
def node(options: list[str], environment: Any) -> Iterator[subprocess.Popen]:
    """Runs `ray start` as long as the block lasts."""
    command = [str(pathlib.Path(sys.executable).with_name("ray")), "start", *options]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        kill(process.pid)
        process.wait()


def answers(port: int) -> None:
    """Waits until something listens at a port.

    Raises:
        UserError: nothing does for two minutes.
    """
    for _ in range(240):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.5)
    raise UserError("the head node of Ray does not answer")


def kill(pid: int) -> None:
    """Kills a process and all that it started, at once."""
    children = family(pid)
    for each in (pid, *children):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def family(pid: int) -> list[int]:
    """Returns the ids of all processes that a process and its children started."""
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def page(record: dict[str, Any]) -> str:
    """Formats the page."""
    found = record["results"]
    head = [
        "sweep of 12 runs",
        "finished before the kill",
        "of them trained again",
        "compiled twice",
        "finished",
        "seconds",
    ]
    columns = ("finished_before", "trained_again", "begun_twice", "finished")
    rows = [
        [f"`{of['engine']}`", *(str(of[name]) for name in columns), f"{of['seconds']:.0f}"] for of in found.values()
    ]
    first, *others = (of["loss"] for of in found.values())
    equal = "The results of both are equal to the last digit." if others and others[0] == first else ""
    equal = equal if all(other == first for other in others) else "The results differ."
    reported = "\n".join(f"- exit status {of['exit_status']}, `{of['reported']}`" for of in found.values())
    return f"""# What does a sweep survive: a kill in the middle, a run that fails, a machine that is lost?

{raw.circumstances(record)}

Eleven runs are tiny, and the seventh has no data. What is done with them:
[experiments/sweep_faults.py](../sweep_faults.py). Seconds are those of a machine with other work.
Compiled twice are runs that were under way at the kill and whose training had begun.

{raw.table(head, rows)}

{equal} The run without data is reported, and stops no other:

{reported}
"""


PAGES = (raw.Page("sweep_faults", page),)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=ENGINES, nargs="*", default=list(ENGINES))
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory of the results")
    options, results = parser.parse_args(argv), {}
    path = options.out / "sweep_faults.json"
    begun = raw.begin(path)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            notice(f"{'sweep':<14}{name} ...")
            results[name] = ENGINES[name](pathlib.Path(folder) / name)
    command = raw.command("sweep_faults", *([] if len(results) > 1 else ["--only", *results]))
    record = raw.write(path, results, command=command, begun=begun)
    print(PAGES[0].save(record, options.out))


if __name__ == "__main__":
    with one_line("sweep_faults.py"):
        main()
