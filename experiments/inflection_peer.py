"""What does another program reach on the same inflections? Neural-transducer, on the same cores.

    git clone https://github.com/shijie-wu/neural-transducer && make -C neural-transducer
    pip install -r requirements-oracles.txt tqdm
    python experiments/inflection_peer.py --program=neural-transducer --data_dir=data/sigmorphon2017 --language=german

The program of Wu & Cotterell 2019 (arXiv 1905.06319) at commit 8a2cb8e, with soft attention and with monotonic
alignments of first order, from 1,000 training forms and with --forms=10000 from 10,000, one seed, one thread. Sizes:
embeddings 100, two encoder layers of 200 in each direction, one decoder layer of 200, dropout 0.4, batches of 20, at
most 40 epochs, or 20 of 10,000 forms; the options of its example run-sigmorphon17task1-large-tag.sh else. It halves its
learning rate, stops and chooses a model by the dev set, where its accuracy is measured; experiments/inflection.py
chooses nothing there. Its own log is kept in --runs, with its settings beside it; a run that has ended is read again if
it is of the same settings. Writes experiments/results/inflection_peer.json and .md, with the rows that were there of
other runs; a row has the command, commit and date of its training.
"""

import argparse
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.files import text_checksum  # noqa: E402
from attn_jax.data.token_index import checksum_of  # noqa: E402
from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.paths import user_path  # noqa: E402
from experiments import peers, raw  # noqa: E402

READINGS = {"soft": ["--arch", "soft"], "monotonic, first order": ["--arch", "hmmfull", "--mono"]}
OPTIONS = ["--dataset", "sigmorphon17task1", "--seed", "0", "--embed_dim", "100", "--src_hs", "200", "--trg_hs", "200"]
OPTIONS += ["--dropout", "0.4", "--src_layer", "2", "--trg_layer", "1", "--max_norm", "5", "--estop", "1e-8"]
OPTIONS += ["--bs", "20", "--indtag"]
SIZES = {1000: ("medium", 40), 10_000: ("high", 20)}  # forms -> (size in the name of the file, epochs)
FORMS = 1000  # without --forms
ACCURACY = re.compile(r"- (\d+):(\d\d):(\d\d) - dev accuracy is ([\d.]+) at epoch (\d+)")
CHOSEN = re.compile(r"loading \S*\.acc_([\d.]+)\.\S*epoch_(\d+) for testing")
DISTANCE = re.compile(r"dev average edit distance is ([\d.]+) at epoch (\d+)")
LIMIT = re.compile(r"maximum training \d+ steps \((\d+) epochs\)")
PARAMETERS = re.compile(r"number of parameter (\d+)")


class Setting(NamedTuple):
    """A run of the other program."""

    language: str
    reading: str
    forms: int  # of training

    @property
    def name(self) -> str:
        """Name of its files."""
        return f"{self.language}_{self.forms}_{self.reading.replace(', ', '_').replace(' ', '_')}"


def train(program: pathlib.Path, data_dir: pathlib.Path, run: Setting, folder: pathlib.Path) -> str:
    """Returns the log of a training that has ended, after running it if there is none.

    Raises:
        UserError: the log is of other settings, the program or its data is not there, or it ended with an error.
    """
    log = folder / f"{run.name}.log"
    size, epochs = SIZES[run.forms]
    options = [*OPTIONS, "--epochs", str(epochs), *READINGS[run.reading]]
    files = {
        part: (data_dir / f"{run.language}-{name}").absolute()
        for part, name in (("train", f"train-{size}"), ("dev", "dev"))
    }
    settings = values(options) | {part: file.name for part, file in files.items()}

    def data() -> int | None:
        if not all(file.exists() for file in files.values()):
            return None
        return text_checksum([checksum_of(file) for file in files.values()])

    if log.exists() and chosen(log.read_text()):
        peers.check(log, settings, data)
        return log.read_text()
    if not (program / "src" / "train.py").exists():
        raise UserError(f"--program={program}: expected a clone of neural-transducer, with src/train.py")
    for file in files.values():
        if not file.exists():
            raise UserError(f"{file}: there is no such file; expected the files of --language={run.language}")
    command = [sys.executable, "src/train.py", *options]
    command += [text for part, file in files.items() for text in (f"--{part}", str(file))]
    command += ["--model", str(folder.absolute() / run.name)]
    peers.keep(log, settings, command_of(program, data_dir, *run), data())
    return peers.run(command, log, folder=program, environment={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"})


def chosen(text: str) -> tuple[int, float] | None:
    """Reads (epoch, accuracy) of the parameters that the program takes; None if the training has not ended.

    It names them only if it has stopped before the last epoch. Otherwise they are found by its rule: of the epochs that
    are at least as good as the best one before, in accuracy and in edit distance, the last.
    """
    if named := CHOSEN.search(text):
        return int(named[2]), float(named[1])
    limit, distances = LIMIT.search(text), {int(epoch): float(value) for value, epoch in DISTANCE.findall(text)}
    if not limit or int(limit[1]) - 1 not in distances:
        return None
    best = None
    for *_, value, number in ACCURACY.findall(text):
        epoch, accuracy = int(number), float(value)
        if best is None or (accuracy >= best[1] and distances[epoch] <= distances[best[0]]):
            best = epoch, accuracy
    return best


def values(options: Sequence[str]) -> dict[str, Any]:
    """Returns {option: its value}, True of an option without one."""
    found: dict[str, Any] = {}
    for text in options:
        if text.startswith("--"):
            name = text.removeprefix("--")
            found[name] = True
        else:
            found[name] = text
    return found


def command_of(
    program: pathlib.Path, data_dir: pathlib.Path, language: str, reading: str | None, forms: int = FORMS
) -> str:
    """Returns what is to be typed to measure a reading, or all; folders are those of the usage above."""
    names = [f"--program={program.absolute().name}", f"--data_dir=data/{data_dir.absolute().name}"]
    names += [f"--language={language}"] + [f"--forms={forms}"] * (forms != FORMS)
    return raw.command("inflection_peer", *names, *([f"--reading={reading}"] if reading else []))


def facts(text: str) -> dict[str, Any]:
    """Reads a log: the accuracy after each epoch, the chosen one, the number of parameters, the seconds.

    Raises:
        UserError: the training has not ended.
    """
    epochs = [(int(epoch), float(value)) for *_, value, epoch in ACCURACY.findall(text)]
    taken = chosen(text)
    if not epochs or taken is None:
        raise UserError("expected the log of a training that has ended")
    hours, minutes, seconds = map(int, ACCURACY.findall(text)[-1][:3])
    return {
        "accuracy": dict((str(epoch), value) for epoch, value in epochs),
        "chosen": {"epoch": taken[0], "accuracy": taken[1]},
        "num_parameters": int(PARAMETERS.search(text)[1]),
        "seconds": 3600 * hours + 60 * minutes + seconds,
    }


def report(found: list[dict[str, Any]]) -> str:
    """Formats a table with a row for each run; commit and date are those of its training, where they were kept."""
    rows, known = [], any("origin" in fact for fact in found)
    for fact in found:
        run, last = Setting(**fact["setting"]), max(map(int, fact["accuracy"]))
        taken = f"{fact['chosen']['accuracy']:.1f} (epoch {fact['chosen']['epoch']})"
        cells = [f"{fact['num_parameters']:,}", taken, f"{fact['accuracy'][str(last)]:.1f} (epoch {last})"]
        rows.append([run.language, run.reading, f"{run.forms:,}", *cells, f"{fact['seconds']:,}"])
        rows[-1] += [raw.measured_at(fact.get("origin"))] * known
    head = ["language", "reading", "forms", "parameters", "chosen by dev", "last", "s"]
    return raw.table(head + ["measured at"] * known, rows, left=2)


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    runs = record["results"]["runs"]
    commands = dict.fromkeys(fact["origin"]["command"] for fact in runs if "origin" in fact)
    listed = "\nCommands of the rows with a commit:\n\n" + "".join(f"- `{command}`\n" for command in commands)
    return f"""# {__doc__.splitlines()[0]}

{raw.circumstances(record)}

These lines are of the last command that wrote rows; each row has the commit and the date of its own training where they
were kept.

Exact match on the dev set in percent, one seed; seconds with the evaluation after each epoch, one thread, beside other
programs.

{report(runs)}
{listed * bool(commands)}"""


PAGES = (raw.Page("inflection_peer", page),)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=user_path, required=True, help="clone of neural-transducer")
    parser.add_argument("--data_dir", type=user_path, required=True)
    parser.add_argument("--language", required=True, help="of the files, such as german")
    parser.add_argument("--forms", type=int, choices=SIZES, default=FORMS)
    parser.add_argument("--reading", choices=READINGS, default=None, help="default: all")
    parser.add_argument("--runs", type=user_path, default=ROOT / "runs" / "inflection_peer")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    args = parser.parse_args(argv)
    path = args.out / "inflection_peer.json"
    begun = raw.begin(path)
    runs = [Setting(args.language, name, args.forms) for name in READINGS if args.reading in (None, name)]
    found = []
    for run in runs:
        fact = facts(train(args.program, args.data_dir, run, args.runs))
        origin = peers.origin(args.runs / f"{run.name}.log")
        found.append({"setting": run._asdict(), **fact} | ({"origin": origin} if origin else {}))
    earlier = raw.read(path)["results"]["runs"] if path.exists() else []
    kept = {Setting(**fact["setting"]): fact for fact in [*earlier, *found]}
    command = command_of(args.program, args.data_dir, args.language, args.reading, args.forms)
    record = raw.write(path, {"runs": [kept[run] for run in sorted(kept)]}, command=command, begun=begun)
    print(PAGES[0].save(record, args.out))


if __name__ == "__main__":
    with one_line("inflection_peer.py"):
        main()
