"""Fixtures of several files of tests of attention."""

import jax
import jaxtyping
import pytest


@pytest.fixture
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def without_type_checks():
    """Arguments reach the code as they do outside of the tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
