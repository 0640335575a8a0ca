"""Japanese to English with soft attention: enja_soft in the other direction.

python -m attn_jax.data.download enja --data_dir=data/enja
python launch.py --config=configs/jaen_soft.py --config.data_dir=data/enja

35.8 BLEU greedy, 39.8 with beam 5 on dev (tokens of the corpus), one seed; 30 to 50 minutes on two cores
(docs/results.md; raw numbers not kept).
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import enja_soft


def get_config() -> ConfigDict:
    config = enja_soft.get_config()
    config.name = "jaen_soft"
    config.description = "LSTM 512, general attention, input feeding, Japanese to English"
    config.task.train = ("train.ja", "train.en")
    config.task.valid = ("dev.ja", "dev.en")
    config.task.buckets = part("fixed", shapes=((11, 8), (11, 10), (14, 10), (17, 12), (17, 17), (32, 32)))
    return config
