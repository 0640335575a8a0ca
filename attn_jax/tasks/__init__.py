"""Data: from files or generated text to batches of ids. Numpy only, no models."""

from attn_jax.tasks.babi.task import babi
from attn_jax.tasks.dates import dates
from attn_jax.tasks.inflection import inflection
from attn_jax.tasks.labelled_text import labelled_text
from attn_jax.tasks.language_id import language_id
from attn_jax.tasks.pairs import Pairs
from attn_jax.tasks.parallel_text import parallel_text
from attn_jax.tasks.plain_text import plain_text
from attn_jax.tasks.points import PointsTask, regression
from attn_jax.tasks.sequences import sequences
from attn_jax.tasks.task import Task

TEXT_TASKS = {
    "parallel_text": parallel_text,
    "dates": dates,
    "inflection": inflection,
    "sequences": sequences,
    "language_id": language_id,
    "labelled_text": labelled_text,
    "plain_text": plain_text,
    "babi": babi,
}
POINT_TASKS = {"regression": regression}
TASKS = TEXT_TASKS | POINT_TASKS


def task_class(name: str) -> type[Task] | type[PointsTask]:
    """Returns the class of the tasks that TASKS[name] builds."""
    return PointsTask if name in POINT_TASKS else Task


__all__ = ["POINT_TASKS", "TASKS", "TEXT_TASKS", "Pairs", "PointsTask", "Task", "task_class"]
