"""Shared code of generated tasks: splits with their own random numbers, and sequences that belong to one split.

The hash of a sequence determines its split, for every seed and size, so no test sequence is in any training split.
There are two exceptions: lengths with fewer than SCARCE sequences, since training soon contains all of them, and
lengths that do not occur in training.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Int

from attn_jax.data.pairs import Pairs
from attn_jax.errors import UserError
from attn_jax.tasks.options import SEED

NUM_EXAMPLES = 20_000  # training examples by default
TEST_SIZE = 1000
SCARCE = 10_000  # lengths with fewer sequences than this are shared by the splits
SPLITS = ("train", "valid", "test")
SHARES = (8, 1, 1)  # share of each split in all sequences, in tenths
OWNERS = np.repeat(SPLITS, SHARES)  # the split of each hash modulo 10

Symbols = Int[np.ndarray, " n"]
Sample = Callable[[str, int, np.random.Generator], Pairs]  # (name of the split, number of examples, random numbers)


def make_splits(sample: Sample, num_examples: int, valid_size: int) -> dict[str, Pairs]:
    """Samples the splits, each with its own random numbers; the test has TEST_SIZE examples."""
    sizes = (num_examples, valid_size, TEST_SIZE)
    return {
        name: sample(name, size, np.random.default_rng((SEED, number)))
        for number, (name, size) in enumerate(zip(SPLITS, sizes, strict=True))
    }


def read_lengths(lengths: Sequence, test_lengths: Sequence) -> dict[str, Sequence[int]]:
    """Returns the lengths of each split.

    Args:
        lengths: shortest and longest length in training and validation.
        test_lengths: lengths in the test; (): as in training.

    Raises:
        UserError: a length is out of range.
    """
    if len(lengths) != 2 or not all(map(is_length, lengths)) or lengths[0] > lengths[1]:
        raise UserError(f"task.lengths {tuple(lengths)}: expected the shortest and the longest length, such as (1, 16)")
    if not all(map(is_length, test_lengths)):
        raise UserError(f"task.test_lengths {tuple(test_lengths)}: expected lengths of at least 1, such as (32, 64)")
    trained = range(lengths[0], lengths[1] + 1)
    return {"train": trained, "valid": trained, "test": test_lengths or trained}


def is_length(n: object) -> bool:
    """Returns whether a value of an option is a length: an integer of at least 1."""
    return isinstance(n, int) and n >= 1


def sample_sequences(
    num_symbols: int,
    lengths: Sequence[int],
    count: int,
    rng: np.random.Generator,
    accept: Callable[[Symbols], bool] = lambda symbols: True,
) -> Iterator[Symbols]:
    """Samples sequences, uniform among those that `accept` allows; a smaller count gives the beginning of a larger one.

    Sequence i has the length lengths[i % len(lengths)], so all lengths are equally frequent.
    """
    for i in range(count):
        while not accept(symbols := rng.integers(num_symbols, size=lengths[i % len(lengths)])):
            pass
        yield symbols


def may_have(
    name: str, num_symbols: int, trained: range, written: Callable[[Symbols], Symbols] = lambda symbols: symbols
) -> Callable[[Symbols], bool]:
    """Returns a function that tells whether a split may contain a sequence, by the hash of its `written` form."""

    def accept(symbols: Symbols) -> bool:
        length = len(symbols)
        return length not in trained or num_symbols**length < SCARCE or owner(written(symbols)) == name

    return accept


def owner(symbols: Symbols) -> str:
    """Returns the split of a sequence; it is the same in every process and for every size of the alphabet."""
    digest = hashlib.blake2b(symbols.astype("<i8").tobytes(), digest_size=8).digest()
    return str(OWNERS[int.from_bytes(digest, "little") % len(OWNERS)])
