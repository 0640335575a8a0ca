"""Data sets: text files or generated examples, their vocabularies, and batches of ids. Only numpy, no models."""

from attn_jax.tasks.addition import AdditionOptions
from attn_jax.tasks.babi.task import BabiOptions
from attn_jax.tasks.dates import DatesOptions
from attn_jax.tasks.flip_flop import FlipFlopOptions
from attn_jax.tasks.indexed_text import IndexedTextOptions
from attn_jax.tasks.inflection import InflectionOptions
from attn_jax.tasks.labelled_text import LabelledTextOptions
from attn_jax.tasks.language_id import LanguageIdOptions
from attn_jax.tasks.pairs import Pairs
from attn_jax.tasks.parallel_text import ParallelTextOptions
from attn_jax.tasks.permutations import PermutationsOptions
from attn_jax.tasks.picture_files import PictureFilesOptions
from attn_jax.tasks.pictures import PictureTask
from attn_jax.tasks.plain_text import PlainTextOptions
from attn_jax.tasks.points import PointsTask
from attn_jax.tasks.recall import RecallOptions
from attn_jax.tasks.regression import RegressionOptions
from attn_jax.tasks.scenes.task import ScenesOptions
from attn_jax.tasks.sequences import SequencesOptions
from attn_jax.tasks.task import Task
from attn_jax.tasks.zipf import ZipfOptions

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
