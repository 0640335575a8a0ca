"""Morphological inflection with soft attention: gehen V;PST;3;SG -> ging, character by character.

Without files the package generates a language; the ten languages of CoNLL-SIGMORPHON 2017 are downloaded:

    python launch.py --config=configs/inflection_soft.py
    python -m attn_jax.data.download sigmorphon2017 --data_dir=data/sigmorphon2017
    python launch.py --config=configs/inflection_soft.py --config.data_dir=data/sigmorphon2017 \\
        --config.task.language=german
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="inflection")
    config.name = "inflection_soft"
    config.description = "LSTM 128, soft attention, inflection"
    config.task.batch_size = 32
    config.task.buckets = part("fixed", shapes=((18, 12), (24, 18), (32, 24), (64, 64)))
    config.model.embedding_size = 100
    config.model.hidden_size = 128
    config.model.decoder.readout_size = 128
    config.model.decoder.input_feeding = False  # the context enters the output layer only
    config.model.decoder.bridge = "dense"
    config.model.dropout = 0.4
    config.train.num_epochs = 30.0
    config.train.best_metric = "exact_match"
    config.train.keep = 1
    config.train.average = 1  # the last checkpoint: no selection, so validation forms serve as a test
    config.optimizer.learning_rate = 2e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 100
    config.decode.max_length = 60
    config.eval.metrics = ("exact_match", "edit_distance", "perplexity", "attention_entropy")
    return config
