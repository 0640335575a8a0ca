"""Language model of the Brown corpus with an adaptive softmax; see brown_full.py.

python launch.py --config=configs/brown_adaptive.py --config.data_dir=data/brown
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import brown_full


def get_config() -> ConfigDict:
    config = brown_full.get_config()
    config.name = "brown_adaptive"
    config.description = "LSTM 256, words of the Brown corpus, adaptive softmax"
    config.model.output = part("adaptive")
    return config
