"""Language identification of a word with convolutions over windows of five characters, and mean pooling.

Without files the package generates four languages; the languages of CoNLL-SIGMORPHON 2017 are downloaded:

    python launch.py --config=configs/language_id_conv.py
    python -m attn_jax.data.download sigmorphon2017 --data_dir=data/sigmorphon2017
    python launch.py --config=configs/language_id_conv.py --config.data_dir=data/sigmorphon2017
"""

from ml_collections import ConfigDict

from attn_jax.runs.options import change
from configs import language_id_selfattentive


def get_config() -> ConfigDict:
    config = change(language_id_selfattentive.get_config(), {"model.encoder": "conv", "model.pooling": "mean"})
    config.name = "language_id_conv"
    config.description = "Convolutions of 3, 2 layers of 128, which language a word is from"
    config.model.encoder.num_layers = 2
    config.model.encoder.kernel_size = 3
    return config
