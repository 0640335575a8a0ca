"""Kinds of data: texts, stories, images, points. One object has everything that depends on the kind.

    kind.load(workdir)                  -> kept: the facts about the data that a run stores, to build a model from
    kind.sizes(kept)                    -> sizes that the model is built for
    kind.setup(options, kept, wrap)     -> Setup: model, evaluator, predictor, example, arguments of Task.batches
    kind.collector(predictor)           -> Collector of attention weights
    kind.evaluator, kind.metrics, kind.decode, kind.eval_options(task), kind.check(options)

A task names the kinds that its data can be read as, a family of models the kinds that it reads. A run uses the first
kind of the family that its task has. To add a kind, subclass `DataKind` and enter an object in KINDS.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from attn_jax.data.batching import encode_pairs
from attn_jax.data.facts import Kept
from attn_jax.data.sizes import PointSizes, TextSizes, text_sizes
from attn_jax.decoding.options import DecodeOptions, PointDecodeOptions
from attn_jax.decoding.translate import Translator
from attn_jax.errors import UserError, check_known
from attn_jax.evaluation.base import Evaluator, Metric, Predictor
from attn_jax.evaluation.collect import (
    Collector,
    PictureCollector,
    PointCollector,
    StoryCollector,
    TextCollector,
)
from attn_jax.evaluation.options import EvalOptions, LanguageEvalOptions, PointEvalOptions
from attn_jax.evaluation.pictures import PictureEvaluator, PicturePredictor
from attn_jax.evaluation.point_predictor import PointPredictor
from attn_jax.evaluation.points import PointsEvaluator
from attn_jax.evaluation.regressor import Regressor
from attn_jax.evaluation.statistics import EVERYWHERE
from attn_jax.evaluation.stories import StoryPredictor
from attn_jax.evaluation.text import TOKEN_METRICS, TextEvaluator, check_text_metrics
from attn_jax.evaluation.text_predictor import TextPredictor
from attn_jax.models.base import Model
from attn_jax.models.kernel_regression.model import KernelRegression
from attn_jax.parts import LARGEST, Options
from attn_jax.tasks import PictureTask, PointsTask, Task
from attn_jax.tasks.images.pictures import encode_pictures
from attn_jax.tasks.stories.encoding import encode_stories
from attn_jax.tasks.task import Encode
from attn_jax.token_ids import SPECIAL
from attn_jax.types import Batch, Picture

Wrap = Callable[[Model], Model]
TOKENS = ("source", "target_in", "target_out")


class Setup(NamedTuple):
    """A model with its evaluator and its predictor."""

    kind: "DataKind"
    model: Model | KernelRegression
    evaluator: Evaluator
    predictor: Predictor
    example: Batch  # a batch that determines the shapes of the parameters
    batch_options: dict[str, Any]  # keyword arguments of the `batches` of a task
    cells: tuple[int, int] | None = None  # rows and columns of the cells of an image, which are the keys

    @property
    def collector(self) -> Collector:
        """The collector of the attention weights."""
        return self.kind.collector(self.predictor)


class DataKind:
    """A kind of data. The methods of this base class are for sentence pairs with two vocabularies.

    Arguments `options` are the attn_jax.runs.options.RunOptions of a run.
    """

    reads_text: ClassVar[bool] = True  # the sources are texts
    any_sizes: ClassVar[Any] = TextSizes(len(SPECIAL), len(SPECIAL), has_tags=True)  # to build a model without data
    evaluator: ClassVar[type] = TextEvaluator
    decode: ClassVar[type[Options]] = DecodeOptions
    task_class: ClassVar[type] = Task

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The metrics of the evaluator, by name."""
        return self.evaluator.metrics

    def eval_options(self, task: type[Options]) -> type[Options]:
        """Returns the class of the options of evaluation for the options of a task."""
        return EvalOptions if task.has_sources else LanguageEvalOptions

    def load(self, workdir: pathlib.Path) -> Any:
        """Reads the facts about the data that a work directory stores; raises a UserError if that fails."""
        return self.task_class.load(workdir)

    def sizes(self, kept: Any) -> Any:
        """Returns the model sizes that the data determines."""
        return text_sizes(kept.source, kept.target)

    def check(self, options: Any) -> None:
        """Checks the options of a run that can be checked without the data.

        Raises:
            UserError: a metric cannot be computed, or an option does not suit the data.
        """
        names = options.eval.metrics
        check_text_metrics(names, options.task.tokenize, self.metrics)
        if options.task.has_sources:
            return
        for key, asked in (("eval.metrics", names), ("train.best_metric", (options.train.best_metric,))):
            for name in asked:
                if name in self.evaluator.of_texts:
                    raise UserError(
                        f"{key} {name} compares outputs with references, but task.name {options.task.name} has no "
                        f"sources to write outputs for; expected {', '.join(TOKEN_METRICS)}"
                    )

    def setup(self, options: Any, kept: Any, wrap: Wrap | None = None) -> Setup:
        """Builds the model of a run with evaluator and predictor.

        Args:
            options: options of the run.
            kept: facts about the data, see `load`.
            wrap: replaces the model by another one for the same data, such as an ensemble of several seeds.

        Raises:
            UserError: options do not fit the data, or each other.
        """
        raise NotImplementedError

    def collector(self, predictor: Any) -> Collector:
        """Returns the collector of the attention weights of a predictor.

        Raises:
            ValueError: the predictor has no collector.
        """
        raise ValueError(f"no collector of attention weights for {type(predictor).__name__}")


class TextKind(DataKind):
    """Sentence pairs: sources and targets are lines of text."""

    def setup(self, options: Any, kept: Kept, wrap: Wrap | None = None) -> Setup:
        task, model, encode = options.task, self.build(options, kept, wrap), self.encoder(kept)
        if options.decode.replace_unk and options.model.continue_source:
            raise UserError(
                "decode.unk replace takes words of the source, but model.continue_source continues it; leave one out"
            )
        translator = Translator(
            model,
            kept.source,
            kept.target,
            options.decode,
            seed=options.seed,
            encode=encode,
            buckets=task.buckets.shapes,
        )
        evaluator = self.evaluator(translator, buckets=task.buckets.shapes, tokenize=task.tokenize)
        example = {name: np.zeros((1, 1), np.int32) for name in TOKENS}
        share = share_of_rows([device.process_index for device in jax.devices()], jax.process_index())
        batches = self.batch_options(options, model, encode) | {"share": share}
        return Setup(self, model, evaluator, self.predictor(options, kept, translator), example, batches)

    def encoder(self, kept: Kept) -> Encode:
        """Returns the function that turns pairs into ids."""
        return encode_pairs

    def build(self, options: Any, kept: Kept, wrap: Wrap | None) -> Model:
        """Builds the model for the vocabularies of source and target."""
        sizes = self.sizes(kept)
        model = options.build_model(sizes)
        options.decode.method.check_vocabulary(sizes.target_vocab_size)
        return wrap(model) if wrap else model

    def predictor(self, options: Any, kept: Kept, translator: Translator) -> Predictor:
        """Builds the predictor."""
        return TextPredictor(translator, buckets=options.task.buckets.shapes)

    def batch_options(self, options: Any, model: Model, encode: Encode) -> dict[str, Any]:
        """Returns keyword arguments of Task.batches."""
        task = options.task
        return {
            "batch_size": task.batch_size,
            "batch_unit": task.batch_unit,
            "buckets": task.buckets.shapes,
            "source_buckets": task.buckets.num_source,
            "labels": model.one_token,
            "encode": encode,
        }

    def collector(self, predictor: TextPredictor) -> Collector:
        return TextCollector(predictor)


class StoryKind(TextKind):
    """Stories with a question: a source is a list of statements, each stored in a slot of a memory."""

    any_sizes: ClassVar[TextSizes] = TextKind.any_sizes._replace(longest_story=LARGEST)

    def sizes(self, kept: Kept) -> TextSizes:
        lengths = {"longest_story": kept.facts.longest, "shortest_statement": kept.facts.shortest}
        return text_sizes(kept.source, kept.target, **lengths)

    def encoder(self, kept: Kept) -> Encode:
        return partial(encode_stories, facts=kept.facts)

    def check(self, options: Any) -> None:
        super().check(options)
        if options.decode.ensemble.workdirs:
            raise UserError(
                "decode.ensemble runs averages models of texts or images, token by token; model.name "
                f"{options.model.name} answers questions about stories: expected decode.ensemble seeds"
            )

    def predictor(self, options: Any, kept: Kept, translator: Translator) -> Predictor:
        return StoryPredictor(
            translator,
            buckets=options.task.buckets.shapes,
            max_sentences=options.task.max_sentences,
            longest=kept.facts.longest,
        )

    def collector(self, predictor: StoryPredictor) -> Collector:
        return StoryCollector(predictor)


class PictureKind(TextKind):
    """Images, with or without a question, and captions or answers."""

    reads_text: ClassVar[bool] = False
    any_sizes: ClassVar[TextSizes] = TextKind.any_sizes._replace(has_tags=False, image=(0, 0, 3))
    evaluator: ClassVar[type] = PictureEvaluator
    task_class: ClassVar[type] = PictureTask

    def sizes(self, kept: Kept) -> TextSizes:
        return text_sizes(kept.source, kept.target, image=kept.facts.shape)

    def encoder(self, kept: Kept) -> Encode:
        return partial(encode_pictures, facts=kept.facts)

    def setup(self, options: Any, kept: Kept, wrap: Wrap | None = None) -> Setup:
        if options.decode.replace_unk:
            raise UserError("decode.unk replace takes words of the source, but the sources are images; leave it out")
        task, model, encode = options.task, self.build(options, kept, wrap), self.encoder(kept)
        translator = Translator(
            model, kept.source, kept.target, options.decode, seed=options.seed, encode=encode, limit_by_source=False
        )
        predictor = PicturePredictor(translator, images=kept.facts, buckets=task.buckets.shapes)
        evaluator = self.evaluator(predictor, buckets=task.buckets.shapes, tokenize=task.tokenize)
        one = np.zeros((1, 1), np.int32)
        pixels = np.zeros((1, *kept.facts.shape), np.uint8)
        picture = Picture(pixels, one if predictor.asks else one[:, :0])
        example = {"source": picture, "target_in": one, "target_out": one}
        batches = self.batch_options(options, model, encode)
        return Setup(self, model, evaluator, predictor, example, batches, predictor.cells)

    def collector(self, predictor: PicturePredictor) -> Collector:
        return PictureCollector(predictor)


class PointKind(DataKind):
    """Points of a regression: columns of numbers."""

    reads_text: ClassVar[bool] = False
    any_sizes: ClassVar[PointSizes] = PointSizes(1, 100)
    evaluator: ClassVar[type] = PointsEvaluator
    decode: ClassVar[type[Options]] = PointDecodeOptions
    task_class: ClassVar[type] = PointsTask

    def eval_options(self, task: type[Options]) -> type[Options]:
        return PointEvalOptions

    def sizes(self, kept: PointsTask) -> PointSizes:
        train = kept.splits["train"]
        return PointSizes(train.inputs.shape[-1], len(train))

    def check(self, options: Any) -> None:
        if options.parallel.strategy.across_devices:
            raise UserError("a kernel regression trains on one device; set --config.parallel=single")

    def setup(self, options: Any, kept: PointsTask, wrap: Wrap | None = None) -> Setup:
        assert wrap is None, "there are no ensembles of a regression"
        if options.decode.with_scores and options.model.projection_size:
            raise UserError(
                "decode.with_scores prints the density of the inputs, which a model with model.projection has not; "
                "leave it out"
            )
        model = options.build_model(self.sizes(kept))
        regressor = Regressor(model, kept, batch_size=options.decode.batch_size)
        predictor = PointPredictor(regressor, with_scores=options.decode.with_scores)
        mixture = f"a mixture of {len(model.components)}" if len(model.components) > 1 else "model.criterion aicc"
        batches = {
            "batch_size": options.task.batch_size,
            "scale_inputs": not model.fixed,
            "all_pairs": mixture if model.all_points else "",
        }
        example = {"inputs": regressor.points.memory["inputs"][0, :1]}
        return Setup(self, model, self.evaluator(regressor), predictor, example, batches)

    def collector(self, predictor: PointPredictor) -> Collector:
        return PointCollector(predictor)


def share_of_rows(processes: Sequence[int], process: int) -> tuple[int, int]:
    """Returns (position of a process, number of processes): the share of rows that its own devices compute.

    Args:
        processes: the process of each device, in the order of the mesh.
        process: the process whose share is returned.

    Returns:
        (0, 1), which means all rows, if the devices of a process are not adjacent or not equally many.
    """
    order = list(dict.fromkeys(processes))
    each = len(processes) // len(order)
    if list(processes) != [number for number in order for _ in range(each)]:
        return 0, 1
    return order.index(process), len(order)


KINDS: dict[str, DataKind] = {
    "text": TextKind(),
    "stories": StoryKind(),
    "pictures": PictureKind(),
    "points": PointKind(),
}


def find_metric(name: str) -> Metric | None:
    """Returns the metric with a name, from any kind of data; None if no kind has it."""
    return next((kind.metrics[name] for kind in KINDS.values() if name in kind.metrics), None)


def possible(name: str) -> tuple[float, float]:
    """Returns the ends of the possible values of a metric."""
    return found.within if (found := find_metric(name)) else EVERYWHERE


def kind_of(task: type[Options], model: type[Options]) -> str:
    """Returns the name of the kind of data of a run: the first that the model reads and the task has; "" if none.

    Raises:
        UserError: the task or the model names an unknown kind.
    """
    for options in (task, model):
        for name in options.data_kinds:
            check_known(name, KINDS, f"kind of data in data_kinds of {options.__name__}")
    return next((kind for kind in model.data_kinds if kind in task.data_kinds), "")
