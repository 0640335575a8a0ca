"""Packages, requirements and description of the distribution: the folders of attn_jax, and the configs as
attn_jax.configs.

`pip install attn_jax` brings what the library needs, `attn_jax[train]` the rest of requirements.txt,
`attn_jax[export]` what --mode=export writes with, and `attn_jax[wandb]` a logger. Links of README.md are relative; in
the description, which is shown elsewhere, they begin with the address in pyproject.toml.
"""

import pathlib
import re
import tomllib

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent
LIBRARY = {"jax", "flax", "jaxtyping", "numpy"}
LINES = (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines()
REQUIRED = {line: re.match(r"[\w-]+", line)[0] for line in LINES if line and not line.startswith("#")}
REPOSITORY = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]


def absolute(text: str) -> str:
    """Puts the address of the repository before relative links; images need that of the raw file."""
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{REPOSITORY}/raw/main/", text)
    return re.sub(r"\]\((?!https?:|#)", rf"]({REPOSITORY}/blob/main/", text)


setup(
    packages=[*find_packages(include=["attn_jax", "attn_jax.*"]), "attn_jax.configs"],
    package_dir={"attn_jax.configs": "configs"},
    long_description=absolute((HERE / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
    install_requires=[line for line, name in REQUIRED.items() if name in LIBRARY],
    extras_require={
        "train": [line for line, name in REQUIRED.items() if name not in LIBRARY],
        "export": ["safetensors>=0.5", "flatbuffers>=24"],
        "wandb": ["wandb>=0.18"],
    },
)
