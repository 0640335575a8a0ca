"""Data sets: text files or generated examples, their vocabularies, and batches of ids. Only numpy, no models."""

from attn_jax.tasks.babi.task import babi
from attn_jax.tasks.dates import dates
from attn_jax.tasks.inflection import inflection
from attn_jax.tasks.labelled_text import labelled_text
from attn_jax.tasks.language_id import language_id
from attn_jax.tasks.parallel_text import parallel_text
from attn_jax.tasks.plain_text import plain_text
from attn_jax.tasks.points import PointsTask, regression
from attn_jax.tasks.sequences import sequences
from attn_jax.tasks.task import Pairs, Task

TASKS = {
    "parallel_text": parallel_text,
    "dates": dates,
    "inflection": inflection,
    "sequences": sequences,
    "language_id": language_id,
    "labelled_text": labelled_text,
    "plain_text": plain_text,
    "babi": babi,
    "regression": regression,
}

__all__ = ["TASKS", "Pairs", "PointsTask", "Task"]
