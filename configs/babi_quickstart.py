"""A memory network on generated stories: where is Mary? All answers right after 17 s on two CPU cores.

python launch.py --config=configs/babi_quickstart.py
printf 'Mary went to the office.\\nJohn moved to the garden.\\nWhere is Mary?\\n' | \\
    python launch.py --mode=predict --workdir=runs/babi_quickstart

Three seeds of the end-to-end memory network in one program; the seed with the lowest training loss answers.
Measured in experiments/results/quickstarts.md.
"""

from ml_collections import ConfigDict

from configs import babi_memn2n

STEPS_PER_EPOCH = 29  # 900 questions


def get_config() -> ConfigDict:
    config = babi_memn2n.get_config()
    config.name = "babi_quickstart"
    config.description = "end-to-end memory network, where is the one asked for?"
    config.seeds = (0, 1, 2)
    config.model.linear_steps = 10 * STEPS_PER_EPOCH
    config.train.num_epochs = 40.0
    config.train.eval_every = 5 * STEPS_PER_EPOCH
    config.optimizer.schedule.after = 10 * STEPS_PER_EPOCH
    config.optimizer.schedule.every = 10 * STEPS_PER_EPOCH
    return config.lock()
