"""Construction of the objects of a run: task, model, evaluator and predictor."""

import pathlib
from typing import Any

from attn_jax.errors import UserError
from attn_jax.evaluation.base import Predictor
from attn_jax.evaluation.kinds import Setup, Wrap
from attn_jax.models.attention_options import describe_attention
from attn_jax.runs.options import RunOptions
from attn_jax.tasks import PointsTask, Task


def build_task(options: RunOptions, kept: Any = None) -> Task | PointsTask:
    """Builds the task of a run; `kept` is the data stored in a work directory, see Task.kept.

    Raises:
        UserError: an option or a file is wrong; a new run names a file of frequencies although its data has counts.
    """
    task = options.task.build(data_dir=options.data_dir, kept=kept, seeds=options.all_seeds)
    output = options.model.output
    if output is None or not output.needs_counts:
        return task
    if task.target_vocabulary.counts is not None:
        if output.frequencies and kept is None:
            raise UserError(
                f"model.output.frequencies {output.frequencies}: task.name {task.name} has the counts of its own data; "
                "leave it out"
            )
        return task
    return task.with_counts(pathlib.Path(options.data_dir) / output.frequencies if output.frequencies else None)


def build_setup(options: RunOptions, kept: Any, *, wrap: Wrap | None = None) -> Setup:
    """Builds the model of a run with evaluator and predictor; for `kept` see Task.kept and PointsTask.kept.

    `wrap` replaces the model by another one with the same vocabularies, such as an ensemble of several seeds.
    """
    return options.kind.setup(options, kept, wrap)


def describe_decoding(options: RunOptions, predictor: Predictor) -> str:
    """Describes the cost of a decoding step for an output layer that is cheap only in training; "" for others."""
    output = options.model.output
    if output is None or not output.searches_all:
        return ""
    size = len(predictor.translator.target_vocabulary)
    return f"exact: with model.output.name {options.config.model.output.name} each step computes all {size:,} words"


def describe(options: RunOptions) -> str:
    """Describes how the attention of a model is computed; "" for a model without attention."""
    main = options.model.main_attention
    return describe_attention(main[0], options.setting.dtype, main[1]) if main else ""
