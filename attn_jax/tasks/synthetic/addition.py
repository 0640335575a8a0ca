"""Addition of two numbers, digit by digit.

    source   3 8 7 + 9 5          target   4 8 2          reversed   2 8 4

Both numbers have the same number of uniform digits, including leading zeros: 387 + 095 is a sum of three digits.
Without `reverse` the target begins with the digit that depends on all others. With `reverse` each digit depends on two
digits and a carry (Lee 2023, arXiv 2307.03381, section 3). Longer numbers in the test measure whether the rule was
learned.

The hash of a sum determines its split, for every seed and size, so no test sum is in any training split. There are two
exceptions, which the stats of the task count: numbers of so few digits that training soon contains all sums; and, if
the test has other sizes than training, sums with leading zeros, which are written like sums of shorter numbers.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from attn_jax.data.splits import seen_in_training
from attn_jax.data.vocabulary import Characters
from attn_jax.errors import UserError
from attn_jax.parts import option
from attn_jax.tasks.options import TextOptions
from attn_jax.tasks.synthetic.generated import NUM_EXAMPLES, Symbols, make_splits, may_have, sample_sequences
from attn_jax.tasks.task import Pairs, Task

PLUS = "+"


def write_sum(digits: Sequence[int], reverse: bool = False) -> tuple[str, str]:
    """Writes the sum of two numbers, given their concatenated digits: (source, target)."""
    half = len(digits) // 2
    left, right = (int("".join(map(str, part))) for part in (digits[:half], digits[half:]))
    total = str(left + right)
    return f"{left}{PLUS}{right}", total[::-1] if reverse else total


def as_written(digits: Symbols) -> Int[np.ndarray, " m"]:
    """Returns the text of a sum as bytes; with leading zeros it may equal the text of shorter numbers."""
    return np.frombuffer(write_sum(digits.tolist())[0].encode(), np.int8)


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
        """Makes the task; raises a UserError if a number of digits is out of range."""
        digits, tested = self.digits, self.test_digits
        if len(digits) != 2 or not all(map(_is_size, digits)) or digits[0] > digits[1]:
            raise UserError(f"task.digits {digits}: expected the smallest and the largest number, such as (1, 5)")
        if not all(map(_is_size, tested)):
            raise UserError(f"task.test_digits {tested}: expected numbers of at least 1, such as (8, 16)")
        trained = range(2 * digits[0], 2 * digits[1] + 1, 2)  # digits of both numbers

        def sample(name: str, count: int, rng: np.random.Generator) -> Pairs:
            lengths = [2 * size for size in tested] if name == "test" and tested else trained
            found = sample_sequences(10, lengths, count, rng, may_have(name, 10, trained, as_written))
            return Pairs(*map(list, zip(*(write_sum(row.tolist(), self.reverse) for row in found), strict=True)))

        splits = make_splits(sample, self.num_examples or NUM_EXAMPLES, self.valid_size)
        stats = {name: len(split) for name, split in splits.items()}
        stats |= seen_in_training(splits, lambda pairs: pairs.source, "sums")
        return Task("addition", splits, *(kept or (Characters([*"0123456789", PLUS]),) * 2), stats=stats)
