"""The two roles of a trained model: an evaluator measures it, a predictor uses it.

Shapes: n examples of a split, t target tokens, s source tokens, k training points. `params_of_seeds` has one set of
parameters for each seed of a run.
"""

import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from attn_jax.tasks import Pairs, PointsTask, Task
from attn_jax.tasks.points.points import Points
from attn_jax.types import Float, Params

Split = Pairs | Points


class Metric(NamedTuple):
    """A number that says how good a model is.

    `best` is "min" or "max", or None where neither a low nor a high value is better. The arguments of `compute` and of
    `statistics` are those of the table that the metric is in. A metric with statistics is a function of their sum over
    the examples: score(sum of statistics [n, k] over n) = compute.
    """

    compute: Callable
    best: str | None
    statistics: Callable | None = None  # of each example: [n, k]
    score: Callable | None = None  # [k] -> value
    unit: str = ""  # written after a value, such as " %"


class Example(NamedTuple):
    """An example of a split, and what was predicted for it."""

    source: str
    output: str
    reference: str


class Results(NamedTuple):
    """Values of metrics, and how they were measured."""

    values: dict[str, dict[str, Any]]  # metric -> {"mean", "std", "seeds": the value of each seed}
    signatures: dict[str, str]  # metric -> settings that the value depends on, for those that have any
    examples: tuple[Example, ...] = ()  # the first ones, by the first seed, where outputs were computed
    statistics: Mapping[str, list[np.ndarray]] = MappingProxyType({})  # metric -> of each seed, [n, k], if asked for
    outputs: tuple[list[str], ...] = ()  # of each seed, of n examples, if asked for


@runtime_checkable
class Evaluator(Protocol):
    """Measures a model on the examples of a split.

    Attributes:
        metrics: name -> Metric, for all available metrics.
        unit: the examples of a split, "sentences" or "points".
        loss_unit: the unit of the loss in training and validation; "" if these are not comparable.
    """

    metrics: Mapping[str, Metric]
    unit: str
    loss_unit: str

    def measure(
        self, params_of_seeds: Sequence[Params], split: Split, names: Sequence[str], each: bool = False
    ) -> Results:
        """Computes the loss and the metrics `names` of a split of n examples, for each seed.

        With `each` the results also have the statistics and the outputs of each example, where there are any.

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
        """Returns {"examples": checksum} of a split that was measured, and "images" of images."""
        ...

    def read_lines(self, lines: Iterable[str]) -> list[str]:
        """Reads the sources in lines of input, such as one for each line that is not empty."""
        ...

    def read_pairs(self, pairs: Pairs) -> Pairs:
        """Reads pairs that people wrote: brings them into the form of the task's own.

        Raises:
            UserError: a line is not a source or not a target of the task.
        """
        ...

    def read_files(self, source: str, target: str) -> Split:
        """Reads a split from files, of which `target` may be "" where the source has the targets.

        Raises:
            UserError: a file is missing, cannot be read, or does not suit the model.
        """
        ...

    def accept(self, pairs: Pairs, file: str) -> Pairs:
        """Returns the pairs of a file after checks and notices of what the model does not know.

        Raises:
            UserError: a target is not one that the model can give.
        """
        ...

    def report(self, sources: Sequence[str], targets: Sequence[str] = ()) -> None:
        """Gives a notice if there is something in the sources or the targets that the model does not know."""
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
