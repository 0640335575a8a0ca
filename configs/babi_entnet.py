"""Recurrent entity network on one of the twenty bAbI tasks: Henaff 2017 (arXiv 1612.03969), 10,000 questions.

python launch.py --config=configs/babi_entnet.py --config.task.numbers="(1,)"
python launch.py --config=configs/babi_entnet.py --config.data_dir=data/babi --config.task.numbers="(1,)"

The schedule is the published one: Adam from 0.01, halved every 25 epochs, 200 epochs. On most tasks a tenth of this
rate learns more: --config.optimizer.learning_rate=0.001. The authors' loss is a sum over a batch of 32, here it is a
mean, so the clipping norm is 32 times as small. As in their code, training stops when no validation answer is wrong.
They use 150 statements for task 3: --config.model.memory_size=150
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base

STEPS_PER_EPOCH = 282  # 9,000 questions


def get_config() -> ConfigDict:
    config = base.get_config(task="babi", model="entnet")
    config.name = "babi_entnet"
    config.description = "recurrent entity network, 20 slots of 100"
    config.task.numbers = (1,)
    config.task.size = "10k"
    config.task.batch_size = 32
    config.task.buckets.num_source = 6  # most stories are short, and short stories cost little
    config.model.hidden_size = 100
    config.model.dropout = 0.0
    config.model.attention.score = part("dot")
    config.model.memory_size = 70
    config.model.num_slots = 20
    config.train.num_epochs = 200.0
    config.train.eval_every = STEPS_PER_EPOCH
    config.train.patience = 50
    config.train.best_metric = "accuracy"
    config.train.goal = 100.0
    config.optimizer.learning_rate = 0.01
    config.optimizer.schedule = part("halving", every=25 * STEPS_PER_EPOCH)
    config.optimizer.clip.norm = 40 / 32
    config.eval.metrics = ("accuracy",)
    config.eval.num_pictures = 4
    return config.lock()
