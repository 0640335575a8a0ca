"""From a whole config to a task and an evaluator."""

from typing import Any

from ml_collections import ConfigDict

from attn_jax.cli.options import Options, resolve
from attn_jax.evaluation.points import PointsEvaluator
from attn_jax.evaluation.stories import StoryEvaluator
from attn_jax.evaluation.text import Evaluator
from attn_jax.models.attention_options import describe_attention
from attn_jax.tasks import PointsTask, Task
from attn_jax.tasks.sizes import PointSizes, text_sizes


def build_task(config: ConfigDict, kept: Any = None) -> Task | PointsTask:
    """config.task and config.data_dir as a Task; `kept` is what a run has kept of its data, see Task.kept."""
    options = resolve(config)
    return options.task.build(data_dir=options.run.data_dir, kept=kept, seeds=options.run.all_seeds)


def build_evaluator(config: ConfigDict, kept: Any) -> Evaluator | PointsEvaluator:
    """The model of a config with what it needs of the data (its vocabularies, its points), ready to be measured."""
    options = resolve(config)
    if isinstance(kept, PointsTask):
        train = kept.splits["train"]
        model = options.build_model(PointSizes(train.inputs.shape[-1], len(train)))
        return PointsEvaluator(model, kept, options.decode.batch_size, options.decode.with_scores)
    sizes = text_sizes(*kept)
    model = options.build_model(sizes)
    options.decode.check_vocabulary(sizes.target_vocab_size)
    common = (model, *kept, options.decode, options.task.buckets, options.run.seed)
    if options.model.reads_stories:
        return StoryEvaluator(*common, max_sentences=options.task.max_sentences)
    return Evaluator(*common)


def describe(options: Options) -> str:
    """Says how the attention of a model is computed; "" where there is none."""
    main = options.model.main_attention
    return describe_attention(main[0], options.setting.dtype, main[1]) if main else ""
