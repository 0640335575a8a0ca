"""Packages of the distribution: the folders of attn_jax, and the configs as attn_jax.configs."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["attn_jax", "attn_jax.*"]), "attn_jax.configs"],
    package_dir={"attn_jax.configs": "configs"},
)
