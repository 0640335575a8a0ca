"""Packages and requirements of the distribution: the folders of attn_jax, and the configs as attn_jax.configs.

`pip install attn_jax` brings what the library needs, `attn_jax[train]` the rest of requirements.txt,
`attn_jax[export]` what --mode=export writes with, and `attn_jax[wandb]` a logger.
"""

import pathlib
import re

from setuptools import find_packages, setup

LIBRARY = {"jax", "flax", "jaxtyping", "numpy"}
LINES = pathlib.Path(__file__).with_name("requirements.txt").read_text(encoding="utf-8").splitlines()
REQUIRED = {line: re.match(r"[\w-]+", line)[0] for line in LINES if line and not line.startswith("#")}

setup(
    packages=[*find_packages(include=["attn_jax", "attn_jax.*"]), "attn_jax.configs"],
    package_dir={"attn_jax.configs": "configs"},
    install_requires=[line for line, name in REQUIRED.items() if name in LIBRARY],
    extras_require={
        "train": [line for line, name in REQUIRED.items() if name not in LIBRARY],
        "export": ["safetensors>=0.5", "flatbuffers>=24"],
        "wandb": ["wandb>=0.18"],
    },
)
