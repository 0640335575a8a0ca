"""Inflection with variational attention: an inference network sees the target (Deng 2018, arXiv 1807.03756).

python launch.py --config=configs/inflection_elbo.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import inflection_soft


def get_config() -> ConfigDict:
    config = inflection_soft.get_config()
    config.name = "inflection_elbo"
    config.description = "LSTM 128, variational attention, inflection"
    config.model.objective = part("elbo", inference_size=128, reading=part("enumeration"))
    return config
