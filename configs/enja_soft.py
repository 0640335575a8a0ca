"""English to Japanese with soft attention on small_parallel_enja (50,000 short sentences, tokenized).

python -m attn_jax.data.download enja --data_dir=data/enja
python launch.py --config=configs/enja_soft.py --config.data_dir=data/enja

BLEU on dev (tokens of the corpus), six seeds: 35.4 +- 0.7 greedy, 37.7 +- 0.6 with beam 5
(experiments/results/translation.md). One seed took 30 to 70 minutes on two cores (raw numbers not kept).
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.name = "enja_soft"
    config.description = "LSTM 512, general attention, input feeding, English to Japanese"
    config.task.train = ("train.en", "train.ja")
    config.task.valid = ("dev.en", "dev.ja")
    config.task.tokenize = "none"
    config.task.buckets = part("fixed", shapes=((8, 11), (10, 11), (10, 14), (12, 17), (17, 17), (32, 32)))
    config.model.hidden_size = 512
    config.model.tie_embeddings = True
    config.model.dropout = 0.3
    config.model.output.label_smoothing = 0.1
    config.train.num_epochs = 12.0
    config.train.average = 4
    config.optimizer.learning_rate = 1.5e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 200
    config.decode.unk = "replace"
    return config
