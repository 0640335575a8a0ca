"""Language identification by the four states of largest norm: hard attention without sampling or a query.

Malinowski 2018 (arXiv 1808.00300) does this with the cells of an image. The choice has no gradient; a state that helps
grows, and so is chosen.

python launch.py --config=configs/language_id_norm.py
python launch.py --config=configs/language_id_norm.py --config.data_dir=data/sigmorphon2017
"""

from ml_collections import ConfigDict

from attn_jax.runs.options import change
from attn_jax.runs.tree import part
from configs import language_id_conv


def get_config() -> ConfigDict:
    config = change(language_id_conv.get_config(), {"model.pooling": "structured"})
    config.name = "language_id_norm"
    config.description = (
        "Convolutions of 3, 2 layers of 128, the 4 states of largest norm, which language a word is from"
    )
    config.model.pooling.num_queries = 1
    config.model.attention.score = part("norm")
    config.model.attention.read = part("top", num_samples=4)
    return config
