"""Libraries are silent where a user can do nothing; all else is still heard."""

import logging
import sys
import warnings
from types import SimpleNamespace

import pytest

from attn_jax.cli.noise import is_not_orbax, silence


@pytest.fixture
def silent(monkeypatch):
    """Within the test, as at the start of the program; afterwards as before."""
    heard = []
    monkeypatch.setattr(sys, "unraisablehook", heard.append)
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    filters = [list(logger.filters) for logger in loggers]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        silence()
        yield SimpleNamespace(heard=heard, caught=caught)
    for logger, before in zip(loggers, filters, strict=True):
        logger.filters[:] = before


def test_only_the_first_of_several_failed_writes_is_reported(silent, caplog):
    logger = logging.getLogger("asyncio")
    logger.error("Task exception was never retrieved\nfuture: <Task finished>")
    logger.error("another matter")
    assert [record.getMessage() for record in caplog.records] == ["another matter"]


def test_what_orbax_logs_is_not_heard():
    for path, expected in (("/lib/orbax/checkpoint/manager.py", False), ("/lib/other.py", True)):
        assert is_not_orbax(logging.LogRecord("absl", logging.ERROR, path, 1, "text", (), None)) is expected


def test_threads_of_a_failed_write_do_not_complain(silent):
    silence()  # a second time
    for text in ("Event loop is closed", "another matter"):
        sys.unraisablehook(SimpleNamespace(exc_value=RuntimeError(text)))
    assert [str(unraisable.exc_value) for unraisable in silent.heard] == ["another matter"]


@pytest.mark.parametrize(
    ("module", "category", "message", "heard"),
    [
        ("orbax.checkpoint.manager", UserWarning, "x", False),
        ("jax", UserWarning, "x", False),
        ("jaxtyping_of_ours", UserWarning, "x", True),
        ("attn_jax.training.loop", UserWarning, "Some donated buffers were not usable: float32[3]", False),
        ("attn_jax.training.loop", DeprecationWarning, "x", False),
        ("attn_jax.training.loop", RuntimeWarning, "divide by zero", True),
    ],
)
def test_warnings_of_libraries_are_not_shown(silent, module, category, message, heard):
    warnings.warn_explicit(message, category, "file.py", 1, module=module)
    assert bool(silent.caught) is heard
