"""Builders of the objects of a config: task, model, evaluator and predictor."""

import inspect
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from attn_jax.errors import UserError, lookup
from attn_jax.evaluation.base import Evaluator, Predictor
from attn_jax.evaluation.decode_options import DecodeOptions
from attn_jax.evaluation.point_predictor import PointPredictor
from attn_jax.evaluation.points import PointsEvaluator
from attn_jax.evaluation.regressor import Regressor
from attn_jax.evaluation.stories import StoryPredictor
from attn_jax.evaluation.text import TextEvaluator
from attn_jax.evaluation.text_predictor import TextPredictor
from attn_jax.evaluation.translate import Translator
from attn_jax.models.base import Model
from attn_jax.models.families import MODELS
from attn_jax.models.kernel_regression.model import KernelRegression
from attn_jax.models.kernel_regression.options import build_kernel_regression
from attn_jax.models.memory_networks.options import STORY_MODELS, fit_memory
from attn_jax.tasks import TASKS, PointsTask, Task, task_class
from attn_jax.tasks.babi.encoding import encode_stories
from attn_jax.tasks.batching import encode_pairs
from attn_jax.tasks.vocabulary import Vocabulary

LARGEST = 2**31 - 1  # what an int32 holds


class Setup(NamedTuple):
    """A model with what measures it and what predicts with it."""

    model: Model | KernelRegression
    evaluator: Evaluator
    predictor: Predictor
    example: dict[str, np.ndarray]  # a batch with the shapes that the shapes of the parameters depend on
    batch_options: dict[str, Any]  # keyword arguments of Task.batches or PointsTask.batches


def build_task(config: ConfigDict, kept: Any = None) -> Task | PointsTask:
    """Builds the task of a config; `kept` is what a work directory has kept of its data, see Task.kept."""
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
    """Raises a UserError for a beam search over more candidates than an int32 can number."""
    if options.method == "beam" and options.beam_size * vocab_size > LARGEST:
        raise UserError(
            f"decode.beam_size {options.beam_size} times {vocab_size:,} target tokens are more candidates than can be "
            f"searched; expected a decode.beam_size of at most {LARGEST // vocab_size}"
        )


def build_setup(config: ConfigDict, kept: tuple[Vocabulary, Vocabulary] | PointsTask) -> Setup:
    """Builds the model of a config, and what is made of it; `kept` is as in Task.kept and PointsTask.kept."""
    return BUILDERS[task_class(config.task.name)](config, kept)


def build_text(config: ConfigDict, vocabularies: tuple[Vocabulary, Vocabulary]) -> Setup:
    """Builds a model of text from its vocabularies, of the source and of the target."""
    is_story = config.model.name in STORY_MODELS
    config = fit_memory(config, vocabularies[0]) if is_story else config
    model = lookup(MODELS, config.model.name, "model.name")(config, *map(len, vocabularies))
    options = DecodeOptions(**config.decode.to_dict())
    check_beam(options, len(vocabularies[1]))
    task, encode = config.task, encode_stories if is_story else encode_pairs
    translator = Translator(model, *vocabularies, options, seed=config.seed, encode=encode)
    evaluator = TextEvaluator(translator, buckets=task.buckets, tokenize=config.eval.tokenize)
    if is_story:
        predictor = StoryPredictor(translator, buckets=task.buckets, max_sentences=task.max_sentences)
    else:
        predictor = TextPredictor(translator, buckets=task.buckets)
    example = {name: np.zeros((1, 1), np.int32) for name in ("source", "target_in", "target_out")}
    batch_options = {
        "batch_size": task.batch_size,
        "batch_unit": task.batch_unit,
        "buckets": task.buckets,
        "source_buckets": task.source_buckets,
        "labels": getattr(model.module, "one_token", False),
        "encode": encode,
    }
    return Setup(model, evaluator, predictor, example, batch_options)


def build_points(config: ConfigDict, task: PointsTask) -> Setup:
    """Builds a kernel regression with the points that it reads."""
    train = task.splits["train"]
    model = build_kernel_regression(config, train.inputs.shape[-1], len(train))
    regressor = Regressor(model, task, batch_size=config.decode.batch_size)
    predictor = PointPredictor(regressor, with_scores=config.decode.with_scores)
    all_pairs = "model.criterion aicc" if model.criterion == "aicc" else ""
    if len(model.members) > 1:
        all_pairs = f"a mixture of {len(model.members)}"
    batch_options = {
        "batch_size": config.task.batch_size,
        "scale_inputs": not model.fixed,
        "all_pairs": all_pairs,
    }
    example = {"inputs": regressor.points.memory["inputs"][0, :1]}
    return Setup(model, PointsEvaluator(regressor), predictor, example, batch_options)


BUILDERS = {Task: build_text, PointsTask: build_points}
