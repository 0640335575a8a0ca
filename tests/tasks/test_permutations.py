"""Permutations: every target by a product of matrices, the groups that moves generate, and splits."""

import math
from functools import partial

import numpy as np
import pytest
from tasks_by_name import make

from attn_jax.tasks.synthetic.permutations import MOVES, follow

build = partial(make, "permutations", lengths=(1, 6), num_examples=200, valid_size=30)


def matrix(word):
    """P with P e_i = e_{image of i}."""
    return np.eye(len(word))[:, [int(letter) - 1 for letter in word]]


@pytest.mark.slow
@pytest.mark.parametrize("moves", MOVES)
def test_every_target_is_the_product_of_the_matrices(moves):
    task = build(moves=moves, test_lengths=(9,))
    for split in task.splits.values():
        for source, target in zip(split.source, split.target, strict=True):
            product = np.eye(5)
            for word in source.split():
                product = matrix(word) @ product
            np.testing.assert_array_equal(matrix(target), product)
    assert {len(source.split()) for source in task.splits["test"].source} == {9}
    assert len(task.target_vocabulary) == math.factorial(5) + 4
    assert build(moves=moves, test_lengths=(9,)).splits == task.splits


@pytest.mark.slow
def test_sources_of_the_test_are_not_in_training():
    task = build(lengths=(2, 3), num_examples=2000)
    assert not set(task.splits["train"].source) & set(task.splits["test"].source)


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
