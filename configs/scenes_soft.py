"""Captions such as "a red disc left of a blue cross" with soft attention, after Xu et al. 2015 (arXiv 1502.03044).

Attend, then step, as in the paper: the query is the state before the word that was said last is read. With
--config.model.decoder=luong the model steps first.

    python launch.py --config=configs/scenes_soft.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="scenes")
    config.name = "scenes_soft"
    config.description = "CNN, LSTM 128, soft attention, captions of scenes"
    config.task.form = "relations"
    config.task.kinds = ("shapes",)
    config.task.canvas = 32
    config.task.sizes = (9,)
    config.task.num_objects = (1, 3)
    config.task.num_colors = 3
    config.task.clutter = 2
    config.task.num_examples = 12_000
    config.task.valid_size = 200
    config.task.batch_size = 32
    config.model.encoder = part("none")
    config.model.embedding_size = 96
    config.model.hidden_size = 128
    config.model.decoder = part("bahdanau", readout_size=128)
    config.model.attention.score = part("additive", features=96)
    config.model.dropout = 0.0
    config.train.num_steps = 3000
    config.train.num_epochs = 0.0
    config.train.eval_every = 1000
    config.optimizer.learning_rate = 2e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 100
    config.decode.max_length = 24
    config.eval.metrics = ("exact_match", "accuracy", "bleu", "touch", "point", "strict", "uniform", "cells")
    return config
