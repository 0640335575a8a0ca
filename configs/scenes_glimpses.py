"""Glimpses: a recurrent network finds a digit among clutter with crops of 12 x 12 of the 48 x 48 pixels.

Mnih et al. 2014, "Recurrent Models of Visual Attention" (arXiv 1406.6247): places from a Gaussian, learned by
REINFORCE. In the paper a path costs 1 if its word is wrong, and the baseline is learned. Here the cost is the negative
log-likelihood, and the baseline the mean cost of the other paths at the image: with these it learns in few steps
(experiments/scenes.py has both). The pictures in DIR/attention have the path, the crops and the guess after each. With
--config.model.places=grid a place is a cell of model.grid.

    python launch.py --config=configs/scenes_glimpses.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="scenes", model="glimpses")
    config.name = "scenes_glimpses"
    config.description = "six glimpses of 12 x 12 pixels at three scales, LSTM 192, digits among clutter"
    config.task.form = "read"
    config.task.num_objects = (1, 1)
    config.task.sizes = (10, 12)
    config.task.clutter = 6
    config.task.num_examples = 20_000
    config.task.valid_size = 200
    config.task.batch_size = 64
    config.model.hidden_size = 192
    config.model.glimpse_features = 256
    config.model.num_scales = 3
    config.model.objective = part("reinforce", num_samples=4, baseline=part("leave_one_out"))
    config.model.cost = "likelihood"
    config.train.num_steps = 6000
    config.train.num_epochs = 0.0
    config.train.eval_every = 1000
    config.train.best_metric = "loss"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 200
    config.decode.max_length = 4
    config.eval.metrics = ("exact_match", "touch", "point", "uniform", "cells")
    return config
