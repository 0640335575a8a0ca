"""Language model of a generated text of 50,000 words with known entropy: an LSTM with the full softmax.

The run prints the lowest possible perplexity. Another output layer: --config.model.output.name=adaptive.

python launch.py --config=configs/zipf.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="zipf", model="recurrent_language_model")
    config.name = "zipf"
    config.description = "LSTM 128, 50,000 words by Zipf's law, full softmax"
    config.task.num_words = 50_000
    config.task.num_examples = 100_000
    config.task.batch_size = 32
    config.task.buckets = part("fixed", shapes=((1, 33),))
    config.model.embedding_size = 128
    config.model.hidden_size = 128
    config.model.dropout = 0.0
    config.model.share_embeddings = True
    config.model.continue_source = True
    config.train.num_epochs = 1.0
    config.train.eval_every = 250
    config.optimizer.learning_rate = 3e-3
    config.eval.metrics = ("perplexity",)
    config.eval.num_pictures = 0
    return config
