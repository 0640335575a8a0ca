"""Failures of jax that a user can fix, as one-line errors instead of tracebacks."""

import contextlib
import re
from collections.abc import Iterator

import jax

from attn_jax.attention.scores.base import ScoreError
from attn_jax.errors import Lost, UserError

MEMORY = "RESOURCE_EXHAUSTED"
# Errors of the communication libraries and of the coordination service.
CONNECTION = re.compile(
    r"gloo|nccl|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED|coordination|heartbeat|connection (closed|reset)",
    re.IGNORECASE,
)


@contextlib.contextmanager
def user_errors(num_processes: int = 1) -> Iterator[None]:
    """Turns errors inside the context into one-line errors.

    Lack of memory, and a score that cannot compare queries and keys of the given shapes, become a UserError. The loss
    of another process becomes Lost. Other errors of jax are faults of the program and pass unchanged.
    """
    try:
        yield
    except ScoreError as error:
        raise UserError(f"model.attention.score: {error}") from error
    except MemoryError as error:
        raise out_of_memory(str(error)) from error
    except jax.errors.JaxRuntimeError as error:
        if MEMORY in str(error):
            raise out_of_memory(str(error)) from error
        if num_processes > 1 and CONNECTION.search(str(error)):
            raise Lost(
                f"another process of the training is gone: {first_line(str(error))}; start all of them again, and they "
                "go on from the last checkpoint"
            ) from error
        raise


def out_of_memory(message: str) -> UserError:
    """Returns the error for a lack of memory, with the options to reduce."""
    reason = first_line(message).removeprefix(f"{MEMORY}: ") or "no more was to be had"
    return UserError(
        f"out of memory ({reason}); in training make task.batch_size or model.hidden_size smaller, train.microbatches "
        "larger or set model.remat, else make decode.batch_size, decode.beam_size or decode.max_length smaller"
    )


def first_line(message: str) -> str:
    """Returns the first line of a message, at most 200 characters."""
    line = (message.splitlines() or [""])[0].strip()
    return line if len(line) <= 200 else f"{line[:200]} ..."
