"""Morphological inflection with a pointer-generator: letters of the lemma may be copied (See 2017, arXiv 1704.04368).

With coverage in the score: --config.model.decoder.extras=coverage --config.model.attention.score=additive

python launch.py --config=configs/inflection_pointer.py
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import inflection_soft


def get_config() -> ConfigDict:
    config = inflection_soft.get_config()
    config.name = "inflection_pointer"
    config.description = "LSTM 128, pointer-generator, inflection"
    config.model.objective = part("copy")
    return config
