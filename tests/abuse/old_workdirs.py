"""Work directories that an older commit made, used by the code as it is now.

    python tests/abuse/old_workdirs.py --commit=9f61731 --folder=/tmp/old_workdirs --out=old_workdirs.json

Three configs are trained by the older commit, in a clone of this repository: once to the end, and once until SIGTERM.
Then the present code evaluates, predicts from and is asked to train again the finished run, and both the older and the
present code go on with copies of the interrupted one. Metrics and predictions have to be equal to the last digit. About
fifteen minutes on two cores; runs that `folder` holds already are not trained again.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORY = "Mary went to the office.\nJohn moved to the garden.\nWhere is Mary?\n"
# config -> what predict is asked, options that make the interrupted run long enough
CONFIGS = {
    "quickstart": ("令和8年11月21日\nSat 21 Nov 2026\n3 March 1999\n", ["--config.train.checkpoint_every=100"]),
    "babi_quickstart": (STORY, []),
    "kernel_regression": (
        "0.5\n1\n2.75\n",
        [f"--config.train.{key}" for key in ("num_steps=4000", "eval_every=4000", "checkpoint_every=50")],
    ),
}


def launch(source: pathlib.Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess:
    """Runs launch.py of a checkout."""
    command = [sys.executable, "launch.py", *arguments]
    return subprocess.run(command, cwd=source, input=text, capture_output=True, text=True)


def interrupt(source: pathlib.Path, workdir: pathlib.Path, *arguments: str) -> None:
    """Trains until there is a checkpoint and a second has passed, then sends SIGTERM."""
    command = [sys.executable, "launch.py", *arguments]
    process = subprocess.Popen(command, cwd=source, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not any(path.name.isdigit() for path in workdir.glob("checkpoints/*")):
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    process.wait()


def make(folder: pathlib.Path, commit: str) -> pathlib.Path:
    """The clone of the older commit, after it has trained what `folder` does not hold yet."""
    source = folder / "src"
    if not source.exists():
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True)
        subprocess.run(["git", "checkout", "--quiet", commit], cwd=source, check=True)
    for name, (_, longer) in CONFIGS.items():
        config, whole, partial = f"--config=configs/{name}.py", folder / "runs" / name, folder / "partial" / name
        if not (whole / "result.json").exists():
            launch(source, config, f"--workdir={whole}")
        if not partial.exists():
            interrupt(source, partial, config, f"--workdir={partial}", *longer)
    return source


def check(folder: pathlib.Path, source: pathlib.Path, name: str) -> dict[str, bool]:
    """What was asked of the work directories of a config, and whether the answer was right."""
    text, longer = CONFIGS[name]
    work, config = folder / "copies" / name, f"--config=configs/{name}.py"
    shutil.rmtree(work, ignore_errors=True)
    for copy in ("old", "new"):
        shutil.copytree(folder / "runs" / name, work / "whole" / copy)
        shutil.copytree(folder / "partial" / name, work / "partial" / copy)
    whole = work / "whole" / "new"
    before = json.loads((whole / "result.json").read_text(encoding="utf-8"))["metrics"]
    found = {}
    evaluated = launch(ROOT, "--mode=eval", f"--workdir={whole}")
    found["evaluated, metrics equal"] = evaluated.returncode == 0 and metrics(whole / "eval.json") == before
    answers = [
        launch(code, "--mode=predict", f"--workdir={work / 'whole' / copy}", text=text)
        for code, copy in ((source, "old"), (ROOT, "new"))
    ]
    same = answers[0].stdout == answers[1].stdout != ""
    found["predicted from, answers equal"] = same and answers[1].returncode == 0
    again = launch(ROOT, config, f"--workdir={whole}")
    found["asked to train again, says finished"] = again.returncode == 0 and "\nfinished " in again.stdout
    results = []
    for code, copy in ((source, "old"), (ROOT, "new")):
        workdir = work / "partial" / copy
        ended = launch(code, config, f"--workdir={workdir}", *longer)
        results.append((ended.returncode, metrics(workdir / "result.json"), "resuming" in ended.stderr))
        if ended.returncode:
            print(ended.stderr, file=sys.stderr)
    found["resumed, metrics equal"] = results[0] == results[1] and results[1][0] == 0 and results[1][2]
    return found


def metrics(path: pathlib.Path) -> dict | None:
    """The metrics of a result file, None if there is none."""
    return json.loads(path.read_text(encoding="utf-8"))["metrics"] if path.exists() else None


def main() -> int:
    """Prints a line per check; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", default="9f61731", help="that made the work directories")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/tmp/old_workdirs"))
    parser.add_argument("--out", type=pathlib.Path, help="a JSON file for the results")
    given = parser.parse_args()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(given.folder / "cache"))
    source = make(given.folder, given.commit)
    checks = {}
    for name in CONFIGS:
        checks[name] = check(given.folder, source, name)
        for what, right in checks[name].items():
            print(f"{name:<20}{what:<40}{'yes' if right else 'NO'}", flush=True)
    if given.out:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        result = {"made_by": given.commit, "used_by": head, "date": date, "checks": checks}
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if all(right for found in checks.values() for right in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
