"""Sorting numbers with 1.5-entmax in place of softmax; see sort_softmax.py.

python launch.py --config=configs/sort_entmax.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import sort_softmax


def get_config() -> ConfigDict:
    config = sort_softmax.get_config()
    config.name = "sort_entmax"
    config.description = "Decoder-only Transformer, 2 layers of 64, 1.5-entmax, sorting"
    config.model.attention.normalize = part("entmax15")
    return config
