"""Sorting numbers with adaptive-scalable entmax in place of softmax; see sort_softmax.py.

python launch.py --config=configs/sort_asentmax.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import sort_softmax


def get_config() -> ConfigDict:
    config = sort_softmax.get_config()
    config.name = "sort_asentmax"
    config.description = "Decoder-only Transformer, 2 layers of 64, adaptive-scalable entmax, sorting"
    config.model.attention.normalize = part("scalable_entmax")
    return config
