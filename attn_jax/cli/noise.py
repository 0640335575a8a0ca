"""Suppression of library warnings and log lines that do not help a user."""

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
# Warnings of libraries that are attributed to the calling code.
MESSAGES = ("Some donated buffers were not usable", "os.fork\\(\\) was called", "Sharding info not provided")


def silence() -> None:
    """Silences the libraries for the whole process, at the start of a program. Errors are still raised."""
    warnings.filterwarnings("ignore", module=rf"({'|'.join(LIBRARIES)})(\.|$)")
    for message in MESSAGES:
        warnings.filterwarnings("ignore", message=message)
    for category in (DeprecationWarning, FutureWarning):
        warnings.simplefilter("ignore", category)
    logging.getLogger("absl").addFilter(is_not_orbax)  # adding a filter twice has no effect
    logging.getLogger("asyncio").addFilter(is_retrieved)
    if getattr(sys.unraisablehook, "func", None) is not report_unraisable:
        sys.unraisablehook = functools.partial(report_unraisable, sys.unraisablehook)


def is_not_orbax(record: logging.LogRecord) -> bool:
    """Returns False for records of orbax; problems of a checkpoint are raised, or reported by a notice."""
    return "orbax" not in record.pathname


def is_retrieved(record: logging.LogRecord) -> bool:
    """Returns False for dropped write errors that asyncio logs; the first error is raised anyway."""
    return "exception was never retrieved" not in record.getMessage()


def report_unraisable(report: Callable, unraisable: Any) -> None:
    """Calls report(unraisable), except for threads of a failed read or write with a closed event loop."""
    if str(unraisable.exc_value) != "Event loop is closed":
        report(unraisable)
