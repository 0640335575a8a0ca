"""Every option of a task and a family, with its default: where every other config starts.

`python launch.py --config=configs/X.py --options` prints what can be set in a config, with its meaning. Values that are
tuples can be overridden as a whole on the command line: --config.seeds="(0, 1, 2)".
"""

from ml_collections import ConfigDict

from attn_jax.cli import options


def get_config(task: str = "parallel_text", model: str = "seq2seq") -> ConfigDict:
    """A locked config: a key that this task and family do not have is a slip."""
    return options.default_config(task, model)
