"""What has not been measured on a GPU since the code changed? Measures it, the most important first.

    python -m experiments.gpu_queue                     on a machine with a GPU; --minutes=9 at most
    python -m experiments.gpu_queue --dry-run           says what would run, and why the rest would not
    python -m experiments.gpu_queue --small             all jobs in tiny shapes, on a CPU too; writes nothing

A job is a process of its own, so an error or a hang ends that job alone; it writes its file of
experiments/results/speed after each row. In the time that is left, cells of the matrix are measured that have no
result (experiments/matrix). For a machine that has a copy of the files and gives one folder back,
`--commit=$(git rev-parse HEAD)` says what they are, and `--copy_to=FOLDER` puts what was written there. Then
`python -m experiments.benchmarks.page` renders docs/performance.md.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import NamedTuple

from attn_jax.errors import one_line
from attn_jax.evaluation.provenance import COMMIT
from attn_jax.paths import user_path

ROOT = pathlib.Path(__file__).resolve().parents[1]
MATRIX = ROOT / "experiments" / "results" / "matrix"
MARGIN = 45  # seconds that a job may need to end after its limit
CELL = 90  # seconds that a cell of the matrix may take, which begins within the time


class Job(NamedTuple):
    """A part of experiments/benchmarks/gpu_speed.py, which writes experiments/results/speed/gpu_PART.json."""

    part: str
    question: str
    seconds: int  # after which it begins no further row

    @property
    def file(self) -> pathlib.Path:
        return ROOT / "experiments" / "results" / "speed" / f"gpu_{self.part}.json"

    def is_fresh(self) -> bool:
        """Whether the code is the same as when the job was measured."""
        if not self.file.exists():
            return False
        commit = str(json.loads(self.file.read_text(encoding="utf-8"))["commit"])
        changed = ["git", "-C", str(ROOT), "diff", "--quiet", commit, "--", "attn_jax", "experiments/benchmarks"]
        return subprocess.run(changed, capture_output=True, check=False).returncode == 0


JOBS = (
    Job("checks", "attention and linear attention beside float64", 100),
    Job("training", "speed of a Transformer and of an LSTM beside PyTorch", 270),
    Job("attention", "fused kernels, attention by blocks and linear attention up to 16,384 positions", 150),
)


def measure_cells(minutes: float, copy_to: pathlib.Path | None) -> None:
    """Measures cells of the matrix that have no result yet, in the rest of the time."""
    before = set(MATRIX.glob("*.json"))
    print(f"{'matrix':<14}cells without a result: {minutes:.1f} minutes", flush=True)
    subprocess.run([sys.executable, "-m", "experiments.matrix", f"--budget={minutes}"], cwd=ROOT, check=False)
    for path in set(MATRIX.glob("*.json")) - before if copy_to is not None else ():
        (copy_to / MATRIX.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy_to / MATRIX.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0, help="of all jobs together")
    parser.add_argument("--dry-run", action="store_true", help="run nothing")
    parser.add_argument("--small", action="store_true", help="tiny shapes")
    parser.add_argument("--again", action="store_true", help="also jobs whose code has not changed")
    parser.add_argument("--commit", help="of the code, where git does not know it")
    parser.add_argument("--copy_to", type=user_path, help="folder for the files that were written")
    args = parser.parse_args()
    if args.commit:
        os.environ[COMMIT] = args.commit
    end, failed = time.monotonic() + 60 * args.minutes, []
    for job in JOBS:
        limit = min(job.seconds, int(end - time.monotonic()) - MARGIN)
        fresh = job.is_fresh() and not args.again and not args.small
        verdict = (
            "is measured for this code" if fresh else "no time is left" if limit < MARGIN else f"at most {limit} s"
        )
        print(f"{job.part:<14}{job.question}: {verdict}", flush=True)
        if fresh or limit < MARGIN or args.dry_run:
            end -= limit if args.dry_run and not fresh else 0
            continue
        command = [sys.executable, "-m", "experiments.benchmarks.gpu_speed", f"--part={job.part}", f"--limit={limit}"]
        before = job.file.stat().st_mtime if job.file.exists() else 0.0
        try:
            options = ["--small", "--seconds=0"] if args.small else []
            subprocess.run([*command, *options], cwd=ROOT, timeout=limit + MARGIN, check=True)
        except subprocess.SubprocessError as error:
            failed.append(job.part)
            print(f"{job.part:<14}{error}", file=sys.stderr, flush=True)
        if args.copy_to is not None and job.file.exists() and job.file.stat().st_mtime > before:
            args.copy_to.mkdir(parents=True, exist_ok=True)
            shutil.copy(job.file, args.copy_to)
    if (left := (end - time.monotonic() - CELL) / 60) > 0 and not (args.dry_run or args.small):
        measure_cells(left, args.copy_to)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    with one_line("gpu_queue.py"):
        main()
