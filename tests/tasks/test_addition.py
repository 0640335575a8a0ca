"""Addition: every target by column addition with a carry, and splits that share no sum."""

from functools import partial

import numpy as np
import pytest
from tasks_by_name import make

from attn_jax.errors import UserError
from attn_jax.tasks.synthetic.addition import write_sum
from attn_jax.tasks.synthetic.generated import owner

build = partial(make, "addition", digits=(1, 6), num_examples=300, valid_size=60)


def by_columns(left, right):
    """The digits of the sum, last one first."""
    size, carry, found = max(len(left), len(right)), 0, ""
    for a, b in zip(reversed(left.rjust(size, "0")), reversed(right.rjust(size, "0")), strict=True):
        column = int(a) + int(b) + carry
        found, carry = found + "0123456789"[column % 10], column // 10
    return found + "1" * carry


@pytest.mark.parametrize("reverse", [False, True])
def test_every_sum_is_right(reverse):
    task = build(reverse=reverse, test_digits=(9,))
    for split in task.splits.values():
        for source, target in zip(split.source, split.target, strict=True):
            digits = by_columns(*source.split("+"))
            assert target == (digits if reverse else digits[::-1])
    assert max(len(source) for source in task.splits["test"].source) == 19
    assert task.source_vocabulary.encode("9+0") == [13, 14, 4]


def test_numbers_are_written_without_leading_zeros():
    assert write_sum([3, 8, 7, 0, 9, 5]) == ("387+95", "482")
    assert write_sum([0, 0], reverse=True) == ("0+0", "0")
    assert write_sum([5, 7], reverse=True) == ("5+7", "21")


@pytest.mark.slow
def test_no_sum_is_shared():
    """531 + 679 as a sum of four digits belongs to the split that it belongs to as one of three."""
    task = build(num_examples=3000, valid_size=500, digits=(2, 4))
    for name, split in task.splits.items():
        assert {owner(np.frombuffer(text.encode(), np.int8)) for text in split.source} == {name}
    known = set(task.splits["train"].source)
    assert not known & {*task.splits["test"].source, *task.splits["valid"].source}
    assert list(task.stats) == ["train", "valid", "test"] and build().splits == build().splits


def test_numbers_of_digits_that_do_not_fit_are_told():
    for changes in ({"digits": (2, 1)}, {"digits": (0, 1)}, {"test_digits": (0,)}):
        with pytest.raises(UserError, match=f"task.{next(iter(changes))}"):
            build(**changes)
