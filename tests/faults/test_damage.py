"""Every file of a checkpoint in turn: a flipped bit, half of it, nothing of it, and the file gone."""

import collections

import jax
import jax.numpy as jnp
import pytest
import tiny_model as tiny
from files_damaged import DAMAGES, damaged

from attn_jax.training.checkpoints import Checkpoints


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """(directory of two checkpoints, a state)."""
    directory = tmp_path_factory.mktemp("two") / "checkpoints"
    state = tiny.create(tiny.optimizer())
    with Checkpoints(directory) as checkpoints:
        for step in (1, 2):
            moved = state.replace(step=jnp.int32(step), params=jax.tree.map(lambda x, n=step: x + n, state.params))
            checkpoints.save(step, moved, config={"seed": 1}, metrics={"loss": 1.0 / step})
    return directory, state


@pytest.mark.slow
def test_no_damaged_file_is_loaded_and_the_checkpoint_before_answers(two):
    noticed = collections.defaultdict(set)
    for file, how, seen, wrong in damaged(*two):
        assert not wrong, (file, how, wrong)
        noticed[file].add((how, seen))
    # What is known about the arrays, and some file of each kind of arrays; others are written and read by nobody.
    (meta,) = [results for file, results in noticed.items() if file.endswith("meta/metadata")]
    assert {how for how, seen in meta if seen} == set(DAMAGES)
    for part in ("/params/", "/state/"):
        of_part = [results for file, results in noticed.items() if part in file]
        assert any(
            {how for how, seen in results if seen} >= {"cut in half", "emptied", "deleted"} for results in of_part
        )
