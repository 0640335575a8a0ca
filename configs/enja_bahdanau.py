"""English to Japanese by the decoder of Bahdanau 2015: attend with the state before by the additive score, then step.

All else is as in enja_soft, whose decoder steps, then attends (Luong 2015).

    python -m attn_jax.tasks.download enja --data_dir=data/enja
    python launch.py --config=configs/enja_bahdanau.py --config.data_dir=data/enja
"""

from ml_collections import ConfigDict

from configs import enja_soft


def get_config() -> ConfigDict:
    config = enja_soft.get_config()
    config.name = "enja_bahdanau"
    config.description = "LSTM 512, additive attention before the step, English to Japanese"
    config.model.decoder = "bahdanau"
    config.model.attention.score = "additive"
    return config
