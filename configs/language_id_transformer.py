"""Language identification of a word with a Transformer encoder and mean pooling.

Without files the package generates four languages; the languages of CoNLL-SIGMORPHON 2017 are downloaded:

    python launch.py --config=configs/language_id_transformer.py
    python -m attn_jax.tasks.download sigmorphon2017 --data_dir=data/sigmorphon2017
    python launch.py --config=configs/language_id_transformer.py --config.data_dir=data/sigmorphon2017
"""

from ml_collections import ConfigDict

from configs import language_id_selfattentive


def get_config() -> ConfigDict:
    config = language_id_selfattentive.get_config()
    config.name = "language_id_transformer"
    config.description = "Transformer, 2 layers of 128, which language a word is from"
    config.model.encoder = "transformer"
    config.model.pooling = "mean"
    config.model.num_layers = 2
    config.model.num_heads = 4
    config.model.feed_forward_size = 256
    config.model.dropout = 0.1
    config.model.attention.score = "scaled_dot"
    config.optimizer.learning_rate = 1e-3
    return config
