"""Shows that two versions of the code compute the same: for every config the losses of 20 steps and a greedy decode.

    python tests/behaviour.py run --source=OLDER_CHECKOUT --out=before.json
    python tests/behaviour.py run --source=. --out=after.json
    python tests/behaviour.py compare before.json after.json

Each config of a checkout is trained by that checkout's own launch.py, with small sizes, and asked to predict. The
losses are compared as the bits of their floats. About 15 minutes a version on two cores. Exit status 1: they differ.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

NUM_STEPS = 20
# A key that a config lacks, or does not read, is left out when the program says so; some are of older versions.
SMALL = {
    "parallel": "single",
    "seeds": "(0,1)",
    "task.num_examples": "200",
    "task.valid_size": "20",
    "task.batch_size": "16",
    "task.min_count": "1",
    "task.vocabulary.min_count": "1",
    "model.embedding_size": "8",
    "model.hidden_size": "8",
    "model.readout_size": "8",
    "model.decoder.readout_size": "8",
    "model.decoder.summary.readout_size": "8",
    "model.attention.features": "8",
    "model.attention.score.features": "8",
    "model.objective.baseline.features": "8",
    "model.feed_forward_size": "8",
    "model.encoder.feed_forward_size": "8",
    "model.decoder.feed_forward_size": "8",
    "model.num_heads": "2",
    "model.encoder.num_heads": "2",
    "model.decoder.num_heads": "2",
    "train.num_steps": str(NUM_STEPS),
    "train.eval_every": str(NUM_STEPS),
    "train.checkpoint_every": "0",
    "train.log_every": "1",
    "train.best_metric": "loss",
    "train.average": "0",
    "decode.max_length": "12",
    "eval.num_pictures": "0",
}
WORDS = "a bird can dance every fine green hill in june kindly looking more now or perhaps quite".split()
LINES = {
    "babi": "Mary went to the office.\nJohn moved to the garden.\nWhere is Mary?\n",
    "regression": "0.5\n1\n2.75\n",
    "dates": "令和8年11月21日\nSat 21 Nov 2026\n",
    "inflection": "gehen\tV;3;SG\n",
}


def write_data(folder: pathlib.Path) -> None:
    """Writes the files that the configs of texts and of tables look for."""
    for index, path in enumerate(sorted(pathlib.Path("configs").glob("*.py"))):
        if path.stem in ("base", "of_workdir"):  # the latter is of older versions
            continue
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        config = module.get_config()
        if config.task.name != "parallel_text":
            continue
        for split in ("train", "valid", "test"):
            source, target = config.task[split]
            rows = [[WORDS[(7 * i + j * j + index) % len(WORDS)] for j in range(3 + i % 5)] for i in range(60)]
            for name, turn in ((source, False), (target, True)):
                if name:
                    text = "".join(f"{' '.join(reversed(row)).upper() if turn else ' '.join(row)}\n" for row in rows)
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_text(text, encoding="utf-8")
    rows = "".join(f"{i},{i * i % 7}\n" for i in range(250))
    (folder / "points.csv").write_text("x,y\n" + rows, encoding="utf-8")


def launch(arguments: list[str], text: str = "") -> subprocess.CompletedProcess:
    """Runs launch.py of the current directory."""
    return subprocess.run([sys.executable, "launch.py", *arguments], input=text, capture_output=True, text=True)


def behaviour(name: str, folder: pathlib.Path) -> dict:
    """The losses and predictions of one config, or the error that ended it."""
    own, workdir = folder / name, folder / "runs" / name
    own.mkdir(parents=True)
    write_data(own)
    task = json.loads(subprocess.run([sys.executable, "-c", TASK, name], capture_output=True, text=True).stdout)
    options = dict(SMALL)
    if task["name"] == "parallel_text":
        size = 60 if task["joint"] else 36
        options |= {"data_dir": str(own), "task.vocab_size": f"({size},{size})"}
        del options["task.num_examples"]
    elif task["name"] == "regression" and task["file"]:
        options |= {"data_dir": str(own), "task.num_examples": "0"}
    if task["name"] == "regression":
        del options["seeds"]
    while True:
        overrides = [f"--config.{key}={value}" for key, value in options.items()]
        done = launch([f"--config=configs/{name}.py", f"--workdir={workdir}", *overrides])
        named = re.findall(r"[a-z_]+(?:\.[a-z_]+)*", done.stderr)  # the option that is refused comes first
        named = [
            key
            for word in named
            for key in options
            if key == word or ("." in word and f"{key}.".startswith(f"{word}."))
        ]
        refused = named[0] if named else None
        if done.returncode == 0:
            break
        if refused is None or "Traceback" in done.stderr:
            return {"error": done.stderr.strip()[-2000:]}
        del options[refused]
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = {
        f"{record['step']}/{key}": [float(seed).hex() for seed in (value if isinstance(value, list) else [value])]
        for record in records
        for key, value in record.items()
        if re.match(r"(train|valid)/loss", key)
    }
    result = json.loads((workdir / "result.json").read_text(encoding="utf-8"))
    asked = launch(["--mode=predict", f"--workdir={workdir}"], LINES.get(task["name"], "a bird can dance\nmore now\n"))
    predictions = asked.stdout if asked.returncode == 0 else f"error: {asked.stderr.strip()[-500:]}"
    return {"options": options, "losses": losses, "metrics": result["metrics"], "predictions": predictions}


TASK = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("c", f"configs/{sys.argv[1]}.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
task = module.get_config().task
train = task.get("train", ("", ""))
print(json.dumps({"name": task.name, "joint": task.get("joint_vocabulary", False), "file": train[0]}))
"""


def run(source: pathlib.Path, out: pathlib.Path, only: list[str]) -> None:
    """Writes the behaviour of every config of a checkout to a JSON file."""
    out = out.resolve()
    os.chdir(source)
    os.environ["PYTHONPATH"] = sys.path[0] = os.getcwd()
    names = sorted(
        path.stem for path in pathlib.Path("configs").glob("*.py") if path.stem not in ("base", "of_workdir")
    )
    names = [name for name in names if not only or name in only]
    found: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = {name: pool.submit(behaviour, name, pathlib.Path(folder)) for name in names}
        for name, job in jobs.items():
            found[name] = job.result()
            print(name, found[name].get("error", f"{len(found[name].get('losses', ()))} losses"), flush=True)
            out.write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")


def compare(before: pathlib.Path, after: pathlib.Path) -> int:
    """Prints what differs, config by config; returns how many configs do."""
    a, b = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    count = 0
    for name in sorted(a.keys() | b.keys()):
        first, second = a.get(name, {}), b.get(name, {})
        wrong = [key for key in ("error", "losses", "metrics", "predictions") if first.get(key) != second.get(key)]
        if "error" in first or not first.get("losses"):
            wrong.append("nothing to compare")
        count += bool(wrong)
        print(f"{name:<28}{'equal' if not wrong else 'DIFFERENT: ' + ', '.join(wrong)}")
    total = sum(len(entry.get("losses", ())) for entry in a.values())
    print(f"{len(a) - count} of {len(a)} configs are equal, {total} losses in all")
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run", help="train and ask every config of a checkout")
    runner.add_argument("--source", type=pathlib.Path, default=pathlib.Path("."))
    runner.add_argument("--out", type=pathlib.Path, required=True)
    runner.add_argument("--only", nargs="*", default=[], help="names of configs; by default all")
    comparer = commands.add_parser("compare", help="compare two files that run wrote")
    comparer.add_argument("before", type=pathlib.Path)
    comparer.add_argument("after", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.source, arguments.out, arguments.only)
    else:
        sys.exit(bool(compare(arguments.before, arguments.after)))
