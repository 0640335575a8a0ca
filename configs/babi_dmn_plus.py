"""DMN+ on one of the twenty bAbI tasks, from answers alone: Xiong 2016 (arXiv 1603.01417), 10,000 questions.

python launch.py --config=configs/babi_dmn_plus.py --config.task.numbers="(1,)"
python launch.py --config=configs/babi_dmn_plus.py --config.data_dir=data/babi --config.task.numbers="(1,)"
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base

STEPS_PER_EPOCH = 90  # 9,000 questions


def get_config() -> ConfigDict:
    config = base.get_config(task="babi", model="dmn_plus")
    config.name = "babi_dmn_plus"
    config.description = "DMN+, input fusion, attention GRU 80, 3 passes"
    config.task.numbers = (1,)
    config.task.size = "10k"
    config.task.batch_size = 100
    config.task.buckets.num_source = 6  # most stories are short, and short stories cost little
    config.model.hidden_size = 80
    config.model.dropout = 0.1
    config.model.attention.score = part("gate_network", features=80)
    config.model.memory_size = 130
    config.model.fact_dropout = 0.1
    config.train.num_epochs = 256.0
    config.train.eval_every = STEPS_PER_EPOCH
    config.train.patience = 20
    config.optimizer.learning_rate = 1e-3
    config.optimizer.clip.norm = 10.0
    config.eval.metrics = ("accuracy",)
    config.eval.num_pictures = 4
    return config.lock()
