"""Loading of a trained model in Python: attn_jax.load(workdir)."""

import dataclasses
import html
import itertools
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import jax
from ml_collections import ConfigDict

from attn_jax.errors import UserError
from attn_jax.evaluation.base import Predictor
from attn_jax.evaluation.collect import Collected
from attn_jax.models.base import Model
from attn_jax.models.kernel_regression.model import KernelRegression
from attn_jax.paths import user_path
from attn_jax.runs.checks import check_weights
from attn_jax.runs.failures import user_errors
from attn_jax.runs.inputs import Files
from attn_jax.runs.options import RunOptions, resolve, schema_of
from attn_jax.runs.results import FILE, read_result
from attn_jax.runs.snapshot import Snapshot, measure, restore, split_of
from attn_jax.runs.tree import flatten
from attn_jax.runs.workdir import load_config
from attn_jax.tasks import Pairs
from attn_jax.types import Params


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A trained model: pure functions, parameters, and prediction from lines of text."""

    config: ConfigDict
    workdir: pathlib.Path
    model: Model | KernelRegression  # pure functions of (params, batch)
    predictor: Predictor
    params: Params  # parameters of the seed to predict with
    snapshot: Snapshot = dataclasses.field(repr=False)  # the parameters of every seed

    @property
    def options(self) -> RunOptions:
        """The options of the run, as an object of the classes that the config names."""
        return self.snapshot.options

    @property
    def result(self) -> dict[str, Any]:
        """The contents of result.json: result["metrics"]["exact_match"] has "mean", "std" and one value per seed.

        Raises:
            UserError: the run has not been evaluated yet, or the file is damaged.
        """
        return read_result(self.workdir / FILE)

    def _repr_html_(self) -> str:
        """Draws the run in a notebook: its metrics, and the options that are not the default."""
        known, chosen = schema_of(self.config), flatten(self.config)
        changed = {key: value for key, value in chosen.items() if key in known and value != known[key].default}
        found = self.result["metrics"] if (self.workdir / FILE).exists() else {}
        measured = {name: f"{values['mean']:.4g} (SD {values['std']:.2g})" for name, values in found.items()}
        parts = []
        for title, table in (("metric, mean and standard deviation of the seeds", measured), ("option", changed)):
            cells = (
                f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(x))}</td></tr>" for name, x in table.items()
            )
            parts.append(f"<table><tr><th colspan=2>{title}</th></tr>{''.join(cells)}</table>")
        return f"<p>{html.escape(str(self.workdir))}</p>{''.join(parts)}"

    def predict(self, lines: Iterable[str]) -> list[str]:
        """Predicts from lines of input, like --mode=predict; an empty line stays empty.

        Each source gives decode.n_best lines; a story gives one line per question.

        Raises:
            UserError: the model cannot read a line; the message is one line.
        """
        lines = list_of_lines("predict", lines)
        with user_errors(), jax.enable_x64(False):
            batches = self.predictor.predict(self.params, lines, self.options.decode.batch_size)
            return list(itertools.chain.from_iterable(printed for _, printed in batches))

    def measure(
        self, sources: Iterable[str] | None = None, targets: Iterable[str] | None = None, *, split: str = ""
    ) -> dict[str, dict[str, Any]]:
        """Measures the metrics of config.eval for every seed, like --mode=eval, but writes nothing.

            model.measure(["1 May 2026"], ["2026-05-01"])["exact_match"]  # {"mean", "std", "seeds"}
            model.measure(split="valid")

        Args:
            sources, targets: lines, pair by pair; None: a split of the data of the run.
            split: "train", "valid" or "test"; "": test if there is one, else valid.

        Raises:
            UserError: there are no pairs, or the numbers of sources and targets differ; a target is no label of the
                classifier; the split or its data does not exist; the model cannot read a line, or is a regression and
                lines are given.
        """
        of_split = sources is None and targets is None
        given = [list_of_lines("measure", () if lines is None else lines) for lines in (sources, targets)]
        pairs = Pairs(given[0], given[1])
        if not of_split and not len(pairs):  # else the numbers of a split would be returned for the lines
            raise UserError("measure got no pair; leave out sources and targets to measure a split")
        with user_errors(), jax.enable_x64(False):
            if of_split:
                name, data = split_of(self.workdir, Files(split=split), self.snapshot)
            elif split or not self.options.task.of_pairs:
                raise UserError("measure takes pairs of a model of texts, or the name of a split")
            else:
                name, data = "lines", self.predictor.accept(self.predictor.read_pairs(pairs), "measure")
            result, _ = measure(self.snapshot, data, name)
        return result["metrics"]

    def attention(self, lines: Iterable[str]) -> list[Collected]:
        """Predicts from lines of input; returns each output with its attention weights.

            (date,) = model.attention(["令和8年11月21日"])
            {found.name: found.weights.shape for found in date.maps}

        A Map has a name, the names of its leading axes, such as ("layer", "head"), the texts of its rows and columns,
        and weights [..., rows, columns]. Empty lines are left out; a story gives an element per question.

        Raises:
            UserError: the model cannot read a line, has no attention, or is a regression.
        """
        lines = list_of_lines("attention", lines)
        if not self.options.task.of_pairs:
            raise UserError("attention is of models that read texts or images; for a regression use --mode=report")
        check_weights(self.options)
        with user_errors(), jax.enable_x64(False):
            texts = self.predictor.read_lines(lines)
            split = Pairs(texts, [""] * len(texts))
            return self.snapshot.setup.collector.collect(self.params, split) if texts else []


def list_of_lines(method: str, lines: Iterable[str]) -> list[str]:
    """Returns the lines as a list.

    Raises:
        UserError: a single string was given, or an element is no string.
    """
    if isinstance(lines, str):
        raise UserError(f"{method} takes a list of lines, got the text {lines[:40]!r}")
    lines = list(lines)
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, str):
            raise UserError(f"{method}: line {number} is {line!r:.40}; expected a text")
    return lines


def load(workdir: str | os.PathLike, *, trust: bool = False) -> Loaded:
    """Loads a work directory: the config, the model and the parameters of its checkpoint.

    As in --mode=predict, the parameters are those of the chosen seed, and predictions are computed without
    jax_enable_x64. The directory is not changed, and no training data is needed.

        model = attn_jax.load("runs/quickstart")
        model.predict(["令和8年11月21日"])

    Args:
        workdir: work directory of a trained run.
        trust: execute the plugins that the run was trained with, if it has some.

    Raises:
        UserError: there is no such work directory, it has no checkpoint, a file in it is damaged, or a plugin was not
            executed; the message is one line.
    """
    path = user_path(workdir)
    if not path.is_dir():
        raise UserError(f"{path}: there is no such work directory; expected one that launch.py has trained")
    config = load_config(path, trust)
    with user_errors(), jax.enable_x64(False):
        trained = restore(resolve(config), path)
    return Loaded(config, path, trained.model, trained.predictor, trained.chosen, trained)
