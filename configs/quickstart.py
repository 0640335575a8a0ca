"""Dates as people write them, in English and Japanese, to ISO: 令和8年11月21日 -> 2026-11-21.

The package generates the data. The model is the smallest one with a clear alignment: a character LSTM with the additive
score of Bahdanau, Cho & Bengio 2015 (arXiv 1409.0473) in the decoder of Luong 2015.

    python launch.py --config=configs/quickstart.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="dates")
    config.name = "quickstart"
    config.description = "LSTM 128, additive attention, dates to ISO"
    config.task.num_examples = 60_000
    config.task.valid_size = 500
    config.task.buckets = part("fixed", shapes=((12, 11), (20, 11), (32, 11)))
    config.task.batch_size = 64
    config.model.embedding_size = 64
    config.model.hidden_size = 128
    config.model.decoder.input_feeding = False
    config.model.attention.score = part("additive", features=64)
    config.model.dropout = 0.0  # generated data is unlimited
    config.train.num_steps = 2050
    config.train.num_epochs = 0.0
    config.train.eval_every = 2050
    config.optimizer.learning_rate = 3e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 100
    config.decode.max_length = 20
    config.eval.metrics = ("exact_match", "perplexity")
    return config
