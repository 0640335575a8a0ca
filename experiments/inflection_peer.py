"""What does another program reach on the same inflections? Neural-transducer, on the same cores.

    git clone https://github.com/shijie-wu/neural-transducer && make -C neural-transducer
    pip install -r requirements-oracles.txt tqdm
    python experiments/inflection_peer.py --program=neural-transducer --data_dir=data/sigmorphon2017

The program of Wu & Cotterell 2019 (arXiv 1905.06319) at commit 8a2cb8e, with soft attention and with monotonic
alignments of first order, German, 1,000 training forms, one seed, one thread. Sizes: embeddings 100, two encoder layers
of 200 in each direction, one decoder layer of 200, dropout 0.4, batches of 20; the options of its example
run-sigmorphon17task1-large-tag.sh else. It halves its learning rate, stops and chooses a model by the dev set, where
its accuracy is measured; experiments/inflection.py chooses nothing there. Its own log is kept in --runs; a run that has
ended is read again. Writes experiments/results/inflection_peer.json and .md.
"""

import argparse
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.errors import UserError, one_line  # noqa: E402
from experiments import peers, raw  # noqa: E402

READINGS = {"soft": ["--arch", "soft"], "monotonic, first order": ["--arch", "hmmfull", "--mono"]}
OPTIONS = ["--dataset", "sigmorphon17task1", "--seed", "0", "--embed_dim", "100", "--src_hs", "200", "--trg_hs", "200"]
OPTIONS += ["--dropout", "0.4", "--src_layer", "2", "--trg_layer", "1", "--max_norm", "5", "--estop", "1e-8"]
OPTIONS += ["--epochs", "40", "--bs", "20", "--indtag"]
ACCURACY = re.compile(r"- (\d+):(\d\d):(\d\d) - dev accuracy is ([\d.]+) at epoch (\d+)")
CHOSEN = re.compile(r"loading \S*\.acc_([\d.]+)\.\S*epoch_(\d+) for testing")
PARAMETERS = re.compile(r"number of parameter (\d+)")


def train(program: pathlib.Path, data_dir: pathlib.Path, reading: str, folder: pathlib.Path) -> str:
    """Returns the log of a training that has ended, after running it if there is none."""
    log = folder / f"{reading}.log"
    if log.exists() and CHOSEN.search(log.read_text()):
        return log.read_text()
    if not (program / "src" / "train.py").exists():
        raise UserError(f"--program={program}: expected a clone of neural-transducer, with src/train.py")
    train_file, dev_file = (data_dir.absolute() / f"german-{part}" for part in ("train-medium", "dev"))
    command = [sys.executable, "src/train.py", *OPTIONS, *READINGS[reading]]
    command += ["--train", str(train_file), "--dev", str(dev_file)]
    command += ["--model", str(folder.absolute() / reading.replace(", ", "_").replace(" ", "_"))]
    return peers.run(command, log, folder=program, environment={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"})


def facts(text: str) -> dict[str, Any]:
    """Reads a log: the accuracy after each epoch, the chosen one, the number of parameters, the seconds.

    Raises:
        UserError: the training has not ended.
    """
    epochs = [(int(epoch), float(value)) for *_, value, epoch in ACCURACY.findall(text)]
    chosen = CHOSEN.search(text)
    if not epochs or chosen is None:
        raise UserError("expected the log of a training that has ended")
    hours, minutes, seconds = map(int, ACCURACY.findall(text)[-1][:3])
    return {
        "accuracy": dict((str(epoch), value) for epoch, value in epochs),
        "chosen": {"epoch": int(chosen[2]), "accuracy": float(chosen[1])},
        "num_parameters": int(PARAMETERS.search(text)[1]),
        "seconds": 3600 * hours + 60 * minutes + seconds,
    }


def report(found: dict[str, dict[str, Any]]) -> str:
    """Formats a table with a row for each reading."""
    rows = []
    for reading, fact in found.items():
        last = max(map(int, fact["accuracy"]))
        chosen = f"{fact['chosen']['accuracy']:.1f} (epoch {fact['chosen']['epoch']})"
        cells = [f"{fact['num_parameters']:,}", chosen, f"{fact['accuracy'][str(last)]:.1f} (epoch {last})"]
        rows.append([reading, *cells, f"{fact['seconds']:,}"])
    return raw.table(["reading", "parameters", "chosen by dev", "last", "s"], rows)


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    return f"""# {__doc__.splitlines()[0]}

{raw.circumstances(record)}

Exact match on the dev set in percent, one seed; seconds with the evaluation after each epoch, one thread, beside other
programs.

{report(record["results"])}
"""


PAGES = (raw.Page("inflection_peer", page),)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True, help="clone of neural-transducer")
    parser.add_argument("--data_dir", type=pathlib.Path, required=True)
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "runs" / "inflection_peer")
    parser.add_argument("--out", type=pathlib.Path, default=raw.RESULTS, help="directory")
    args, begun = parser.parse_args(argv), raw.Begun.now()
    found = {reading: facts(train(args.program, args.data_dir, reading, args.runs)) for reading in READINGS}
    command = "python experiments/inflection_peer.py --program=neural-transducer --data_dir=data/sigmorphon2017"
    print(PAGES[0].save(raw.write(args.out / "inflection_peer.json", found, command=command, begun=begun), args.out))


if __name__ == "__main__":
    with one_line("inflection_peer.py"):
        main()
