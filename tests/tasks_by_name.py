"""Tasks as a run builds them, from their options."""

from attn_jax.tasks import TASKS


def make(name, data_dir="", kept=None, seeds=(0,), **options):
    return TASKS[name](**options).build(data_dir=str(data_dir), kept=kept, seeds=seeds)
