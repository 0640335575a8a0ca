"""A config to begin with: `python launch.py --config=new > mine.py` writes it, and `--config=mine.py` trains it.

It learns dates that the package makes, as `python launch.py --config=configs/new.py` does, and your own pairs once DATA
names their folder. `--options` after a config prints every key with its meaning.
"""

import pathlib

from ml_collections import ConfigDict

from attn_jax.runs import options
from attn_jax.runs.tree import part

DATA = ""  # folder of your own pairs, such as "my_data"


def get_config() -> ConfigDict:
    config = options.default_config("parallel_text" if DATA else "dates")
    config.name = pathlib.Path(__file__).stem  # the work directory is runs/NAME
    config.description = "attention of my own"
    config.seeds = (0, 1)  # trained together; six or more are needed to tell two configs apart
    if DATA:
        config.data_dir = DATA
        config.task.train = ("pairs.jsonl", "")  # {"source": ..., "target": ...}; or ("train.fr", "train.en")
        config.task.vocabulary = part("sentencepiece")  # or words, characters
        config.task.vocab_size = (0, 0)  # as many pieces as the text allows
    config.task.valid_size = 200  # examples held out of the training
    config.model.hidden_size = 128
    config.model.encoder = part("lstm", num_layers=1)  # or gru, convolution, transformer, ...
    config.model.attention.score = part("additive")  # or dot, general, ...
    config.model.attention.normalize = part("softmax")  # or sparsemax, entmax15, ...
    config.optimizer.learning_rate = 3e-3
    config.train.num_steps = 500  # a larger number goes on from there
    config.train.num_epochs = 0.0  # no other limit
    config.train.eval_every = 100
    config.eval.metrics = ("exact_match", "perplexity")
    return config
