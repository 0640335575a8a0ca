"""Addition: every target by column addition with a carry, and splits that share no sum."""

from functools import partial

import pytest
from tasks_by_name import make

from attn_jax.errors import UserError
from attn_jax.tasks.synthetic.addition import write_sum

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
def test_long_sums_of_the_test_are_not_in_training():
    task = build(num_examples=3000, digits=(3, 4))
    known = set(task.splits["train"].source)
    assert not known & {*task.splits["test"].source, *task.splits["valid"].source}
    assert list(task.stats) == ["train", "valid", "test"]
    assert build().splits == build().splits


@pytest.mark.slow
def test_sums_of_two_digits_are_not_shared():
    task = build(num_examples=20_000, valid_size=500, digits=(2, 2))
    known = set(task.splits["train"].source)
    assert not known & {*task.splits["test"].source, *task.splits["valid"].source}


@pytest.mark.slow
def test_a_sum_with_leading_zeros_is_the_sum_without():
    """531 + 679 as a sum of four digits belongs to the split that it belongs to as one of three."""
    task = build(num_examples=100_000, digits=(3, 4))
    known = set(task.splits["train"].source)
    assert not known & {*task.splits["test"].source, *task.splits["valid"].source}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(digits=(2, 1)), "task.digits"),
        (dict(digits=(0, 1)), "task.digits"),
        (dict(test_digits=(0,)), "test_digits"),
    ],
)
def test_numbers_of_digits_that_do_not_fit_are_told(changes, message):
    with pytest.raises(UserError, match=message):
        build(**changes)
