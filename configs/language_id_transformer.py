"""Language identification of a word with a Transformer encoder and mean pooling.

Without files the package generates four languages; the languages of CoNLL-SIGMORPHON 2017 are downloaded:

    python launch.py --config=configs/language_id_transformer.py
    python -m attn_jax.data.download sigmorphon2017 --data_dir=data/sigmorphon2017
    python launch.py --config=configs/language_id_transformer.py --config.data_dir=data/sigmorphon2017
"""

from ml_collections import ConfigDict

from attn_jax.runs.options import change
from attn_jax.runs.tree import part
from configs import language_id_selfattentive


def get_config() -> ConfigDict:
    choices = {"model.encoder": "transformer", "model.pooling": "mean"}
    config = change(language_id_selfattentive.get_config(), choices)
    config.name = "language_id_transformer"
    config.description = "Transformer, 2 layers of 128, which language a word is from"
    config.model.encoder.num_layers = 2
    config.model.encoder.num_heads = 4
    config.model.encoder.feed_forward_size = 256
    config.model.dropout = 0.1
    config.model.attention.score = part("scaled_dot")
    config.optimizer.learning_rate = 1e-3
    return config
