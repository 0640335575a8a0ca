"""Inflection where the alignment runs over the lemma alone: the tags are merged and enter every step of the decoder.

python launch.py --config=configs/inflection_tags.py
python launch.py --config=configs/inflection_tags.py --config.model.objective=markov \\
    --config.model.objective.jump_size=5
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import inflection_soft


def get_config() -> ConfigDict:
    config = inflection_soft.get_config()
    config.name = "inflection_tags"
    config.description = "LSTM 128, soft attention to the lemma, tags beside it, inflection"
    config.task.tags = "apart"
    config.model.tags = part("fed")
    return config
