"""English to Japanese with latent attention: the likelihood sums over contexts (Deng 2018, arXiv 1807.03756).

Like enja_soft, with the mean context as input of the decoder state. The output layer runs once for every source word,
so it has only 4,000 words; evaluation uses the five most probable contexts (model.objective.k_max) and small batches.

    python -m attn_jax.data.download enja --data_dir=data/enja
    python launch.py --config=configs/enja_marginal.py --config.data_dir=data/enja
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import enja_soft


def get_config() -> ConfigDict:
    config = enja_soft.get_config()
    config.name = "enja_marginal"
    config.description = "LSTM 512, marginal likelihood over alignments, English to Japanese"
    config.task.vocab_size = (4000, 4000)
    config.model.objective = part("marginal", k_max=5)
    config.decode.batch_size = 20
    return config
