"""Language model of the Brown corpus, trained by importance sampling with updates of rows; see brown_full.py.

python launch.py --config=configs/brown_sampled.py --config.data_dir=data/brown
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import brown_full


def get_config() -> ConfigDict:
    config = brown_full.get_config()
    config.name = "brown_sampled"
    config.description = "LSTM 256, words of the Brown corpus, 1,024 sampled words"
    config.model.output = part("sampled", num_samples=1024)
    config.train.lazy_rows = True
    return config
