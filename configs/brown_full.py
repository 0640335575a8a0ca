"""Language model of the Brown corpus: a recurrent network with 49,548 words and the full softmax.

One sentence is an example. The corpus has 45,829 sentences for training; words that occur once are in the vocabulary.
Files train.txt and valid.txt hold one sentence of words per line (W. N. Francis and H. Kucera, non-commercial use).
brown_adaptive.py and brown_sampled.py are the same model with other output layers.

python launch.py --config=configs/brown_full.py --config.data_dir=data/brown
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base


def get_config() -> ConfigDict:
    config = base.get_config(task="plain_text", model="recurrent_language_model")
    config.name = "brown_full"
    config.description = "LSTM 256, words of the Brown corpus, full softmax"
    config.task.train = ("train.txt", "")
    config.task.valid = ("valid.txt", "")
    config.task.vocabulary = part("words", min_count=1)
    config.task.vocab_size = (100_000, 100_000)
    config.task.batch_size = 32
    config.model.embedding_size = 256
    config.model.hidden_size = 256
    config.model.dropout = 0.5
    config.model.share_embeddings = True
    config.model.continue_source = True
    config.train.num_epochs = 10.0
    config.train.patience = 2
    config.optimizer.learning_rate = 2e-3
    config.eval.metrics = ("perplexity",)
    config.eval.num_pictures = 0
    return config
