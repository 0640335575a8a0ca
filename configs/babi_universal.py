"""Universal Transformer on one of the twenty bAbI tasks: Dehghani 2019 (arXiv 1807.03819), 10,000 questions.

python launch.py --config=configs/babi_universal.py --config.task.numbers="(1,)"
python launch.py --config=configs/babi_universal.py --config.data_dir=data/babi --config.task.numbers="(1,)"

With adaptive computation time, a different number of steps for each statement: --config.model.halting=adaptive
"""

from ml_collections import ConfigDict

from attn_jax.runs.tree import part
from configs import base

STEPS_PER_EPOCH = 141  # 9,000 questions


def get_config() -> ConfigDict:
    config = base.get_config(task="babi", model="universal")
    config.name = "babi_universal"
    config.description = "Universal Transformer, 6 steps of one layer of width 128, statements as positions"
    config.task.numbers = (1,)
    config.task.size = "10k"
    config.task.batch_size = 64
    config.task.buckets.num_source = 3
    config.model.hidden_size = 128
    config.model.num_heads = 4
    config.model.feed_forward_size = 512
    config.model.dropout = 0.1
    config.model.attention.score = part("scaled_dot")
    config.model.memory_size = 130
    config.model.num_hops = 6
    config.train.num_epochs = 100.0
    config.train.eval_every = STEPS_PER_EPOCH
    config.train.best_metric = "accuracy"
    config.train.goal = 100.0
    config.optimizer.learning_rate = 1e-3
    config.optimizer.schedule = part("cosine")
    config.optimizer.warmup_steps = 4 * STEPS_PER_EPOCH
    config.eval.metrics = ("accuracy",)
    config.eval.num_pictures = 4
    return config.lock()
