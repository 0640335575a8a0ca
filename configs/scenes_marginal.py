"""Captions of generated scenes with a latent cell for each word, summed out exactly (Deng 2018, arXiv 1807.03756).

python launch.py --config=configs/scenes_marginal.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import scenes_soft


def get_config() -> ConfigDict:
    config = scenes_soft.get_config()
    config.name = "scenes_marginal"
    config.description = "CNN, LSTM 128, marginal likelihood of latent cells, captions of scenes"
    config.model.objective = part("marginal")
    return config
