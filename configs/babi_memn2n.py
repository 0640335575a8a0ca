"""End-to-end memory network on one of the twenty bAbI tasks: Sukhbaatar 2015, 3 hops, PE LS RN, ten restarts at once.

python launch.py --config=configs/babi_memn2n.py --config.task.numbers="(1,)"
python launch.py --config=configs/babi_memn2n.py --config.data_dir=data/babi --config.task.numbers="(1,)"

The recipe follows the authors' code, except that an epoch has each question once (they sample questions). Two details
that are not in the paper matter much: empty memory slots are read as zeros, and the gradient of each table is clipped
by its own norm. Batches of 32, SGD without momentum, 20 epochs without the softmax of the memory and 100 with it, the
learning rate halved every 25. Their loss is a sum over a batch, here it is a mean, so the learning rate is 32 times as
large and the clipping norm 32 times as small.
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base

STEPS_PER_EPOCH = 29  # 900 questions


def get_config() -> ConfigDict:
    config = base.get_config(task="babi", model="memn2n")
    config.name = "babi_memn2n"
    config.description = "end-to-end memory network, 3 hops, position encoding, linear start, random noise"
    config.seeds = tuple(range(10))
    config.task.numbers = (1,)
    config.task.size = "1k"
    config.task.max_sentences = 50
    config.task.batch_size = 32
    config.model.hidden_size = 20
    config.model.attention.score = part("dot")
    config.model.memory_size = 50
    config.model.attend_empty = True
    config.model.noise = 0.1
    config.model.linear_steps = 20 * STEPS_PER_EPOCH
    config.train.num_epochs = 120.0
    config.train.eval_every = 10 * STEPS_PER_EPOCH
    config.train.best_metric = "accuracy"
    config.train.average = 1  # the last parameters, without any selection
    config.train.choose_seed = "train"
    config.optimizer = part("sgd", learning_rate=0.005 * 32)
    config.optimizer.schedule = part("halving", after=20 * STEPS_PER_EPOCH, every=25 * STEPS_PER_EPOCH)
    config.optimizer.clip = part("each", norm=40 / 32)
    config.eval.metrics = ("accuracy",)
    config.eval.num_pictures = 4
    return config.lock()
