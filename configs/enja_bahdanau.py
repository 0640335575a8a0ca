"""English to Japanese with the decoder of Bahdanau 2015 (arXiv 1409.0473): attend, then step, by the additive score.

Everything else is as in enja_soft, whose decoder steps first and then attends (Luong 2015).

BLEU on dev, six seeds: 36.6 +- 0.7 greedy, 38.5 +- 0.3 with beam 5 (experiments/results/translation.md).

python -m attn_jax.data.download enja --data_dir=data/enja
python launch.py --config=configs/enja_bahdanau.py --config.data_dir=data/enja
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import enja_soft


def get_config() -> ConfigDict:
    config = enja_soft.get_config()
    config.name = "enja_bahdanau"
    config.description = "LSTM 512, attend then step, additive attention, English to Japanese"
    config.model.decoder = part("bahdanau")
    config.model.attention.score = part("additive", features=512)
    return config
