"""Dynamic memory network on one of the twenty bAbI tasks, with supporting facts: Kumar 2016 (arXiv 1506.07285).

python launch.py --config=configs/babi_dmn.py --config.task.numbers="(1,)"
python launch.py --config=configs/babi_dmn.py --config.data_dir=data/babi --config.task.numbers="(1,)"

For ten epochs only the gates are trained, on the supporting facts; then the answer too. The gates are a softmax over
the facts; those of the paper, sigmoids, are in babi_dmn_published. Weak supervision, without supporting facts:
--config.model.gate_weight=0 --config.model.gate_steps=0
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base

STEPS_PER_EPOCH = 29  # 900 questions


def get_config() -> ConfigDict:
    config = base.get_config(task="babi", model="dmn")
    config.name = "babi_dmn"
    config.description = "dynamic memory network, GRU 80, 3 passes, gates trained with the evidence"
    config.seeds = (0, 1, 2)
    config.task.numbers = (1,)
    config.task.size = "1k"
    config.task.batch_size = 32
    config.model.embedding_size = 50
    config.model.hidden_size = 80
    config.model.dropout = 0.1
    config.model.attention.score = part("gate_network", features=80)
    config.model.memory_size = 130
    config.model.gate_weight = 1.0
    config.model.gate_steps = 10 * STEPS_PER_EPOCH
    config.model.fact_dropout = 0.1
    config.train.num_epochs = 100.0
    config.train.eval_every = 2 * STEPS_PER_EPOCH
    config.train.best_metric = "accuracy"
    config.train.choose_seed = "valid"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.clip.norm = 5.0
    config.eval.metrics = ("accuracy",)
    config.eval.num_pictures = 4
    return config.lock()
