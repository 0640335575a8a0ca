"""The runs that are abused: four small ones, trained once, each with its data and the answers it gave at first.

words     a recurrent seq2seq on files of words, whose target is the source reversed and in capitals
table     kernel regression of a CSV file, y = 3 a - 2 b + 1
stories   an end-to-end memory network on stories that the package makes
labels    a convolutional classifier of lines TEXT TAB LABEL
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
from case import Case, Result, Skip, fill, judge, lost, snapshot
from launch_server import ENVIRONMENT, ROOT, Server
from tiny_run import WORDS, tiny_options, write_pairs

RUNS = ("words", "table", "stories", "labels")
SECONDS = 120  # that a case may take
QUICKSTART = f"--config={ROOT}/configs/quickstart.py"
TABLE = f"--config={ROOT}/configs/kernel_csv.py"
STORIES = f"--config={ROOT}/configs/babi_memn2n.py"
LABELS = f"--config={ROOT}/configs/language_id_conv.py"
PLACES = "bathroom hallway kitchen garden office".split()


def options(config: str, values: dict) -> list[str]:
    """A config and overrides of it, as they are written on the command line."""
    return [config, *(f"--config.{key}={value}" for key, value in values.items())]


def words(data: str, **changes) -> list[str]:
    """A training on the files that `write_data` writes to the folder words/data; "__" in a name is a dot."""
    task = {"name": "parallel_text", "train": ("train.source", "train.target"), "test": ("test.source", "test.target")}
    task |= {"num_examples": 0, "vocabulary": "words", "vocabulary.min_count": 1, "valid_size": 10}
    task |= {"buckets.shapes": ((16, 16),), "batch_size": 16}
    values = tiny_options() | {f"task.{key}": value for key, value in task.items()}
    values |= {"train.num_steps": 40, "train.eval_every": 20, "train.log_every": 20, "optimizer.learning_rate": 0.03}
    values |= {"decode.batch_size": 4, "decode.max_length": 12, "data_dir": data}
    return options(QUICKSTART, values | _dotted(changes))


def table(data: str, **changes) -> list[str]:
    """A training on points.csv."""
    values = {"task.valid_size": 5, "task.batch_size": 32, "train.num_steps": 10, "train.eval_every": 10}
    return options(TABLE, values | {"eval.num_pictures": 0, "data_dir": data} | _dotted(changes))


def stories(data: str = "", **changes) -> list[str]:
    """A training on stories that the package makes."""
    values = {"seeds": "(0, 1)", "task.num_examples": 100, "task.max_sentences": 10, "model.memory_size": 10}
    values |= {"model.linear_steps": 5, "train.num_steps": 12, "train.eval_every": 6, "eval.num_pictures": 0}
    return options(STORIES, values | ({"data_dir": data} if data else {}) | _dotted(changes))


def labels(data: str, **changes) -> list[str]:
    """A training on labels.tsv."""
    task = {"name": "labelled_text", "train": ("labels.tsv", ""), "vocabulary": "words", "vocabulary.min_count": 1}
    task |= {"valid_size": 10, "buckets": "fixed", "buckets.shapes": ((12, 2),), "batch_size": 16}
    values = {"parallel": "single"} | {f"task.{key}": value for key, value in task.items()}
    values |= {"model.embedding_size": 8, "model.hidden_size": 8, "model.readout_size": 8}
    values |= {"model.encoder.num_layers": 1, "train.num_steps": 20, "train.eval_every": 10, "eval.num_pictures": 0}
    return options(LABELS, values | {"data_dir": data} | _dotted(changes))


def _dotted(changes: dict) -> dict:
    return {key.replace("__", "."): value for key, value in changes.items()}


MAKERS = {"words": words, "table": table, "stories": stories, "labels": labels}
# What is asked of each run, before and after: (mode, more options, standard input).
QUESTIONS = {
    "words": ("score", (), b"a bird can\tCAN BIRD A\nfine green hill in june\tJUNE IN HILL GREEN FINE\n"),
    "table": ("predict", ("--config.decode.with_scores",), b"0.5,0.25\n0.1,0.9\n"),
    "stories": ("score", (), b"mary moved to the office . where is mary ?\toffice\n"),
    "labels": ("score", (), b"a fine bird\tgood\ndance every hill\tbad\n"),
}


def write_data(folder: pathlib.Path) -> None:
    """The files that the runs are trained on, name/data for each of RUNS."""
    write_pairs(folder / "words" / "data")
    write_pairs(folder / "words" / "data", "test", count=7)
    rng = np.random.default_rng(0)
    for name in RUNS:
        (folder / name / "data").mkdir(parents=True, exist_ok=True)
    rows = [(a, b, 3 * a - 2 * b + 1) for a, b in rng.uniform(0, 1, (40, 2)).round(3)]
    text = "a,b,y\n" + "".join(f"{a:g},{b:g},{y:.6g}\n" for a, b, y in rows)
    (folder / "table" / "data" / "points.csv").write_text(text)
    lines = [(" ".join(rng.choice(WORDS, 4)), i % 2) for i in range(60)]
    text = "".join(f"{line} {('sad', 'glad')[label]}\t{('bad', 'good')[label]}\n" for line, label in lines)
    (folder / "labels" / "data" / "labels.tsv").write_text(text)
    text = ""
    for i in range(30):
        people, places = rng.permutation(["Mary", "John"]), rng.choice(PLACES, 2, replace=False)
        text += "".join(f"{n} {people[n - 1]} moved to the {places[n - 1]}.\n" for n in (1, 2))
        text += f"3 Where is {people[i % 2]}?\t{places[i % 2]}\t{1 + i % 2}\n"
    (folder / "stories" / "data" / "own.txt").write_text(text)


class Sandbox:
    """A folder, which exists, with the runs and the cases' own folders, and a server that runs commands."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.runs = folder, {name: folder / name / "run" for name in RUNS}
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="server", dir=folder))
        self.server = Server(self.scratch)

    def close(self) -> None:
        """Ends the server."""
        self.server.__exit__()
        shutil.rmtree(self.scratch)

    def train(self) -> None:
        """Trains the runs and asks each its questions; answers.json keeps the answers, and says that this was done."""
        path, answers = self.folder / "answers.json", {}
        if path.exists():
            return
        write_data(self.folder)
        for name in RUNS:
            shutil.rmtree(self.runs[name], ignore_errors=True)
            data = "" if name == "stories" else str(self.folder / name / "data")
            done = self.command([*MAKERS[name](data), f"--workdir={self.runs[name]}"], seconds=600)
            if done.code:
                raise SystemExit(f"the run {name} cannot be trained: {done.err[-2000:]}")
            asked = self.ask(name, self.runs[name])
            if asked.code or not asked.out.strip():
                raise SystemExit(f"the run {name} cannot be used: {asked.err[-2000:]}")
            answers[name] = asked.out
        path.write_text(json.dumps(answers))

    def ask(self, name: str, workdir: pathlib.Path) -> Result:
        """The answers of a work directory to the run's questions."""
        return self.command(*question(name, workdir))

    def command(self, argv, stdin: bytes = b"", stdout: str = "", seconds: float = SECONDS) -> Result:
        """A command in a fork of the server, killed after so many seconds."""
        job = self.server.start(*argv, stdin=stdin, stdout=pathlib.Path(stdout) if stdout else None)
        late: list[bool] = []

        def kill() -> None:
            late.append(True)
            os.kill(job.pid, 9)

        timer = threading.Timer(seconds, kill)
        timer.start()
        try:
            code = self.server.ask({"wait": job.pid})
        finally:
            timer.cancel()
        read = lambda path: path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""  # noqa: E731
        return Result(code, read(job.out), read(job.err), slow=bool(late))

    def alone(self, argv, stdin: bytes, stdout: str, environment: dict[str, str]) -> Result:
        """`python launch.py` itself."""
        out = open(stdout, "wb") if stdout else subprocess.PIPE
        options = {"env": ENVIRONMENT | environment, "cwd": ROOT, "stdout": out, "stderr": subprocess.PIPE}
        command = [sys.executable, str(ROOT / "launch.py"), *argv]
        try:
            done = subprocess.run(command, input=stdin, timeout=SECONDS, **options)
        except subprocess.TimeoutExpired as error:
            return Result(-9, "", (error.stderr or b"").decode(errors="replace"), slow=True)
        finally:
            if stdout:
                out.close()
        texts = [(data or b"").decode(errors="replace") for data in (done.stdout, done.stderr)]
        return Result(done.returncode, *texts)

    def attempt(self, case: Case, place: str) -> dict:
        """What became of a case, tried in a folder of this name: id, verdict, message, seconds."""
        here, begin = self.folder / "cases" / place, time.monotonic()
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir(parents=True)
        try:
            verdict, message = self._attempt(case, here)
        except Skip as skip:
            verdict, message = "skipped", str(skip)
        finally:
            shutil.rmtree(here, ignore_errors=True)
        message = " | ".join(message.replace(str(here), "HERE").replace(str(self.folder), "RUNS").splitlines())
        found = {"id": case.id, "expected": case.expects, "verdict": verdict, "message": message[:400]}
        return found | {"seconds": round(time.monotonic() - begin, 2)}

    def _attempt(self, case: Case, here: pathlib.Path) -> tuple[str, str]:
        if case.run:
            shutil.copytree(self.runs[case.run], here / "run")
        if case.data:
            shutil.copytree(self.folder / case.data / "data", here / "data")
        if case.prepare:
            case.prepare(here)
        data = {f"{name}_data": self.folder / name / "data" for name in RUNS}
        argv = [fill(argument, here, **self.runs, **data) for argument in case.argv]
        originals = {name: snapshot(path, contents=False) for name, path in self.runs.items()}

        def run() -> Result:
            if case.alone is not None:
                return self.alone(argv, case.stdin, case.stdout, case.alone)
            return self.command(argv, case.stdin, case.stdout)

        with case.around(here) if case.around else contextlib.nullcontext():
            before, result = snapshot(here), run()
            after = snapshot(here)
        if result.code == 0:
            before = {name: content for name, content in before.items() if name.startswith(("mine", "data"))}
        harmed = lost(before, after)
        for name, files in originals.items():
            harmed += [f"{name}/{file}" for file in lost(files, snapshot(self.runs[name], contents=False))]
        return judge(case, here, result, harmed)


def question(name: str, workdir: pathlib.Path | str) -> tuple[list[str], bytes]:
    """(argv, standard input) of the questions that a run is asked."""
    mode, more, stdin = QUESTIONS[name]
    return [f"--mode={mode}", f"--workdir={workdir}", *more], stdin
