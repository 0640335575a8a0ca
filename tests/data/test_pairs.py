"""Pairs keep what belongs together together."""

import pytest

from attn_jax.data.pairs import Pairs
from attn_jax.errors import UserError


def test_a_selection_keeps_the_columns_together():
    pairs = Pairs(["a", "b", "c"], ["x", "y", "z"], [(1,), (), (3, 2)])
    assert pairs.select([2, 0]) == Pairs(["c", "a"], ["z", "x"], [(3, 2), (1,)])
    assert Pairs(["a", "b"], ["x", "y"]).select([1]) == Pairs(["b"], ["y"], None)


def test_columns_are_equally_long():
    with pytest.raises(UserError, match="2 source sentences but 1 target sentences"):
        Pairs(["a", "b"], ["x"])
    with pytest.raises(UserError, match="2 source sentences but evidence of 1"):
        Pairs(["a", "b"], ["x", "y"], [(1,)])
