"""End-to-end memory network on all twenty bAbI tasks jointly: Sukhbaatar 2015, 3 hops, PE LS RN, width 50.

python launch.py --config=configs/babi_memn2n_joint.py --config.data_dir=data/babi

The schedule follows the authors' code: 30 epochs without the softmax, then 60 with it, the learning rate halved every
15. All stories go into one bucket, so that a batch mixes questions of all tasks, as in their code.
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import babi_memn2n

STEPS_PER_EPOCH = 563  # 18,000 questions


def get_config() -> ConfigDict:
    config = babi_memn2n.get_config()
    config.name = "babi_memn2n_joint"
    config.description = "end-to-end memory network on all tasks jointly, 3 hops, width 50"
    config.seeds = (0, 1, 2)
    config.task.numbers = ()
    config.task.buckets = part("fixed", shapes=((330, 2),))
    config.model.hidden_size = 50
    config.model.linear_steps = 30 * STEPS_PER_EPOCH
    config.train.num_epochs = 90.0
    config.train.eval_every = 10 * STEPS_PER_EPOCH
    config.optimizer.schedule.after = 30 * STEPS_PER_EPOCH
    config.optimizer.schedule.every = 15 * STEPS_PER_EPOCH
    return config.lock()
