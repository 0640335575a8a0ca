"""Language identification of a word with an LSTM and structured self-attention (Lin 2017, arXiv 1703.03130).

Without files the package generates four languages; the languages of CoNLL-SIGMORPHON 2017 are downloaded:

    python launch.py --config=configs/language_id_selfattentive.py
    python -m attn_jax.data.download sigmorphon2017 --data_dir=data/sigmorphon2017
    python launch.py --config=configs/language_id_selfattentive.py --config.data_dir=data/sigmorphon2017
"""

from ml_collections import ConfigDict

from attn_jax.runs.options import change
from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = change(base.get_config(task="language_id", model="classifier"), {"model.pooling": "structured"})
    config.name = "language_id_selfattentive"
    config.description = "LSTM 128, structured self-attention, which language a word is from"
    config.task.batch_size = 64
    config.task.buckets = part("fixed", shapes=((10, 2), (14, 2), (24, 2), (64, 2)))
    config.model.embedding_size = 64
    config.model.hidden_size = 128
    config.model.readout_size = 128
    config.model.dropout = 0.3
    config.train.num_epochs = 6.0
    config.train.best_metric = "accuracy"
    config.optimizer.learning_rate = 2e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 100
    config.decode.max_length = 2
    config.eval.metrics = ("accuracy", "perplexity")

    config.model.pooling.num_queries = 4
    config.model.pooling.penalty = 0.1
    config.model.attention.score = part("tanh_key", features=64)
    return config
