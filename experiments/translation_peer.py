"""What does another program reach on the same sentences? JoeyNMT with attention, on the same cores.

    python -m venv joey && joey/bin/pip install joeynmt==2.3.0 torch==2.13.0 "numpy<2" importlib_metadata
    python experiments/translation_peer.py --python=joey/bin/python --data_dir=data/enja

JoeyNMT (Kreutzer 2019, arXiv 1907.12484) is given the 20,000 training pairs and the dev sentences of
experiments/attention.py, the sizes of its model with attention (embeddings of 256, an encoder of 64 in each direction,
a decoder of 128, input feeding), the same optimizer and number of epochs, one thread. Different are: its rate is
constant, dropout of 0.3 is on the hidden state alone (here on embeddings, encoder states and readout), the last
parameters are measured (here the mean of four checkpoints), and the output layer is not tied to the embeddings. BLEU is
of the tokens of the corpus, greedy; nothing is chosen.

What its training prints as "ppl" is exp of the divergence from smoothed targets, which is smaller than a perplexity
where label smoothing is on, so the sentences are scored once more without smoothing, by `python -m joeynmt test`. Its
own logs are kept in --runs, with their settings beside them; a run that has ended is read again if it is of the same
settings. Writes experiments/results/translation_peer.json and .md.
"""

import argparse
import json
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from attn_jax.data.files import text_checksum  # noqa: E402
from attn_jax.errors import UserError, one_line  # noqa: E402
from attn_jax.paths import expanded, user_path  # noqa: E402
from attn_jax.runs.build import build_task  # noqa: E402
from attn_jax.runs.options import change, resolve  # noqa: E402
from attn_jax.tasks import Pairs  # noqa: E402
from configs import enja_soft  # noqa: E402
from experiments import peers, raw  # noqa: E402

SIDES = {"en": "source", "ja": "target"}
SIDE = {"level": "word", "lowercase": False, "max_length": 100, "voc_limit": 8000, "voc_min_freq": 2}
RNN = {"type": "recurrent", "rnn_type": "lstm", "embeddings": {"embedding_dim": 256}, "dropout": 0.3, "num_layers": 1}
LAYER = {"input_feeding": True, "init_hidden": "bridge", "attention": "luong", "hidden_dropout": 0.3}
TRAINING = {
    "optimizer": "adam",
    "adam_betas": [0.9, 0.999],
    "learning_rate": 0.0015,
    "scheduling": "exponential",
    "decrease_factor": 1.0,  # after each epoch: the rate is constant
    "loss": "crossentropy",
    "label_smoothing": 0.1,
    "normalization": "batch",
    "batch_size": 128,
    "batch_type": "sentence",
    "early_stopping_metric": "ppl",
    "epochs": 8,
    "validation_freq": 157,
    "logging_freq": 157,
    "clip_grad_norm": 1.0,
    "overwrite": True,
    "shuffle": True,
    "keep_best_ckpts": 1,
    "print_valid_sents": [],
}
NUM_PAIRS = 20_000  # for training
MEASURED = re.compile(r"Evaluation result \(greedy\): bleu: +([\d.]+), loss: +[\d.]+, ppl: +([\d.]+)")
SCORED = re.compile(r"Evaluation result \(scoring\) loss: +[\d.]+, ppl: +([\d.]+)")
PARAMETERS = re.compile(r"Total params: (\d+)")
EPOCH = re.compile(r"Epoch +(\d+), total training loss: .* ([\d.]+)\[sec\]")


def sentences(data_dir: str) -> dict[str, Pairs]:
    """Returns the training and dev pairs of experiments/attention.py."""
    config = change(enja_soft.get_config(), {"data_dir": data_dir, "task.num_examples": NUM_PAIRS})
    return build_task(resolve(config)).splits


def checksum_of(splits: dict[str, Pairs]) -> int:
    """Returns the checksum of the training and dev pairs."""
    return text_checksum([splits[name].checksum for name in ("train", "valid")])


def config_of(folder: pathlib.Path, seed: int, scored: bool = False) -> dict[str, Any]:
    """Returns the config of JoeyNMT, to train or to score the dev sentences by the last parameters."""
    data = {language: {"lang": language, **SIDE} for language in SIDES}
    return {
        "name": "enja",
        "joeynmt_version": "2.3.0",
        "model_dir": str(folder / f"model{seed}"),
        "use_cuda": False,
        "fp16": False,
        "random_seed": seed,
        "data": {
            "train": str(folder / "train"),
            "dev": str(folder / "dev"),
            "dataset_type": "plain",
            "src": data["en"],
            "trg": data["ja"],
        },
        "testing": {
            "beam_size": 1,
            "eval_metrics": ["bleu"],
            "sacrebleu_cfg": {"tokenize": "none"},
            "batch_size": 100,
            "batch_type": "sentence",
            **({"return_prob": "ref", "load_model": str(folder / f"model{seed}" / "latest.ckpt")} if scored else {}),
        },
        "training": TRAINING | ({"label_smoothing": 0.0} if scored else {}),
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "normal",
            "embed_init_weight": 0.1,
            "encoder": {**RNN, "hidden_size": 64, "bidirectional": True},
            "decoder": {**RNN, "hidden_size": 128, **LAYER},
        },
    }


def write_config(folder: pathlib.Path, seed: int, scored: bool = False) -> pathlib.Path:
    """Writes the config of JoeyNMT; JSON is YAML."""
    path = folder / f"seed{seed}{'.scored' if scored else ''}.yaml"
    path.write_text(json.dumps(config_of(folder, seed, scored), indent=1) + "\n", encoding="utf-8")
    return path


def settings_of(seed: int, scored: bool = False) -> dict[str, Any]:
    """Returns what the log of a seed depends on: the config, wherever its folder is, and the number of pairs."""
    return {**config_of(pathlib.Path(), seed, scored), "num_pairs": NUM_PAIRS}


def train(python: pathlib.Path, data_dir: str, folder: pathlib.Path, seed: int) -> str:
    """Returns the logs of a training that has ended and of its scores, after running it if there are none.

    Raises:
        UserError: the logs are of other settings, or the program is not there, or ended with an error.
    """
    log, scored = folder / f"seed{seed}.log", folder / f"seed{seed}.scored.log"
    if log.exists() and len(EPOCH.findall(log.read_text())) == TRAINING["epochs"]:
        peers.check(log, settings_of(seed), lambda: checksum_of(sentences(data_dir)))
    else:
        scored.unlink(missing_ok=True)  # it is of the parameters of an earlier training
        _train(python, data_dir, folder, seed, log)
    if scored.exists() and SCORED.search(scored.read_text()):
        peers.check(scored, settings_of(seed, scored=True))
    else:
        config = write_config(folder.absolute(), seed, scored=True)
        peers.keep(scored, settings_of(seed, scored=True), command_of([seed]))
        peers.run([str(python), "-m", "joeynmt", "test", str(config)], scored)
    return log.read_text() + scored.read_text()


def _train(python: pathlib.Path, data_dir: str, folder: pathlib.Path, seed: int, log: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    splits = sentences(data_dir)
    for name, split in (("train", splits["train"]), ("dev", splits["valid"])):
        for language, side in SIDES.items():
            text = "".join(f"{line}\n" for line in getattr(split, side))
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    config = write_config(folder.absolute(), seed)
    peers.keep(log, settings_of(seed), command_of([seed]), checksum_of(splits))
    peers.run([str(python), "-m", "joeynmt", "train", str(config), "--skip-test"], log)


def command_of(seeds: Sequence[int]) -> str:
    """Returns what is to be typed to measure seeds; folders are those of the usage above."""
    chosen = ["--seeds", *map(str, seeds)] if list(seeds) != [0] else []
    return raw.command("translation_peer", "--python=joey/bin/python", "--data_dir=data/enja", *chosen)


def facts(text: str) -> dict[str, Any]:
    """Reads a log: BLEU after each epoch, the last perplexity, the number of parameters, the seconds.

    Raises:
        UserError: the training has not ended, or has not been scored.
    """
    measured = [(float(bleu), float(ppl)) for bleu, ppl in MEASURED.findall(text)]
    seconds = [float(value) for _, value in EPOCH.findall(text)]
    scored = SCORED.search(text)
    if len(seconds) < TRAINING["epochs"] or not measured or not scored:
        raise UserError("expected the log of a training that has ended, and of its scores")
    return {
        "bleu": [bleu for bleu, _ in measured],
        "perplexity": float(scored[1]),
        "smoothed_perplexity": [ppl for _, ppl in measured],  # as its training prints it
        "num_parameters": int(PARAMETERS.search(text)[1]),
        "seconds": round(sum(seconds), 1),
    }


def report(found: dict[str, dict[str, Any]]) -> str:
    """Formats a table with a row for each seed."""
    rows = []
    for seed, fact in found.items():
        last = f"{fact['bleu'][-1]:.1f}", f"{fact['perplexity']:.2f}"
        course = ", ".join(f"{bleu:.1f}" for bleu in fact["bleu"])
        rows.append([seed, f"{fact['num_parameters']:,}", *last, course, f"{fact['seconds']:.0f}"])
    return raw.table(["seed", "parameters", "BLEU", "perplexity", "BLEU after each epoch", "s"], rows)


def page(record: dict[str, Any]) -> str:
    """Formats the page of results."""
    return f"""# {__doc__.splitlines()[0]}

{raw.circumstances(record)}

BLEU (greedy, tokens of the corpus) and perplexity on the 500 dev sentences after the last of eight epochs; seconds of
training with one thread, beside other programs. The model of this package: [attention.md](attention.md).

{report(record["results"])}
"""


PAGES = (raw.Page("translation_peer", page),)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=user_path, required=True, help="a Python that has JoeyNMT")
    parser.add_argument("--data_dir", type=expanded, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--runs", type=user_path, default=ROOT / "runs" / "translation_peer")
    parser.add_argument("--out", type=user_path, default=raw.RESULTS, help="directory")
    args = parser.parse_args(argv)
    path = args.out / "translation_peer.json"
    begun = raw.begin(path)
    found = {str(seed): facts(train(args.python, args.data_dir, args.runs, seed)) for seed in args.seeds}
    print(PAGES[0].save(raw.write(path, found, command=command_of(args.seeds), begun=begun), args.out))


if __name__ == "__main__":
    with one_line("translation_peer.py"):
        main()
