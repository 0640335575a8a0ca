"""Captions of generated scenes with hard attention: REINFORCE with a learned baseline (Xu 2015, arXiv 1502.03044).

The readout sees one sampled cell, the recurrence the mean context (Deng 2018, arXiv 1807.03756), so the samples of a
word need the loss of that word alone. With --config.model.objective=trajectory
--config.model.objective.reading.num_samples=4 the sample enters the recurrence.

    python launch.py --config=configs/scenes_hard.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import scenes_soft


def get_config() -> ConfigDict:
    config = scenes_soft.get_config()
    config.name = "scenes_hard"
    config.description = "CNN, LSTM 128, hard attention, REINFORCE with a learned baseline, captions of scenes"
    config.model.objective = part("hard", baseline=part("learned", features=96))
    config.model.objective.reading = part("reinforce", num_samples=4)
    return config
