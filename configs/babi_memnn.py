"""Strongly supervised memory network on one of the twenty bAbI tasks: Weston 2015, with AM, NG and NL; five seeds.

python launch.py --config=configs/babi_memnn.py --config.task.numbers="(1,)"
python launch.py --config=configs/babi_memnn.py --config.data_dir=data/babi --config.task.numbers="(1,)"
"""

from ml_collections import ConfigDict

from attn_jax.runs.options import switch
from attn_jax.runs.tree import part
from configs import babi_memn2n


def get_config() -> ConfigDict:
    config = switch(babi_memn2n.get_config(), model="memnn")
    config.name = "babi_memnn"
    config.description = "memory network trained on supporting facts: adaptive memory, three grams, two layers of tanh"
    config.seeds = (0, 1, 2, 3, 4)
    config.model.hidden_size = 100
    config.model.dropout = 0.2  # dropout of words and trigrams
    config.model.num_hops = 3
    config.model.num_grams = 300
    config.model.nonlinear = True
    config.model.adaptive = True
    config.task.max_sentences = 0
    config.model.memory_size = 250
    config.train.num_epochs = 40.0
    config.train.choose_seed = "valid"
    config.optimizer = part("adam", learning_rate=5e-3)
    config.optimizer.schedule = part("cosine")
    config.optimizer.clip = part("global", norm=5.0)
    return config.lock()
