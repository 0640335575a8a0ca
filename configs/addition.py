"""Addition of numbers of up to five digits: a decoder-only Transformer of four layers of width 128.

Last digit first, which is easier: --config.task.reverse=True. Longer numbers: --config.task.test_digits="(6, 8)".

python launch.py --config=configs/addition.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="addition", model="language_model")
    config.name = "addition"
    config.description = "Decoder-only Transformer, 4 layers of 128, addition"
    config.task.batch_size = 128
    config.task.buckets = part("fixed", shapes=((12, 7),))
    config.model.hidden_size = 128
    config.model.num_layers = 4
    config.model.num_heads = 4
    config.model.feed_forward_size = 256
    config.model.share_embeddings = True
    config.model.dropout = 0.0
    config.model.attention.score = part("scaled_dot")
    config.train.num_epochs = 20.0
    config.train.best_metric = "exact_match"
    config.train.average = 1
    config.optimizer.learning_rate = 1e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 200
    config.decode.max_length = 40
    config.eval.metrics = ("exact_match", "perplexity")
    config.eval.num_pictures = 0
    return config
