"""Dynamic memory network as published: sigmoid gates that drive a GRU over the facts (Kumar 2016, arXiv 1506.07285).

As babi_dmn, whose gates are a softmax over the facts. Here each gate is the sigmoid of its own score, so their sum need
not be one. The published word vectors of GloVe are not used, and the answer is one word.

python launch.py --config=configs/babi_dmn_published.py --config.task.numbers="(1,)"
python launch.py --config=configs/babi_dmn_published.py --config.data_dir=data/babi --config.task.numbers="(1,)"
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import babi_dmn


def get_config() -> ConfigDict:
    config = babi_dmn.get_config()
    config.name = "babi_dmn_published"
    config.description = "dynamic memory network, sigmoid gates, GRU 80, 3 passes, gates trained with the evidence"
    config.model.attention.normalize = part("logistic")
    config.model.episode = "gru"
    return config.lock()
