"""Questions about generated scenes, answered by one word: "what color is the 7", "how many are red".

The words of a question are keys beside the cells of the image, and a Transformer lets them look at each other. The run
prints how many answers are right that see the question alone.

    python launch.py --config=configs/scenes_questions.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="scenes", model="transformer")
    config.name = "scenes_questions"
    config.description = "CNN, Transformer 96 over cells and words, questions about scenes"
    config.task.form = "questions"
    config.task.kinds = ("shapes",)
    config.task.canvas = 32
    config.task.sizes = (9,)
    config.task.num_objects = (1, 3)
    config.task.num_colors = 3
    config.task.clutter = 2
    config.task.num_examples = 20_000
    config.task.batch_size = 64
    config.model.hidden_size = 96
    positions = part("none")  # cells have rows and columns; a question is a set of words
    layers = dict(feed_forward_size=192, positions=positions)
    config.model.encoder = part("transformer", num_layers=2, **layers)
    config.model.decoder = dict(num_layers=1, **layers)
    config.model.dropout = 0.0
    config.model.attention.score = part("scaled_dot")
    config.train.num_epochs = 7.0
    config.train.best_metric = "loss"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 200
    config.decode.max_length = 4
    config.eval.metrics = ("exact_match", "touch", "point", "uniform", "cells")
    return config
