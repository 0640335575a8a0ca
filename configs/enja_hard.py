"""English to Japanese with hard attention: one source word is read per target word, drawn with four evaluations.

As enja_marginal, trained by samples (Deng 2018, arXiv 1807.03756) with a learned baseline; theirs, the loss of soft
attention, is --config.model.attention.baseline=soft.

    python -m attn_jax.tasks.download enja --data_dir=data/enja
    python launch.py --config=configs/enja_hard.py --config.data_dir=data/enja
"""

from ml_collections import ConfigDict

from configs import enja_marginal


def get_config() -> ConfigDict:
    config = enja_marginal.get_config()
    config.name = "enja_hard"
    config.description = "LSTM 512, hard attention, 4 samples, learned baseline, English to Japanese"
    config.model.objective = "hard"
    config.model.attention.read = "optimal_resampling"
    config.model.attention.num_samples = 4
    config.model.attention.baseline = "learned"
    return config
