"""The config that a work directory was trained with: --config=configs/of_workdir.py:runs/quickstart.

launch.py uses it when it is given a work directory and no config.
"""

import pathlib

from ml_collections import ConfigDict

from attn_jax.cli.workdir import load_config
from configs import base


def get_config(workdir: str) -> ConfigDict:
    return load_config(pathlib.Path(workdir), base.get_config())
