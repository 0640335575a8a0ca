"""Every option of a task and a family at its default; all other configs start from this one.

`python launch.py --config=configs/X.py --options` prints the options of a config with their meanings. A tuple is
overridden as a whole on the command line: --config.seeds="(0, 1, 2)".
"""

from ml_collections import ConfigDict

from attn_jax.runs import options


def get_config(task: str = "parallel_text", model: str = "seq2seq", plugins: tuple[str, ...] = ()) -> ConfigDict:
    """Returns a locked config: setting a key that this task and family do not have is an error.

    `plugins` are files or modules of your own, executed first, which enter parts into the tables of the package.
    """
    return options.default_config(task, model, plugins)
