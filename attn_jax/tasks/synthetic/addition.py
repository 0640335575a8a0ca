"""Addition of two numbers, digit by digit.

    source   3 8 7 + 9 5          target   4 8 2          reversed   2 8 4

The numbers have the same number of digits up to leading zeros: their digits are uniform, so 387 + 095 is one of the
sums of three digits. The target without `reverse` begins with the digit that depends on all others; with it each digit
depends on two digits and a carry (Lee 2023, arXiv 2307.03381, section 3). Longer numbers in the test ask whether the
rule was learned.

The hash of a sum decides its split, whatever the seed and the sizes, so no test sum is in any training split, with two
exceptions, which the stats of the task count: numbers of so few digits that training soon sees all sums, and in a test
of other sizes than those of training the sums with leading zeros, which are written as those of shorter numbers.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from attn_jax.data.facts import Vocabularies
from attn_jax.data.vocabulary import Characters
from attn_jax.errors import UserError
from attn_jax.parts import option
from attn_jax.tasks.options import TextOptions
from attn_jax.tasks.synthetic.sequences import SPLITS, is_shared, owner
from attn_jax.tasks.task import Pairs, Task

NUM_EXAMPLES = 20_000  # training sums by default
TEST_SIZE = 1000
PLUS = "+"


def write_sum(digits: Sequence[int], reverse: bool = False) -> tuple[str, str]:
    """Writes the sum of two numbers, whose digits follow each other: (source, target)."""
    half = len(digits) // 2
    left, right = (int("".join(map(str, part))) for part in (digits[:half], digits[half:]))
    total = str(left + right)
    return f"{left}{PLUS}{right}", total[::-1] if reverse else total


def addition(
    *,
    digits: Sequence,
    test_digits: Sequence,
    reverse: bool,
    num_examples: int,
    valid_size: int,
    vocabularies: Vocabularies | None = None,
    seed: int = 0,
) -> Task:
    """Adds two numbers. Each split has its own random numbers, and its numbers of digits take turns.

    Args:
        digits: the smallest and the largest number of digits in training and validation.
        test_digits: numbers of digits in the test; (): as in training.
        reverse: whether the target begins with the last digit.
        num_examples: training sums; 0 means NUM_EXAMPLES.
        valid_size: validation sums.
        vocabularies: those of an earlier run.
        seed: of all sums.

    Raises:
        UserError: a number of digits is out of range.
    """
    if len(digits) != 2 or not all(map(_is_size, digits)) or digits[0] > digits[1]:
        raise UserError(f"task.digits {tuple(digits)}: expected the smallest and the largest number, such as (1, 5)")
    if not all(map(_is_size, test_digits)):
        raise UserError(f"task.test_digits {tuple(test_digits)}: expected numbers of at least 1, such as (8, 16)")
    trained = range(digits[0], digits[1] + 1)
    splits = {}
    for name, some, count in (
        ("train", trained, num_examples or NUM_EXAMPLES),
        ("valid", trained, valid_size),
        ("test", test_digits or trained, TEST_SIZE),
    ):
        rng = np.random.default_rng((seed, SPLITS.index(name)))
        splits[name] = Pairs(*map(list, zip(*_sums(name, some, trained, reverse, count, rng), strict=True)))
    vocabularies = vocabularies or (Characters([*"0123456789", PLUS]),) * 2
    stats = {name: len(split) for name, split in splits.items()}
    known = set(splits["train"].source)
    for name in SPLITS[1:]:
        if count := sum(text in known for text in splits[name].source):
            stats[f"{name} sums that training has too"] = count
    return Task("addition", splits, *vocabularies, stats=stats)


def _sums(name: str, sizes: Sequence[int], trained: range, reverse: bool, count: int, rng: np.random.Generator):
    """Yields `count` sums of a split."""
    for i in range(count):
        size = sizes[i % len(sizes)]
        while True:
            digits = rng.integers(10, size=2 * size)
            source, target = write_sum(digits.tolist(), reverse)
            # As it is written: with leading zeros a sum of longer numbers may be one of shorter numbers.
            symbols = np.frombuffer(source.encode(), np.int8)
            if size not in trained or is_shared(10 ** (2 * size)) or owner(symbols) == name:
                break
        yield source, target


def _is_size(n: object) -> bool:
    return isinstance(n, int) and 1 <= n <= 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditionOptions(TextOptions):
    """Options of the task of adding two numbers."""

    name: ClassVar[str] = "addition"

    digits: tuple = option((1, 5), "smallest and largest number of digits in training and validation")
    test_digits: tuple = option((), "numbers of digits in the test, such as (8, 16); (): as in training")
    reverse: bool = option(False, "the target begins with its last digit")
    valid_size: int = option(500, "number of validation examples", at_least=1)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        return addition(
            digits=self.digits,
            test_digits=self.test_digits,
            reverse=self.reverse,
            num_examples=self.num_examples,
            valid_size=self.valid_size,
            vocabularies=kept,
        )
