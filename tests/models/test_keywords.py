"""Modules are made with keyword arguments alone: no call counts the fields of a module in another file."""

import dataclasses
import importlib
import pkgutil

import flax.linen as nn
import pytest

import attn_jax
from attn_jax.layers.positions import Sinusoidal
from attn_jax.outputs import FullSoftmax

PARTS = ("layers", "outputs", "models.seq2seq", "models.transformer", "models.classifier")


def modules():
    """Every module class that these parts of the package define."""
    for part in PARTS:
        package = importlib.import_module(f"{attn_jax.__name__}.{part}")
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for kind in vars(importlib.import_module(info.name)).values():
                if isinstance(kind, type) and issubclass(kind, nn.Module) and kind.__module__ == info.name:
                    yield kind


@pytest.mark.parametrize("kind", list(modules()), ids=lambda kind: kind.__name__)
def test_a_module_takes_keyword_arguments_alone(kind):
    positional = [field.name for field in dataclasses.fields(kind) if field.init and not field.kw_only]
    assert not positional


def test_a_positional_argument_is_an_error():
    for kind in (FullSoftmax, Sinusoidal):
        with pytest.raises(TypeError, match="positional"):
            kind(7)
