"""Construction of the objects of a config: task, model, evaluator and predictor."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from attn_jax.cli.options import Options, resolve
from attn_jax.errors import UserError
from attn_jax.evaluation.base import Evaluator, Predictor
from attn_jax.evaluation.pictures import PictureEvaluator, PicturePredictor
from attn_jax.evaluation.point_predictor import PointPredictor
from attn_jax.evaluation.points import PointsEvaluator
from attn_jax.evaluation.regressor import Regressor
from attn_jax.evaluation.stories import StoryPredictor
from attn_jax.evaluation.text import TextEvaluator
from attn_jax.evaluation.text_predictor import TextPredictor
from attn_jax.evaluation.translate import Translator
from attn_jax.models.attention_options import describe_attention
from attn_jax.models.base import Model
from attn_jax.models.kernel_regression.model import KernelRegression
from attn_jax.outputs.base import OutputOptions
from attn_jax.tasks import PictureTask, PointsTask, Task
from attn_jax.tasks.babi.encoding import encode_stories
from attn_jax.tasks.batching import encode_pairs
from attn_jax.tasks.pictures import encode_pictures
from attn_jax.tasks.sizes import PointSizes, text_sizes
from attn_jax.tasks.vocabulary import Vocabulary
from attn_jax.types import Batch, Picture

Wrap = Callable[[Model], Model]


class Setup(NamedTuple):
    """A model with its evaluator and its predictor."""

    model: Model | KernelRegression
    evaluator: Evaluator
    predictor: Predictor
    example: Batch  # a batch that determines the shapes of the parameters
    batch_options: dict[str, Any]  # keyword arguments of Task.batches or PointsTask.batches
    cells: tuple[int, int] | None = None  # rows and columns of an image, which are keys


def build_task(config: ConfigDict, kept: Any = None) -> Task | PointsTask:
    """Builds the task of a config; `kept` is the data stored in a work directory, see Task.kept.

    Raises:
        UserError: an option or a file is wrong; a new run names a file of frequencies, and the data has its own.
    """
    options = resolve(config)
    task = options.task.build(data_dir=options.run.data_dir, kept=kept, seeds=options.run.all_seeds)
    output = output_of(options)
    if output is None or not output.needs_counts:
        return task
    if task.target_vocabulary.counts is not None:
        if output.frequencies and kept is None:
            raise UserError(
                f"model.output.frequencies {output.frequencies}: task.name {task.name} has the counts of its own data; "
                "leave it out"
            )
        return task
    return task.with_counts(pathlib.Path(options.run.data_dir) / output.frequencies if output.frequencies else None)


def build_setup(
    config: ConfigDict, kept: tuple[Vocabulary, Vocabulary] | PointsTask, *, wrap: Wrap | None = None
) -> Setup:
    """Builds the model of a config with evaluator and predictor; for `kept` see Task.kept and PointsTask.kept.

    `wrap` turns the model into another one of the same vocabularies, such as the ensemble of several seeds.
    """
    options = resolve(config)
    return BUILDERS[options.task.task_class](options, kept, wrap)


def build_text(options: Options, vocabularies: tuple[Vocabulary, Vocabulary], wrap: Wrap | None) -> Setup:
    """Builds a text model from the vocabularies of source and target."""
    sizes = text_sizes(*vocabularies)
    model = options.build_model(sizes)
    model = wrap(model) if wrap else model
    options.decode.check_vocabulary(sizes.target_vocab_size)
    task, is_story = options.task, options.model.reads_stories
    encode = encode_stories if is_story else encode_pairs
    if options.decode.replace_unk and options.model.continue_source:
        raise UserError(
            "decode.replace_unk takes words of the source, but model.continue_source continues it; leave one out"
        )
    translator = Translator(
        model, *vocabularies, options.decode, seed=options.run.seed, encode=encode, buckets=task.buckets
    )
    evaluator = TextEvaluator(translator, buckets=task.buckets, tokenize=options.eval.tokenize)
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
        "labels": model.one_token,
        "encode": encode,
        "share": share_of_rows([device.process_index for device in jax.devices()], jax.process_index()),
    }
    return Setup(model, evaluator, predictor, example, batch_options)


def build_pictures(options: Options, vocabularies: tuple[Vocabulary, Vocabulary], wrap: Wrap | None) -> Setup:
    """Builds a model of images from the vocabularies of questions and of captions."""
    if options.decode.replace_unk:
        raise UserError("decode.replace_unk takes words of the source, but the sources are images; leave it out")
    sizes = text_sizes(*vocabularies)
    model = options.build_model(sizes)
    model = wrap(model) if wrap else model
    options.decode.check_vocabulary(sizes.target_vocab_size)
    task = options.task
    translator = Translator(
        model, *vocabularies, options.decode, seed=options.run.seed, encode=encode_pictures, limit_by_source=False
    )
    predictor = PicturePredictor(translator, buckets=task.buckets)
    evaluator = PictureEvaluator(predictor, buckets=task.buckets, tokenize=options.eval.tokenize)
    one = np.zeros((1, 1), np.int32)
    picture = Picture(np.zeros((1, *sizes.image), np.uint8), one if predictor.asks else one[:, :0])
    batch_options = {
        "batch_size": task.batch_size,
        "batch_unit": task.batch_unit,
        "buckets": task.buckets,
        "source_buckets": task.source_buckets,
        "labels": model.one_token,
        "encode": encode_pictures,
    }
    example = {"source": picture, "target_in": one, "target_out": one}
    return Setup(model, evaluator, predictor, example, batch_options, predictor.cells)


def build_points(options: Options, task: PointsTask, wrap: Wrap | None) -> Setup:
    """Builds a kernel regression from its training points; there are no ensembles of it."""
    assert wrap is None
    if options.decode.with_scores and options.model.projection_size:
        raise UserError(
            "decode.with_scores prints the density of the inputs, which a model with model.projection_size has not; "
            "leave it out"
        )
    train = task.splits["train"]
    model = options.build_model(PointSizes(train.inputs.shape[-1], len(train)))
    regressor = Regressor(model, task, batch_size=options.decode.batch_size)
    predictor = PointPredictor(regressor, with_scores=options.decode.with_scores)
    mixture = f"a mixture of {len(model.components)}" if len(model.components) > 1 else "model.criterion aicc"
    batch_options = {
        "batch_size": options.task.batch_size,
        "scale_inputs": not model.fixed,
        "all_pairs": mixture if model.all_points else "",
    }
    example = {"inputs": regressor.points.memory["inputs"][0, :1]}
    return Setup(model, PointsEvaluator(regressor), predictor, example, batch_options)


def share_of_rows(processes: Sequence[int], process: int) -> tuple[int, int]:
    """Returns (place of a process, number of processes), so that it reads the rows of its own devices alone.

    Args:
        processes: the process of each device, in the order of the mesh.
        process: the one that asks.

    Returns:
        (0, 1), all rows, where the devices of a process do not follow each other or are not as many as elsewhere.
    """
    order = list(dict.fromkeys(processes))
    each = len(processes) // len(order)
    if list(processes) != [number for number in order for _ in range(each)]:
        return 0, 1
    return order.index(process), len(order)


def describe_decoding(config: ConfigDict, predictor: Predictor) -> str:
    """Describes what a step of decoding costs with an output layer that is only cheap in training; "" for others."""
    options = resolve(config)
    output = output_of(options)
    if output is None or not output.searches_all:
        return ""
    size = len(predictor.translator.target_vocabulary)
    return f"exact: with model.output.name {options.model.output.name} each step computes all {size:,} words"


def output_of(options: Options) -> OutputOptions | None:
    """Returns the options of the output layer; None for a model without one."""
    return options.model.output.chosen if hasattr(options.model, "output") else None


def describe(options: Options) -> str:
    """Describes how the attention of a model is computed; "" for a model without attention."""
    main = options.model.main_attention
    return describe_attention(main[0], options.setting.dtype, main[1]) if main else ""


BUILDERS = {Task: build_text, PictureTask: build_pictures, PointsTask: build_points}
