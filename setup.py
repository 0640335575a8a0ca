"""Packages of the distribution: the folders of attn_jax, and the configs, which an installed package has inside it."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["attn_jax", "attn_jax.*"]), "attn_jax.configs"],
    package_dir={"attn_jax.configs": "configs"},
)
