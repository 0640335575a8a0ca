"""Japanese to English with a Transformer: enja_transformer in the other direction.

python -m attn_jax.data.download enja --data_dir=data/enja
python launch.py --config=configs/jaen_transformer.py --config.data_dir=data/enja
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import enja_transformer


def get_config() -> ConfigDict:
    config = enja_transformer.get_config()
    config.name = "jaen_transformer"
    config.description = "Transformer, 3 + 3 layers of 256, Japanese to English"
    config.task.train = ("train.ja", "train.en")
    config.task.valid = ("dev.ja", "dev.en")
    config.task.buckets = part("fixed", shapes=((11, 8), (11, 10), (14, 10), (17, 12), (17, 17), (32, 32)))
    return config
