"""Data: from files or generated text to batches of ids. Numpy only, no models."""

from attn_jax.tasks.dates import dates
from attn_jax.tasks.inflection import inflection
from attn_jax.tasks.parallel_text import parallel_text
from attn_jax.tasks.task import Pairs, Task

TASKS = {"parallel_text": parallel_text, "dates": dates, "inflection": inflection}

__all__ = ["TASKS", "Pairs", "Task"]
