"""What a column trains and measures: texts of a task, and the characters of a text; regression.py has one of numbers.

A column opens a row, and gives what one cell needs; the attention of the row is all that differs within a column.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.data.pairs import Pairs
from attn_jax.data.sizes import TextSizes
from attn_jax.data.vocabulary import Vocabulary
from attn_jax.errors import UserError
from attn_jax.evaluation.kinds import TOKENS, Setup
from attn_jax.models.base import Model
from attn_jax.models.setting import Setting
from attn_jax.models.transformer.options import LanguageModelOptions
from attn_jax.parts import read
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import RunOptions, change, resolve
from attn_jax.runs.tree import resolve_tree
from attn_jax.token_ids import BOS, EOS, PAD, SPECIAL
from attn_jax.types import Batch, Bool, Int, Params, PRNGKeyArray

ALL: dict[str, dict[str, Any]] = {"test": {}}
WIDTH = 64
SEEDS = (0, 1, 2, 3, 4)
STEPS = 2000
NAMES = {"exact_match": "exact outputs", "bleu": "BLEU"}
MODEL = {  # options of the language model of every cell
    "hidden_size": WIDTH,
    "num_layers": 2,
    "num_heads": 1,
    "feed_forward_size": 4 * WIDTH,
    "positions": "sinusoidal",
    "share_embeddings": True,
    "dropout": 0.0,
    "attention.score": "scaled_dot",
}
Asked = Callable[[Int[np.ndarray, "b t"], Vocabulary], Bool[np.ndarray, "b t"]]


class Opened(NamedTuple):
    """A cell: a model, its data and its measures."""

    init: Callable[[PRNGKeyArray], Params]
    loss_fn: Callable[..., Any]  # (params, batch, rng, step) -> (summed loss, metrics)
    batches: Callable[[Sequence[int]], Callable[[int], Batch]]  # seeds -> step -> batch with an axis of the seeds
    # (parameters, "valid" or a test) -> measure -> value of each seed; the first measure is the score, in percent
    score: Callable[[Sequence[Params], str], Mapping[str, list[float]]]
    weights: Callable[[Params], Mapping[str, Any]]  # {"tokens", "maps" [layer, query, key]} of one example


class Column(Protocol):
    """A task that a row is trained on.

    Attributes:
        tests: names of the tests.
        seeds: seeds that count.
        steps: steps of training.
        score_name: what is measured, in percent.
        reads_files: needs `data_dir`.
    """

    tests: Mapping[str, Any]
    seeds: Sequence[int]
    steps: int
    score_name: str
    reads_files: bool

    def open(self, row: Mapping[str, Any], data_dir: str = "", **changes: Any) -> Opened:
        """Builds the model of a row, and the data.

        Args:
            row: changes of the options of the model.
            data_dir: folder of files, for a column that reads some.
            **changes: of the options of the column, with names joined by dots.

        Raises:
            UserError: there is no such file.
        """


class Sequences:
    """A task of the package, with the settings of a config.

    Without `asked`, the score is the first of `metrics`, in percent, and the others are measured beside it; with it,
    the percentage of asked target tokens that have the largest probability.
    """

    def __init__(
        self,
        config: str,
        changes: Mapping[str, Any],
        tests: Mapping[str, Any] = ALL,
        asked: Asked | None = None,
        model: Mapping[str, Any] = MODEL,
        reads_files: bool = False,
        metrics: Sequence[str] = ("exact_match",),
        seeds: Sequence[int] = SEEDS,
        steps: int = STEPS,
    ):
        self.config, self.changes, self.tests, self.asked = config, dict(changes), tests, asked
        self.model, self.reads_files, self.metrics, self.seeds = model, reads_files, metrics, seeds
        self.steps = steps
        self.score_name = NAMES.get(metrics[0], metrics[0]) if asked is None else "right answers"

    def options(self, row: Mapping[str, Any], test: str = "", **changes: Any) -> RunOptions:
        """Returns the options of a cell, with the test split of one of its tests."""
        common = {"parallel": "single", "task.valid_size": 500, "decode.batch_size": 250}
        common |= {f"model.{key}": value for key, value in self.model.items()}
        config = change(change(load_config_file(self.config), self.changes), common)
        config = change(config, {f"model.{key}": value for key, value in row.items()})
        return resolve(change(config, (self.tests[test] if test else {}) | changes))

    def open(self, row: Mapping[str, Any], data_dir: str = "", **changes: Any) -> Opened:
        changes |= {"data_dir": data_dir} if self.reads_files else {}
        options = self.options(row, **changes)
        task = build_task(options)
        setup = build_setup(options, task.kept)
        right = percent_first(setup.model)

        def batches(seeds: Sequence[int]) -> Callable[[int], Batch]:
            made = task.batches(**setup.batch_options, seeds=seeds)
            if len(seeds) > 1:
                return made.batch_at
            return lambda step: jax.tree.map(lambda x: x[None], made.batch_at(step))

        def score(params: Sequence[Params], test: str) -> Mapping[str, list[float]]:
            split = task if test == "valid" else build_task(self.options(row, test, **changes))
            pairs = split.splits["valid" if test == "valid" else "test"]
            if self.asked is None:
                values = setup.evaluator.measure(list(params), pairs, self.metrics).values
                return {name: [float(x) for x in values[name]["seeds"]] for name in self.metrics}
            batch = all_rows(setup, pairs)
            where = self.asked(batch["target_out"], task.target_vocabulary)
            return {self.score_name: [right(one, batch, where) for one in params]}

        def weights(params: Params) -> Mapping[str, Any]:
            batch = all_rows(setup, task.splits["valid"].select([0]))
            if setup.model.reads_target:
                return example_of(setup.model, params, batch, task.target_vocabulary.tokens)
            written = task.target_vocabulary.tokens([int(i) for i in batch["target_out"][0] if i != PAD])
            maps = np.asarray(setup.model.attention_weights(params, jax.tree.map(jnp.asarray, batch)))[
                :, : len(written)
            ]
            words = getattr(batch["source"], "ndim", 0) == 2
            source = task.source_vocabulary.tokens([int(i) for i in batch["source"][0] if i != PAD]) if words else []
            return {"tokens": source, "queries": written, "maps": maps[..., : len(source) or maps.shape[-1]]}

        example = jax.tree.map(lambda x: jnp.asarray(x[0]), batches((0,))(0))
        return Opened(lambda rng: setup.model.init(rng, example), setup.model.loss_fn, batches, score, weights)


class Characters:
    """The next character of a text, in windows; the score is the percentage of first choices that are right.

    The first nine tenths of the file are for training, the next twentieth for validation and the last for the test.
    """

    def __init__(self, file: str, length: int = 48, batch_size: int = 16, num_windows: int = 500):
        self.file, self.length, self.batch_size, self.num_windows = file, length, batch_size, num_windows
        self.tests, self.seeds, self.steps, self.score_name, self.reads_files = (
            ALL,
            SEEDS,
            STEPS,
            "right characters",
            True,
        )

    def open(self, row: Mapping[str, Any], data_dir: str = "", **changes: Any) -> Opened:
        path = pathlib.Path(data_dir) / self.file
        if not data_dir or not path.is_file():
            raise UserError(f"--data_dir={data_dir}: no file {self.file}; expected the folder of a text of that name")
        text = path.read_text(encoding="utf-8")
        letters = sorted(set(text))
        number = {letter: i for i, letter in enumerate(letters, len(SPECIAL))}
        ids = np.array([number[letter] for letter in text], np.int32)
        begin, end = (int(share * len(ids)) for share in (0.9, 0.95))
        parts = {"train": ids[:begin], "valid": ids[begin:end], "test": ids[end:]}
        size, batch_size = len(SPECIAL) + len(letters), changes.get("batch_size", self.batch_size)
        model = language_model(row).build(TextSizes(size, size), Setting())
        right = percent_first(model)

        def windows(part: Int[np.ndarray, " n"], starts: Int[np.ndarray, "..."]) -> Batch:
            target = part[starts[..., None] + np.arange(self.length)]
            first = np.full_like(target[..., :1], BOS)
            source = np.full_like(first, EOS)  # nothing comes before the window
            return {"source": source, "target_in": np.concatenate([first, target[..., :-1]], -1), "target_out": target}

        def batches(seeds: Sequence[int]) -> Callable[[int], Batch]:
            last = len(parts["train"]) - self.length
            return lambda step: windows(
                parts["train"],
                np.stack([np.random.default_rng((seed, step)).integers(last, size=batch_size) for seed in seeds]),
            )

        def score(params: Sequence[Params], test: str) -> Mapping[str, list[float]]:
            part = parts[test]
            batch = windows(part, np.linspace(0, len(part) - self.length, self.num_windows).astype(int))
            where = np.ones_like(batch["target_out"], bool)
            return {self.score_name: [right(one, batch, where) for one in params]}

        def weights(params: Params) -> Mapping[str, Any]:
            batch = windows(parts["valid"], np.zeros(1, int))
            return example_of(model, params, batch, lambda some: [(list(SPECIAL) + letters)[i] for i in some])

        example = jax.tree.map(lambda x: jnp.asarray(x[0]), batches((0,))(0))
        return Opened(lambda rng: model.init(rng, example), model.loss_fn, batches, score, weights)


def language_model(row: Mapping[str, Any]) -> LanguageModelOptions:
    """Returns the options of the language model of a row."""
    options = resolve_tree(LanguageModelOptions, changes=MODEL)[0]
    return read(LanguageModelOptions, resolve_tree(LanguageModelOptions, options, row)[0])


def all_rows(setup: Setup, pairs: Pairs) -> Batch:
    """Encodes pairs as one batch."""
    encoded = setup.predictor.translator.encode(pairs)
    shape = int(encoded.source.lengths.max()), int(encoded.target.lengths.max())
    return encoded.batch(np.arange(len(pairs)), shape)


def percent_first(model: Model) -> Callable[[Params, Batch, Bool[np.ndarray, "b t"]], float]:
    """Makes a function (params, batch, where) -> percentage of target tokens that have the largest probability.

    It counts the tokens where `where` is True, and is compiled once for all parameters.
    """
    run = jax.jit(lambda params, *ids: model.module.apply({"params": params}, *ids, method="evaluate")[1])

    def right(params: Params, batch: Batch, where: Bool[np.ndarray, "b t"]) -> float:
        ids = [jnp.asarray(batch[name]) for name in TOKENS]
        return 100 * float(np.asarray(run(params, *ids))[where].mean())

    return right


def example_of(
    model: Model, params: Params, batch: Batch, tokens: Callable[[list[int]], list[str]]
) -> Mapping[str, Any]:
    """Returns the tokens that the model reads, and the weights of its layers, for a batch of one example."""
    ids = [jnp.asarray(batch[name]) for name in TOKENS]
    (maps,) = model.module.apply({"params": params}, *ids, method="maps").values()
    text = [int(i) for part in ids[:2] for i in part[0] if i != PAD]
    return {"tokens": tokens(text), "maps": np.asarray(maps)[0].mean(1)[:, : len(text), : len(text)]}
