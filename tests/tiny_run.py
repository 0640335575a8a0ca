"""Runs small enough for a test: the dates task with eight hidden units, or words in files written on the spot."""

import functools
import json
import pathlib

import numpy as np

from attn_jax.runs import training
from attn_jax.runs.options import change, resolve
from attn_jax.runs.tree import keys
from configs import quickstart

# 200 pairs, eight of them longer than the bucket: three steps an epoch.
TINY = {
    "parallel": "single",
    "task.num_examples": 200,
    "task.valid_size": 20,
    "task.buckets": "fixed",
    "task.buckets.shapes": ((24, 11),),
    "task.batch_size": 64,
    "model.encoder": "gru",
    "model.encoder.bidirectional": False,
    "model.decoder.cell": "gru",
    "model.decoder.bridge": "copy",
    "model.decoder.readout_size": 8,
    "model.readout_size": 8,
    "model.embedding_size": 8,
    "model.hidden_size": 8,
    "model.attention.score": "dot",
    "model.dropout": 0.1,
    "train.num_steps": 10,
    "train.eval_every": 0,
    "train.log_every": 4,
    "optimizer.schedule": "constant",
    "optimizer.learning_rate": 0.01,
    "eval.metrics": ("perplexity",),
    "eval.num_pictures": 0,
}
WORDS = "a bird can dance every fine green hill in june kindly looking more now or perhaps quite".split()


def tiny_config(**changes):
    """quickstart, shrunk; changes are keys with "__" for the dot."""
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    return fitted(quickstart.get_config(), TINY, changes)


@functools.cache
def tiny_options():
    """What makes quickstart tiny, as options of a command line: those of TINY that it has."""
    known = set(keys(tiny_config()))
    return {key: value for key, value in TINY.items() if {key, f"{key}.name"} & known}


def fitted(config, values, changes=()):
    """The config with changes, and with those of the values whose keys it has then."""
    changes = dict(changes)
    config, left = change(config, changes), {key: value for key, value in values.items() if key not in changes}
    for names in (True, False):  # these first: they bring keys
        known = set(keys(config))
        slots = {key for key in left if f"{key}.name" in known}
        config = change(config, {key: left[key] for key in left if (key in slots if names else key in known - slots)})
    return change(config, changes)


def files_config(folder: pathlib.Path, **changes):
    """`tiny_config` of the files that `write_pairs(folder)` writes."""
    files = {
        "data_dir": str(folder),
        "task__name": "parallel_text",
        "task__train": ("train.source", "train.target"),
        "task__num_examples": 0,
        "task__vocabulary": "words",
        "task__vocabulary__min_count": 1,
        "task__buckets": "fixed",
        "task__buckets__shapes": ((16, 16),),
        "task__batch_size": 16,
    }
    return tiny_config(**files | changes)


def write_pairs(folder: pathlib.Path, name: str = "train", count: int = 60) -> tuple[pathlib.Path, pathlib.Path]:
    """name.source, `count` sentences of 3 to 7 words, and name.target, the same in capitals and reversed."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    rows = [rng.choice(WORDS, 3 + i % 5, replace=False) for i in range(count)]
    source, target = folder / f"{name}.source", folder / f"{name}.target"
    source.write_text("".join(" ".join(row) + "\n" for row in rows), encoding="utf-8")
    target.write_text("".join(" ".join(reversed(row)).upper() + "\n" for row in rows), encoding="utf-8")
    return source, target


def timeless(workdir: pathlib.Path) -> list[dict]:
    """The lines of metrics.jsonl without the time they took, which no two runs share."""
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if k not in ("seconds", "tokens_per_second")} for r in records]


def train(config, workdir: pathlib.Path):
    """(run, fitted), to the end or wherever it stops."""
    run = training.open_run(resolve(config), workdir)
    try:
        return run, training.train(run)
    finally:
        run.checkpoints.close()
