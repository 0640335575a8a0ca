"""English to Japanese where every word of the source has the same weight: the context is the mean of all states.

Between no attention and attention: each step sees the whole source, and cannot choose. Everything else is as in
enja_soft; with equal weights no unknown word can be replaced by the source word of the largest one.

BLEU on dev, six seeds: 32.1 +- 0.5 greedy, 35.2 +- 0.3 with beam 5 (experiments/results/translation.md).

python -m attn_jax.data.download enja --data_dir=data/enja
python launch.py --config=configs/enja_constant.py --config.data_dir=data/enja
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import enja_soft


def get_config() -> ConfigDict:
    config = enja_soft.get_config()
    config.name = "enja_constant"
    config.description = "LSTM 512, the mean of all states in place of attention, English to Japanese"
    config.model.attention.score = part("constant")
    config.decode.unk = "keep"
    return config
