"""Captions of generated scenes with attention alone: a Transformer over patches (Dosovitskiy 2021, arXiv 2010.11929).

A patch of 4 x 4 pixels is a linear map, a learned vector of its row and one of its column; a Transformer decoder
attends to the encoded patches.

    python launch.py --config=configs/scenes_patches.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.options import switch
from attn_jax.runs.tree import part
from configs import scenes_soft


def get_config() -> ConfigDict:
    config = switch(scenes_soft.get_config(), model="transformer")
    config.name = "scenes_patches"
    config.description = "Transformer 96 over patches of 4 pixels, captions of scenes"
    config.model.picture.grid = part("patches", patch_size=4)
    config.model.hidden_size = 96
    positions = part("learned")  # of the words; patches have rows and columns
    layers = dict(num_layers=2, feed_forward_size=192, positions=positions)
    config.model.encoder = part("transformer", **layers)
    config.model.decoder = layers
    config.model.dropout = 0.0
    config.model.attention.score = part("scaled_dot")
    config.optimizer.learning_rate = 1e-3
    return config
