"""The flip-flop language, 64 instructions: a decoder-only Transformer of two layers of width 64 (Liu 2023, 2306.00946).

A memory that is written: --config.model.attention=gated_delta. Test texts ignore 98 percent of their bits.

python launch.py --config=configs/flip_flop.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="flip_flop", model="language_model")
    config.name = "flip_flop"
    config.description = "Decoder-only Transformer, 2 layers of 64, flip-flop language"
    config.task.batch_size = 64
    config.task.buckets = part("fixed", shapes=((1, 129),))
    config.model.hidden_size = 64
    config.model.num_layers = 2
    config.model.num_heads = 2
    config.model.feed_forward_size = 256
    config.model.share_embeddings = True
    config.model.continue_source = True
    config.model.dropout = 0.0
    config.model.attention.score = part("scaled_dot")
    config.train.num_epochs = 3.0
    config.train.eval_every = 200
    config.train.best_metric = "loss"
    config.train.average = 1
    config.optimizer.learning_rate = 1e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 100
    config.decode.max_length = 130
    config.eval.metrics = ("perplexity", "accuracy")
    config.eval.num_pictures = 0
    return config
