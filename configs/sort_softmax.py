"""Sorting numbers, for length generalization: trained up to length 16, tested up to eight times that length.

A decoder-only Transformer of two layers; half of its heads have no positions, the others a bias by distance. All sizes
are a quarter of Vasylenko 2025 (arXiv 2506.16640): eight symbols in place of 32, lengths 8 to 16 in place of 32 to 64,
so that symbols repeat as often; width 64 in place of 256. experiments/length.py compares the normalizers.

python launch.py --config=configs/sort_softmax.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="sequences", model="language_model")
    config.name = "sort_softmax"
    config.description = "Decoder-only Transformer, 2 layers of 64, softmax, sorting"
    config.task.operation = "sort"
    config.task.num_symbols = 8
    config.task.lengths = (8, 16)
    config.task.test_lengths = (16, 32, 64, 128)
    config.task.num_examples = 400_000
    config.task.batch_size = 32
    config.task.buckets = part("fixed", shapes=(17,))
    config.model.hidden_size = 64
    config.model.num_layers = 2
    config.model.num_heads = 8
    config.model.feed_forward_size = 256
    config.model.positions = part("nape")
    config.model.share_embeddings = True
    config.model.dropout = 0.0
    config.model.attention.score = part("scaled_dot")
    config.train.num_epochs = 1.0
    config.train.eval_every = 2500
    config.train.best_metric = "exact_match"
    config.train.average = 1
    config.optimizer.learning_rate = 4e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 200
    config.decode.max_length = 140
    config.eval.metrics = ("exact_match", "accuracy", "perplexity")
    config.eval.num_pictures = 4
    return config
