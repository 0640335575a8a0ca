"""State tracking in S5, up to 16 permutations: a recurrent language model, which can, beside a Transformer.

A Transformer: --config.model.name=language_model. A memory that is written, with steps that the state depends on:
--config.model.name=language_model --config.model.attention=delta.

python launch.py --config=configs/permutations.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="permutations", model="recurrent_language_model")
    config.name = "permutations"
    config.description = "LSTM 128, word problem of S5"
    config.task.batch_size = 128
    config.task.num_examples = 50_000
    config.task.buckets = part("fixed", shapes=((17, 2),))
    config.model.hidden_size = 128
    config.model.num_layers = 1
    config.model.dropout = 0.0
    config.train.num_epochs = 10.0
    config.train.best_metric = "exact_match"
    config.train.average = 1
    config.optimizer.learning_rate = 2e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 100
    config.decode.max_length = 2
    config.eval.metrics = ("exact_match", "perplexity")
    config.eval.num_pictures = 0
    return config
