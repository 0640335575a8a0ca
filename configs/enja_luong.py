"""English to Japanese as in Luong 2015 without input feeding: attention and output run once over all steps.

python -m attn_jax.data.download enja --data_dir=data/enja
python launch.py --config=configs/enja_luong.py --config.data_dir=data/enja
"""

from ml_collections import ConfigDict

from configs import enja_soft


def get_config() -> ConfigDict:
    config = enja_soft.get_config()
    config.name = "enja_luong"
    config.description = "LSTM 512, general attention, no input feeding, English to Japanese"
    config.model.decoder.input_feeding = False
    return config
