"""The two tables: self-attention in a Transformer, and attention to a source in a recurrent decoder."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from attn_jax.tasks.synthetic.flip_flop import is_read
from attn_jax.tasks.synthetic.in_context import InContextOptions
from attn_jax.tasks.synthetic.recall import is_value
from experiments.matrix.columns import WIDTH, Characters, Column, Sequences
from experiments.matrix.regression import Regression


class Table(NamedTuple):
    """Rows and columns.

    Attributes:
        rows: name -> changes of the options of the model.
        columns: name -> column.
        baseline: row that every other row is compared with.
        about: what a row is, for the page.
        absent: (row, column) -> why there is no such cell.
    """

    rows: Mapping[str, Mapping[str, Any]]
    columns: Mapping[str, Column]
    baseline: str
    about: str
    absent: Mapping[tuple[str, str], str] = {}

    @property
    def cells(self) -> list[tuple[str, str]]:
        """All cells; of a column one after the other, in the order of the rows."""
        return [(row, column) for column in self.columns for row in self.rows if (row, column) not in self.absent]


NO_POSITIONS = {"positions": "none"}


def around(name: str, **options: Any) -> dict[str, Any]:
    """Returns the changes that put one wrapper around the attention."""
    parts = {f"attention.wrappers.parts.{name}.{key}": value for key, value in options.items()}
    return {"attention.wrappers": (name,)} | parts


def normalizer(name: str, **options: Any) -> dict[str, Any]:
    """Returns the changes that choose a normalizer."""
    return {"attention.normalize": name} | {f"attention.normalize.{key}": value for key, value in options.items()}


ROWS: dict[str, Mapping[str, Any]] = {  # changes of the options of a language model
    "softmax": {},
    "scalable_softmax": normalizer("scalable_softmax"),
    "softmax_one": normalizer("softmax_one"),
    "learned_sink": normalizer("learned_sink"),
    "sigmoid": normalizer("unnormalized_sigmoid"),
    "softpick": normalizer("softpick"),
    "sparsemax": normalizer("sparsemax"),
    "entmax15": normalizer("entmax15"),
    "learned_entmax": normalizer("learned_entmax"),
    "top_keys": around("top_keys", count=4),
    "qk_norm": {"attention.score": "qk_norm"},
    "stick_breaking": normalizer("stick_breaking") | NO_POSITIONS,
    "forgetting": {"positions": "forgetting"},
    "forgetting_open": {"positions": "forgetting", "positions.decay_time": 128.0},
    "cope": normalizer("contextual_softmax") | NO_POSITIONS,
    "selective": around("selective"),
    "differential": around("difference"),
    "hopfield": around("hopfield", iterations=2),
    "local_line": around("line", steps=8),
    "parallax": around("parallax"),
    "linear": {"attention": "linear"},
    "retention": {"attention": "retention"},
    "gated_linear": {"attention": "gated_linear"},
    "delta": {"attention": "delta"},
    "gated_delta": {"attention": "gated_delta"},
    "mesa": {"attention": "mesa"},
}

RECALLED = {"model.short_convolution": 4, "task.length": 22, "task.buckets.shapes": ((9, 23),), "decode.max_length": 24}
SORTED = {"task.lengths": (2, 8), "task.buckets.shapes": (9,), "task.batch_size": 16, "decode.max_length": 18}
TWICE = {"trained": {"task.test_lengths": (8,)}, "twice": {"task.test_lengths": (16,)}}
FLIPS = {"task.num_instructions": 16, "task.buckets.shapes": ((1, 33),), "task.batch_size": 16}
ADDED = {"task.digits": (1, 3), "task.buckets.shapes": ((8, 5),), "task.batch_size": 32}
MOVES = {
    "model": "language_model",
    "task.num_things": 3,
    "task.lengths": (1, 6),
    "task.buckets.shapes": ((7, 2),),
    "task.batch_size": 32,
}
FURTHER = {"trained": {"task.test_lengths": (6,)}, "twice": {"task.test_lengths": (12,)}}
COLUMNS: dict[str, Column] = {
    "recall": Sequences("recall", RECALLED, asked=is_value),
    "sort": Sequences("sort_softmax", SORTED, TWICE),
    "reverse": Sequences("sort_softmax", SORTED | {"task.operation": "reverse"}, TWICE),
    "flip_flop": Sequences("flip_flop", FLIPS, asked=is_read),
    "addition": Sequences("addition", ADDED),
    "permutations": Sequences("permutations", MOVES, FURTHER),
    "regression": Regression(InContextOptions(features=2, num_pairs=8, noise=0.25)),
    "characters": Characters("input.txt"),
}

LATENT = {"objective.reading": "reinforce", "objective.baseline": "learned"}
SOURCE_ROWS: dict[str, Mapping[str, Any]] = {  # changes of the options of an encoder-decoder
    "additive": {},
    "dot": {"attention.score": "dot"},
    "scaled_dot": {"attention.score": "scaled_dot"},
    "general": {"attention.score": "general"},
    "concat": {"attention.score": "concat"},
    "gaussian": {"attention.score": "gaussian", "attention.normalize": "kernel_sum"},
    "sparsemax": normalizer("sparsemax"),
    "entmax15": normalizer("entmax15"),
    "learned_entmax": normalizer("learned_entmax"),
    "fusedmax": normalizer("fusedmax"),
    "sigmoid": normalizer("sigmoid"),
    "softmax_one": normalizer("softmax_one"),
    "chain": normalizer("chain"),
    "monotonic": normalizer("monotonic"),
    "local_m": around("local_m"),
    "local_p": around("local_p"),
    "top_keys": around("top_keys", count=4),
    "gate": around("gate"),
    "bahdanau": {"decoder": "bahdanau"},
    "hard": {"objective": "hard"} | LATENT,
    "marginal": {"objective": "marginal"},
    "elbo": {"objective": "elbo"},
    "gumbel": {"objective": "hard", "objective.reading": "gumbel_softmax"},
    "none": {"decoder": "none"},
}
RECURRENT = {
    "hidden_size": WIDTH,
    "embedding_size": WIDTH,
    "dropout": 0.0,
    "decoder.input_feeding": False,
    "attention.score": "additive",
    "attention.score.features": WIDTH,
}
TRANSLATED = {
    "task.valid": ("", ""),
    "task.test": ("dev.en", "dev.ja"),
    "task.vocab_size": (4000, 4000),
    "task.batch_size": 32,
    "decode.unk": "keep",  # only attention could replace an unknown word
}
WIDER = {"hidden_size": 128, "embedding_size": 128, "decoder.readout_size": 128, "attention.score.features": 128}
FORMS = {  # 500 forms are held out for validation
    "task.train": ("german-train-high", ""),
    "task.test": ("german-dev", ""),
    "task.num_examples": 1000,
    "task.batch_size": 32,
}
SOURCE_COLUMNS: dict[str, Column] = {
    "dates": Sequences("quickstart", {"task.batch_size": 32}, model=RECURRENT, steps=500),
    "inflection": Sequences("inflection_soft", FORMS, model=RECURRENT, reads_files=True),
    "scenes": Sequences("scenes_quickstart", {}, model=RECURRENT, metrics=("exact_match", "touch", "point", "cells")),
    "translation": Sequences(
        "enja_soft",
        TRANSLATED,
        model=RECURRENT | WIDER,
        reads_files=True,
        metrics=("bleu", "perplexity"),
        seeds=(0, 1, 2),
    ),
}
TRANSLATORS = ("additive", "dot", "general", "sparsemax", "marginal", "none")  # rows of the translation
SELF = Table(ROWS, COLUMNS, "softmax", "mechanisms of self-attention in a Transformer of two layers of width 64")
ALONG = {(row, "scenes"): "it moves along the words of a text" for row in ("monotonic", "local_m", "local_p")}
SIX = {(row, "translation"): "six rows are measured" for row in SOURCE_ROWS if row not in TRANSLATORS}
SOURCE = Table(
    SOURCE_ROWS, SOURCE_COLUMNS, "additive", "attentions to a source in a recurrent decoder of width 64", ALONG | SIX
)
TABLES = {"self": SELF, "source": SOURCE}
