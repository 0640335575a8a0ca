"""Captions of generated scenes, such as "red disc blue cross", with attention to the cells of a convolutional network.

The model of Xu et al. 2015, "Show, Attend and Tell" (arXiv 1502.03044) at a small size, in the order of Luong 2015: a
step, then attention. The pictures in DIR/attention have a panel for each word, with the true box of what it names.

    python launch.py --config=configs/scenes_quickstart.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="scenes")
    config.name = "scenes_quickstart"
    config.description = "CNN, LSTM 96, additive attention, captions of scenes"
    config.task.num_examples = 12_000
    config.task.valid_size = 200
    config.task.kinds = ("shapes",)
    config.task.canvas = 32
    config.task.sizes = (9,)
    config.task.num_objects = (1, 3)
    config.task.num_colors = 3
    config.task.clutter = 2
    config.task.batch_size = 32
    config.model.encoder = part("none")
    config.model.embedding_size = 64
    config.model.hidden_size = 96
    config.model.decoder.readout_size = 96
    config.model.decoder.input_feeding = False
    config.model.attention.score = part("additive", features=64)
    config.model.dropout = 0.0
    config.train.num_steps = 3000
    config.train.num_epochs = 0.0
    config.train.eval_every = 1000
    config.optimizer.learning_rate = 2e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 100
    config.decode.max_length = 8
    config.eval.metrics = ("exact_match", "accuracy", "touch", "point", "uniform", "cells")
    return config
