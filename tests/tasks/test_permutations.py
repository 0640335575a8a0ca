"""Permutations: every target by a product of matrices, the groups that moves generate, and splits."""

import math

import numpy as np
import pytest

from attn_jax.errors import UserError
from attn_jax.tasks.synthetic.permutations import MOVES, follow, permutations, write

SMALL = dict(num_things=5, moves="all", lengths=(1, 6), test_lengths=(), num_examples=200, valid_size=30)


def matrix(word):
    """P with P e_i = e_{image of i}."""
    return np.eye(len(word))[:, [int(letter) - 1 for letter in word]]


@pytest.mark.slow
@pytest.mark.parametrize("moves", MOVES)
def test_every_target_is_the_product_of_the_matrices(moves):
    task = permutations(**SMALL | dict(moves=moves, test_lengths=(9,)))
    for split in task.splits.values():
        for source, target in zip(split.source, split.target, strict=True):
            product = np.eye(5)
            for word in source.split():
                product = matrix(word) @ product
            np.testing.assert_array_equal(matrix(target), product)
    assert {len(source.split()) for source in task.splits["test"].source} == {9}
    assert len(task.target_vocabulary) == math.factorial(5) + 4


@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_moves_generate_every_permutation(moves, n):
    generators = [np.array(move) for move in MOVES[moves](n)]
    found = {tuple(range(n))}
    while True:
        new = {follow(np.array([state, move])) for state in found for move in generators} | found
        if new == found:
            break
        found = new
    assert len(found) == math.factorial(n)


def test_a_known_product():
    moves = [[int(letter) - 1 for letter in word] for word in ("21345", "12354", "23451")]
    assert write(follow(np.array(moves))) == "32415"


@pytest.mark.slow
def test_long_sources_of_the_test_are_not_in_training():
    task = permutations(**SMALL | dict(lengths=(2, 3), num_examples=2000))
    assert not set(task.splits["train"].source) & set(task.splits["test"].source)
    assert permutations(**SMALL).splits == permutations(**SMALL).splits


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(lengths=(3, 1)), "task.lengths"),
        (dict(test_lengths=(0,)), "task.test_lengths"),
        (dict(moves="swap"), "unknown task.moves 'swap'; did you mean swaps"),
    ],
)
def test_what_does_not_fit_is_told(changes, message):
    with pytest.raises(UserError, match=message):
        permutations(**SMALL | changes)
