"""Warnings and log lines of libraries that a user can do nothing about."""

import functools
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

LIBRARIES = (
    "absl",
    "flax",
    "google",
    "jax",
    "jaxlib",
    "matplotlib",
    "ml_collections",
    "optax",
    "orbax",
    "sacrebleu",
    "sentencepiece",
    "tensorboardX",
    "tensorstore",
)
# Warnings that the libraries give in the name of the code that calls them.
MESSAGES = ("Some donated buffers were not usable", "os.fork\\(\\) was called", "Sharding info not provided")


def silence() -> None:
    """Silences the libraries for the whole process; meant for the start of a program. Errors are still raised."""
    warnings.filterwarnings("ignore", module=rf"({'|'.join(LIBRARIES)})(\.|$)")
    for message in MESSAGES:
        warnings.filterwarnings("ignore", message=message)
    for category in (DeprecationWarning, FutureWarning):
        warnings.simplefilter("ignore", category)
    logging.getLogger("absl").addFilter(is_not_orbax)  # a filter that is there already is not added again
    logging.getLogger("asyncio").addFilter(is_retrieved)
    if getattr(sys.unraisablehook, "func", None) is not report_unraisable:
        sys.unraisablehook = functools.partial(report_unraisable, sys.unraisablehook)


def is_not_orbax(record: logging.LogRecord) -> bool:
    """Returns False for a record that orbax logged: what is wrong with a checkpoint is raised, or a notice."""
    return "orbax" not in record.pathname


def is_retrieved(record: logging.LogRecord) -> bool:
    """Returns False for the errors of writes that asyncio logs when they are dropped, since the first one is raised."""
    return "exception was never retrieved" not in record.getMessage()


def report_unraisable(report: Callable, unraisable: Any) -> None:
    """Calls report(unraisable), but not for the threads of a failed read or write, whose event loop is closed."""
    if str(unraisable.exc_value) != "Event loop is closed":
        report(unraisable)
