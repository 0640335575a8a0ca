"""Inflection with latent attention, summed out exactly: -log sum_x a_x p(y | z_x) (Wu 2018, arXiv 1808.10024).

python launch.py --config=configs/inflection_marginal.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import inflection_soft


def get_config() -> ConfigDict:
    config = inflection_soft.get_config()
    config.name = "inflection_marginal"
    config.description = "LSTM 128, marginal likelihood over alignments, inflection"
    config.model.objective = part("marginal")
    return config
