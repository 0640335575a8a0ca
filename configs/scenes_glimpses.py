"""Glimpses: a recurrent network finds a digit among clutter with crops of 12 x 12 of the 48 x 48 pixels.

Mnih et al. 2014, "Recurrent Models of Visual Attention" (arXiv 1406.6247): places from a Gaussian, learned by REINFORCE
with a learned baseline. The pictures in DIR/attention have the path, the crops and the guess after each. With
--config.model.places=grid a place is a cell of model.grid.

    python launch.py --config=configs/scenes_glimpses.py
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="scenes", model="glimpses")
    config.name = "scenes_glimpses"
    config.description = "six glimpses of 12 x 12 pixels at two scales, LSTM 192, digits among clutter"
    config.task.form = "read"
    config.task.num_objects = (1, 1)
    config.task.sizes = (10, 12)
    config.task.clutter = 6
    config.task.num_examples = 20_000
    config.task.valid_size = 200
    config.task.batch_size = 64
    config.model.hidden_size = 192
    config.model.num_scales = 2
    config.model.num_samples = 2
    config.train.num_steps = 6000
    config.train.eval_every = 1000
    config.train.best_metric = "loss"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.schedule = "cosine"
    config.optimizer.warmup_steps = 200
    config.decode.max_length = 4
    config.eval.metrics = ("exact_match", "touch", "point", "uniform", "cells")
    return config
