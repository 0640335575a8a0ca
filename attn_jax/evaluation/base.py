"""The two roles of a trained model: an evaluator measures it, a predictor uses it.

Shapes: n examples of a split, t target tokens, s source tokens, k training points. `params_of_seeds` has one set of
parameters for each seed of a run.
"""

import math
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from attn_jax.tasks import Pairs, PointsTask, Task
from attn_jax.tasks.points.points import Points
from attn_jax.types import Float, Params

Split = Pairs | Points

PERCENT = (0.0, 100.0)


class Metric(NamedTuple):
    """A metric.

    `best` is "min" or "max", or None if neither a low nor a high value is better. Each table of metrics states the
    arguments of `compute` and `statistics`. A metric with statistics is a function of their sum over the examples:
    score(sum of statistics [n, k] over n) = compute. No value is outside of `within`.
    """

    compute: Callable[..., Any]
    best: str | None
    statistics: Callable[..., np.ndarray] | None = None  # -> [n, k], one row per example
    score: Callable[[np.ndarray], Any] | None = None  # [k] -> value
    unit: str = ""  # written after a value, such as " %"
    within: tuple[float, float] = (0.0, math.inf)


class Example(NamedTuple):
    """An example of a split, and the model's prediction."""

    source: str
    output: str
    reference: str


class Results(NamedTuple):
    """Values of metrics, and how they were measured."""

    values: dict[str, dict[str, Any]]  # metric -> {"mean", "std", "seeds": the value of each seed}
    signatures: dict[str, str]  # metric -> settings that the value depends on, if any
    examples: tuple[Example, ...] = ()  # first examples, predicted by the first seed, if outputs were computed
    statistics: Mapping[str, list[np.ndarray]] = MappingProxyType({})  # metric -> [n, k] of each seed, if requested
    outputs: tuple[list[str], ...] = ()  # n outputs of each seed, if requested


@runtime_checkable
class Evaluator(Protocol):
    """Measures a model on the examples of a split.

    Attributes:
        metrics: name -> Metric, for all available metrics.
        unit: what an example is, "sentences" or "points".
        loss_unit: the unit of the training and validation losses; "" if the two are not comparable.
    """

    metrics: Mapping[str, Metric]
    unit: str
    loss_unit: str

    def measure(
        self, params_of_seeds: Sequence[Params], split: Split, names: Sequence[str], each: bool = False
    ) -> Results:
        """Computes the loss and the metrics `names` of a split of n examples, for each seed.

        With `each` the results also have the statistics and the outputs of each example, if the model has any.

        Raises:
            UserError: a metric is unknown, or cannot be computed.
        """
        ...


@runtime_checkable
class Predictor(Protocol):
    """Predicts from lines of input, and plots attention weights."""

    def predict(self, params: Params, lines: Iterable[str], chunk: int) -> Iterator[tuple[list[str], list[str]]]:
        """Yields (sources, lines to print) for every `chunk` lines of input.

        Raises:
            UserError: a line cannot be read; the predictions for earlier lines are yielded before.
        """
        ...

    def log_probs(self, params: Params, pairs: Pairs) -> Float[np.ndarray, " n"]:
        """Computes log p(target | source) of n pairs, in nats, eos included.

        Raises:
            ValueError: the model predicts no text.
        """
        ...

    def checksums(self, split: Split) -> dict[str, int]:
        """Returns {"examples": checksum} of a measured split, and for images also "images"."""
        ...

    def read_lines(self, lines: Iterable[str]) -> list[str]:
        """Reads the sources in lines of input, such as one for each line that is not empty."""
        ...

    def read_pairs(self, pairs: Pairs) -> Pairs:
        """Converts pairs written by people into the format of the task.

        Raises:
            UserError: a line is no valid source or target of the task.
        """
        ...

    def read_files(self, source: str, target: str) -> Split:
        """Reads a split from files; `target` is "" if the source file contains the targets.

        Raises:
            UserError: a file is missing, cannot be read, or does not suit the model.
        """
        ...

    def accept(self, pairs: Pairs, file: str) -> Pairs:
        """Checks the pairs of a file, gives notices of unknown tokens, and returns the pairs.

        Raises:
            UserError: the model cannot predict a target.
        """
        ...

    def report(self, sources: Sequence[str], targets: Sequence[str] = ()) -> None:
        """Gives a notice of parts of the sources or targets that the model does not know, such as unknown tokens."""
        ...

    def plot(self, params: Params, pairs: Pairs, paths: Sequence[pathlib.Path]) -> None:
        """Plots the attention of each of n sources to its own path, and writes the same numbers beside it as JSON.

        The weights are [t, s] for text, [hops, statements] for stories, [k] for points. Targets only go into labels.
        """
        ...

    def plot_overview(
        self, params: Params, task: Task | PointsTask, split: Split, workdir: pathlib.Path, count: int
    ) -> list[pathlib.Path]:
        """Plots at most `count` pictures of a finished run under workdir/attention; returns their paths."""
        ...
