"""Data sets: text files or generated examples, their vocabularies, and batches of ids. Only numpy, no models."""

from attn_jax.data.pairs import Pairs
from attn_jax.tasks.images.picture_files import PictureFilesOptions
from attn_jax.tasks.images.pictures import PictureTask
from attn_jax.tasks.images.scenes import ScenesOptions
from attn_jax.tasks.points.points import PointsTask
from attn_jax.tasks.points.regression import RegressionOptions
from attn_jax.tasks.stories.babi import BabiOptions
from attn_jax.tasks.synthetic.addition import AdditionOptions
from attn_jax.tasks.synthetic.dates import DatesOptions
from attn_jax.tasks.synthetic.flip_flop import FlipFlopOptions
from attn_jax.tasks.synthetic.permutations import PermutationsOptions
from attn_jax.tasks.synthetic.recall import RecallOptions
from attn_jax.tasks.synthetic.sequences import SequencesOptions
from attn_jax.tasks.synthetic.zipf import ZipfOptions
from attn_jax.tasks.task import Task
from attn_jax.tasks.text.indexed_text import IndexedTextOptions
from attn_jax.tasks.text.inflection import InflectionOptions
from attn_jax.tasks.text.labelled_text import LabelledTextOptions
from attn_jax.tasks.text.language_id import LanguageIdOptions
from attn_jax.tasks.text.parallel_text import ParallelTextOptions
from attn_jax.tasks.text.plain_text import PlainTextOptions

# task.name -> its options, whose `build` makes the task.
TASKS = {
    "parallel_text": ParallelTextOptions,
    "indexed_text": IndexedTextOptions,
    "dates": DatesOptions,
    "inflection": InflectionOptions,
    "sequences": SequencesOptions,
    "language_id": LanguageIdOptions,
    "labelled_text": LabelledTextOptions,
    "plain_text": PlainTextOptions,
    "zipf": ZipfOptions,
    "recall": RecallOptions,
    "flip_flop": FlipFlopOptions,
    "addition": AdditionOptions,
    "permutations": PermutationsOptions,
    "babi": BabiOptions,
    "regression": RegressionOptions,
    "scenes": ScenesOptions,
    "pictures": PictureFilesOptions,
}


__all__ = ["TASKS", "Pairs", "PictureTask", "PointsTask", "Task"]
