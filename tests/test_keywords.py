"""Modules are made with keyword arguments alone: no call counts the fields of a module in another file."""

import dataclasses
import importlib
import pkgutil

import flax.linen as nn
import pytest

import attn_jax
from attn_jax.attention import MultiHead
from attn_jax.attention.scores import Additive
from attn_jax.layers.positions import Sinusoidal
from attn_jax.outputs import FullSoftmax


def modules():
    """Every module class that the package defines."""
    for info in pkgutil.walk_packages(attn_jax.__path__, f"{attn_jax.__name__}."):
        if info.name.endswith(".__main__"):
            continue
        for kind in vars(importlib.import_module(info.name)).values():
            if isinstance(kind, type) and issubclass(kind, nn.Module) and kind.__module__ == info.name:
                yield kind


@pytest.mark.parametrize("kind", list(modules()), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_module_takes_keyword_arguments_alone(kind):
    positional = [field.name for field in dataclasses.fields(kind) if field.init and not field.kw_only]
    assert not positional


def test_the_package_has_modules_of_every_kind():
    found = {kind.__module__.split(".")[1] for kind in modules()}
    assert found == {"attention", "layers", "outputs", "models"}


def test_a_positional_argument_is_an_error():
    for kind in (FullSoftmax, Sinusoidal, MultiHead, Additive):
        with pytest.raises(TypeError, match="positional"):
            kind(7)
