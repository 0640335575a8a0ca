"""English to Japanese with hard attention: one source word per target word, sampled with four evaluations of the loss.

Like enja_marginal, but trained with samples (Deng 2018, arXiv 1807.03756) and a learned baseline. The baseline of the
paper, the loss of soft attention: --config.model.objective.baseline=soft.

    python -m attn_jax.data.download enja --data_dir=data/enja
    python launch.py --config=configs/enja_hard.py --config.data_dir=data/enja
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import enja_marginal


def get_config() -> ConfigDict:
    config = enja_marginal.get_config()
    config.name = "enja_hard"
    config.description = "LSTM 512, hard attention, 4 samples, learned baseline, English to Japanese"
    config.model.objective = part("hard", baseline=part("learned"), k_max=5)
    config.model.objective.reading = part("optimal_resampling", num_samples=4)
    return config
