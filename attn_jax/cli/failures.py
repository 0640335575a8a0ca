"""Failures of jax that a person can do something about, each told in one line instead of a traceback."""

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
    """Within it want of memory is a UserError and, of several processes, the loss of another one is Lost.

    So are sources and queries that the score of the config cannot compare, which only the shapes of a batch show.
    Every other error of jax is one of the program's, and stays as it is.
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
    """Memory ran out: what to make smaller."""
    reason = first_line(message).removeprefix(f"{MEMORY}: ") or "no more was to be had"
    return UserError(
        f"out of memory ({reason}); in training make task.batch_size or model.hidden_size smaller, train.microbatches "
        "larger or set model.remat, else make decode.batch_size, decode.beam_size or decode.max_length smaller"
    )


def first_line(message: str) -> str:
    """The first line of a message, 200 characters at most."""
    line = (message.splitlines() or [""])[0].strip()
    return line if len(line) <= 200 else f"{line[:200]} ..."
