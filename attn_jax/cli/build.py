"""From a whole config to a task and an evaluator."""

import inspect
from typing import Any

from ml_collections import ConfigDict

from attn_jax.errors import UserError, lookup
from attn_jax.evaluation.points import PointsEvaluator
from attn_jax.evaluation.stories import StoryEvaluator
from attn_jax.evaluation.text import DecodeOptions, Evaluator
from attn_jax.models.families import MODELS
from attn_jax.models.kernel_regression.options import build_kernel_regression
from attn_jax.models.memory_networks.options import STORY_MODELS, fit_memory
from attn_jax.tasks import TASKS, Task
from attn_jax.tasks.points import PointsTask

LARGEST = 2**31 - 1  # what an int32 holds


def build_task(config: ConfigDict, kept: Any = None) -> Task | PointsTask:
    """config.task and config.data_dir as a Task; `kept` is what a run has kept of its data, see Task.kept."""
    if isinstance(kept, PointsTask):
        return kept
    build = lookup(TASKS, config.task.name, "task.name")
    given = config.task.to_dict() | {
        "data_dir": config.data_dir,
        "vocabularies": kept,
        "seeds": config.seeds or (config.seed,),
    }
    takes = inspect.signature(build).parameters
    return build(**{name: value for name, value in given.items() if name in takes})


def check_beam(options: DecodeOptions, vocab_size: int) -> None:
    """UserError for a beam search over more candidates than an int32 numbers."""
    if options.method == "beam" and options.beam_size * vocab_size > LARGEST:
        raise UserError(
            f"decode.beam_size {options.beam_size} times {vocab_size:,} target tokens are more candidates than can be "
            f"searched; expected a decode.beam_size of at most {LARGEST // vocab_size}"
        )


def build_evaluator(config: ConfigDict, kept: Any) -> Evaluator | PointsEvaluator:
    """The model of a config with what it needs of the data (its vocabularies, its points), ready to be measured."""
    if config.task.name == "regression":
        return build_points_evaluator(config, kept)
    config = fit_memory(config, kept[0]) if config.model.name in STORY_MODELS else config
    model = lookup(MODELS, config.model.name, "model.name")(config, *map(len, kept))
    options = DecodeOptions(**config.decode.to_dict())
    check_beam(options, len(kept[1]))
    common = (model, *kept, options, config.task.buckets, config.seed)
    if config.model.name in STORY_MODELS:
        return StoryEvaluator(*common, max_sentences=config.task.max_sentences)
    return Evaluator(*common)


def build_points_evaluator(config: ConfigDict, task: PointsTask) -> PointsEvaluator:
    """The model of a config with the points that it reads."""
    train = task.splits["train"]
    model = build_kernel_regression(config, train.inputs.shape[-1], len(train))
    return PointsEvaluator(model, task, config.decode.batch_size, config.decode.with_scores)
