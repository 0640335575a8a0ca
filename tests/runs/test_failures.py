"""What jax raises when memory runs out or another process dies, as one line; all other errors stay what they are."""

import jax
import numpy as np
import pytest

from attn_jax.attention.scores.base import ScoreError
from attn_jax.errors import Lost, UserError
from attn_jax.runs.failures import user_errors

GLOO = "Gloo all-reduce failed: [external/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:5678"


def told(error, num_processes=1):
    with pytest.raises(UserError) as told, user_errors(num_processes):
        raise error
    assert "\n" not in str(told.value)
    return told.value


def test_want_of_memory_says_what_to_make_smaller():
    text = "Out of memory allocating 40 bytes."
    for error in (jax.errors.JaxRuntimeError(f"RESOURCE_EXHAUSTED: {text}\nBufferAssignment ..."), MemoryError(text)):
        assert str(told(error)).startswith(f"out of memory ({text}); in training make task.batch_size")


def test_want_of_memory_as_it_really_comes():
    with pytest.raises(MemoryError) as error:
        np.zeros(2**55)
    assert str(told(error.value)).startswith("out of memory (Unable to allocate ")
    assert "no more was to be had" in str(told(MemoryError()))
    with pytest.raises(jax.errors.JaxRuntimeError) as error:
        jax.jit(lambda: jax.numpy.zeros(2**50))().block_until_ready()
    assert str(told(error.value)).startswith("out of memory (")


def test_a_score_that_does_not_fit_the_batch_names_its_option():
    error = told(ScoreError("the location score has 8 positions, but the memory has 9"))
    assert str(error) == "model.attention.score: the location score has 8 positions, but the memory has 9"


def test_a_process_that_is_gone():
    error = told(jax.errors.JaxRuntimeError(GLOO + "\nstack"), num_processes=2)
    assert isinstance(error, Lost)
    assert str(error).startswith(f"another process of the training is gone: {GLOO}; start all of them again, and they")


@pytest.mark.parametrize(("message", "processes"), [(GLOO, 1), ("INTERNAL: a mistake of the compiler", 2)])
def test_other_errors_stay_what_they_are(message, processes):
    with pytest.raises(jax.errors.JaxRuntimeError, match=message[:20]), user_errors(processes):
        raise jax.errors.JaxRuntimeError(message)
