"""Inflection with hard attention: one key is drawn, REINFORCE with a learned baseline (Xu 2015, arXiv 1502.03044).

The decoder's state goes on without it, so each step has its own choice (Deng 2018, arXiv 1807.03756); with
--config.model.input_feeding --config.model.attention.feed=read what was drawn enters the state.

    python launch.py --config=configs/inflection_hard.py
"""

from ml_collections import ConfigDict

from configs import inflection_soft


def get_config() -> ConfigDict:
    config = inflection_soft.get_config()
    config.name = "inflection_hard"
    config.description = "LSTM 128, hard attention, REINFORCE with a learned baseline, inflection"
    config.model.objective = "hard"
    config.model.attention.read = "reinforce"
    config.model.attention.num_samples = 1
    config.model.attention.baseline = "learned"
    return config
