"""Associative recall, 4 pairs in 64 tokens: a decoder-only Transformer of two layers of width 64, five seeds.

Another memory: --config.model.attention=delta. experiments/recall.py compares them.

python launch.py --config=configs/recall.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="recall", model="language_model")
    config.name = "recall"
    config.description = "Decoder-only Transformer, 2 layers of 64, softmax, associative recall"
    config.seeds = (0, 1, 2, 3, 4)
    config.task.num_examples = 25_000  # new texts cost nothing, and few are learned by heart
    config.task.batch_size = 16
    config.task.buckets = part("fixed", shapes=((9, 55),))
    config.model.hidden_size = 64
    config.model.num_layers = 2
    config.model.num_heads = 1
    config.model.feed_forward_size = 256
    config.model.short_convolution = 4
    config.model.share_embeddings = True
    config.model.dropout = 0.0
    config.model.attention.score = part("scaled_dot")
    config.train.num_epochs = 2.0
    config.train.eval_every = 500
    config.train.best_metric = "loss"
    config.train.average = 1
    config.optimizer.learning_rate = 5e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 100
    config.decode.max_length = 56
    config.eval.metrics = ("perplexity", "accuracy")
    config.eval.num_pictures = 0
    return config
