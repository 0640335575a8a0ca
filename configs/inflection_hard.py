"""Inflection with hard attention: one sampled key, REINFORCE with a learned baseline (Xu 2015, arXiv 1502.03044).

The sampled context does not enter the decoder state, so the steps are independent (Deng 2018, arXiv 1807.03756). With
--config.model.decoder.input_feeding --config.model.objective=trajectory it does.

    python launch.py --config=configs/inflection_hard.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import inflection_soft


def get_config() -> ConfigDict:
    config = inflection_soft.get_config()
    config.name = "inflection_hard"
    config.description = "LSTM 128, hard attention, REINFORCE with a learned baseline, inflection"
    config.model.objective = part("hard", reading=part("reinforce"), baseline=part("learned", features=128))
    return config
