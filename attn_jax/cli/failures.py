"""Failures of jax that a user can do something about, as errors of one line instead of a traceback."""

import contextlib
import re
from collections.abc import Iterator

import jax

from attn_jax.attention.scores.base import ScoreError
from attn_jax.errors import Lost, UserError

MEMORY = "RESOURCE_EXHAUSTED"
# Of the libraries that processes talk through, and of the service that watches over them.
CONNECTION = re.compile(
    r"gloo|nccl|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED|coordination|heartbeat|connection (closed|reset)",
    re.IGNORECASE,
)


@contextlib.contextmanager
def told_in_one_line(num_processes: int = 1) -> Iterator[None]:
    """A context that turns a lack of memory into a UserError, and the loss of another process into Lost.

    So it does with sources and queries that the score of the config cannot compare, which only the shapes of a batch
    show. Other errors of jax are faults of the program, and stay as they are.
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
    """Makes the error of a lack of memory, with the options to make smaller."""
    reason = first_line(message).removeprefix(f"{MEMORY}: ") or "no more was to be had"
    return UserError(
        f"out of memory ({reason}); in training make task.batch_size or model.hidden_size smaller, train.microbatches "
        "larger or set model.remat, else make decode.batch_size, decode.beam_size or decode.max_length smaller"
    )


def first_line(message: str) -> str:
    """The first line of a message, 200 characters at most."""
    line = (message.splitlines() or [""])[0].strip()
    return line if len(line) <= 200 else f"{line[:200]} ..."
