"""DMN+ on one of the twenty bAbI tasks, with supporting facts and 1,000 questions: Xiong 2016, Kumar 2016.

python launch.py --config=configs/babi_dmn_supervised.py --config.task.numbers="(1,)"
python launch.py --config=configs/babi_dmn_supervised.py --config.data_dir=data/babi --config.task.numbers="(1,)"

The network is from Xiong 2016 (arXiv 1603.01417), the loss from Kumar 2016 (arXiv 1506.07285), section 2.6. A network
soon memorizes so few stories, hence the strong dropout of facts and the strong weight decay.
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import babi_dmn_plus

STEPS_PER_EPOCH = 29  # 900 questions


def get_config() -> ConfigDict:
    config = babi_dmn_plus.get_config()
    config.name = "babi_dmn_supervised"
    config.description = "DMN+, 3 passes, gates trained with the evidence"
    config.task.size = "1k"
    config.task.batch_size = 32
    config.task.buckets.num_source = 2
    config.model.gate_weight = 2.0
    config.model.fact_dropout = 0.4
    config.train.num_epochs = 100.0
    config.train.eval_every = 5 * STEPS_PER_EPOCH
    config.train.patience = 0
    config.train.best_metric = "accuracy"
    config.train.average = 1  # the last parameters, without any selection
    config.optimizer = part("adamw", learning_rate=3e-3, weight_decay=1.0)
    config.optimizer.schedule = part("cosine")
    config.optimizer.clip = part("global", norm=10.0)
    return config.lock()
