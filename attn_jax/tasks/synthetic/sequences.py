"""Copy, reverse or sort a sequence: the target has the symbols of the source in another order. Data is generated.

    sort       7 31 0 7 12  ->  0 7 7 12 31

A test of length generalization: train on short sequences, test on longer ones. Symbols are independent and uniform, as
in Vasylenko et al. 2025, arXiv 2506.16640, whose data has 32 symbols, lengths 32 to 64 in training and
64 to 4096 in the test.

The hash of a source decides its split, whatever the seed and the sizes, so no test sequence is in any training split.
There are two exceptions: lengths with fewer than SCARCE sequences, since training soon sees all of them (the stats of
the task count the test sequences that training has), and lengths that do not occur in training.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from attn_jax.data.facts import Vocabularies
from attn_jax.data.vocabulary import Words
from attn_jax.errors import UserError, lookup
from attn_jax.parts import option
from attn_jax.tasks.options import TextOptions
from attn_jax.tasks.task import Pairs, Task

NUM_EXAMPLES = 20_000  # training pairs by default
TEST_SIZE = 1000
SCARCE = 10_000  # the splits share the sequences of lengths with fewer sequences than this
SPLITS = ("train", "valid", "test")
SHARES = (8, 1, 1)  # of all sequences, in tenths
OWNERS = np.repeat(SPLITS, SHARES)  # of a hash modulo 10

Symbols = Int[np.ndarray, " n"]

OPERATIONS = {
    "copy": lambda symbols: symbols,
    "reverse": lambda symbols: symbols[::-1],
    "sort": np.sort,
}


def sequences(
    *,
    operation: str,
    num_symbols: int,
    lengths: Sequence,
    test_lengths: Sequence,
    num_examples: int,
    valid_size: int,
    vocabularies: Vocabularies | None = None,
    seed: int = 0,
) -> Task:
    """Copies, reverses or sorts sequences of symbols, which are the words "0", "1", "2", ...

    Each split has its own random numbers from `seed`, so a smaller split is the beginning of a larger one. The lengths
    of a split take turns, so they are equally frequent. Both sides share one vocabulary of all symbols.

    Args:
        operation: name in OPERATIONS.
        num_symbols: size of the alphabet.
        lengths: the shortest and the longest training and validation source.
        test_lengths: lengths of the test split; (): as in training.
        num_examples: training pairs; 0 means NUM_EXAMPLES.
        valid_size: validation pairs; the test split has TEST_SIZE.
        vocabularies: (source, target) of an earlier run; None makes them.
        seed: of all samples.

    Raises:
        UserError: an unknown operation; a length, the alphabet or a size is out of range.
    """
    if len(lengths) != 2 or not all(map(is_length, lengths)) or lengths[0] > lengths[1]:
        raise UserError(f"task.lengths {tuple(lengths)}: expected the shortest and the longest length, such as (1, 16)")
    if not all(map(is_length, test_lengths)):
        raise UserError(f"task.test_lengths {tuple(test_lengths)}: expected lengths of at least 1, such as (32, 64)")
    if num_examples < 0 or valid_size < 1:
        raise UserError(f"task.num_examples {num_examples} and task.valid_size {valid_size}: expected >= 0 and >= 1")
    trained = range(lengths[0], lengths[1] + 1)
    splits = {}
    for name, some, count in (
        ("train", trained, num_examples or NUM_EXAMPLES),
        ("valid", trained, valid_size),
        ("test", test_lengths or trained, TEST_SIZE),
    ):
        rng = np.random.default_rng((seed, SPLITS.index(name)))

        def accept(symbols: Symbols, name: str = name) -> bool:
            n = len(symbols)
            return n not in trained or is_shared(num_symbols**n) or owner(symbols) == name

        splits[name] = make_pairs(operation, num_symbols, some, count, rng, accept)
    if vocabularies is None:
        vocabularies = (Words([str(symbol) for symbol in range(num_symbols)]),) * 2
    stats = {name: len(split) for name, split in splits.items()}
    known = set(splits["train"].source)
    for name in SPLITS[1:]:
        if count := sum(text in known for text in splits[name].source):
            stats[f"{name} sequences that training has too"] = count
    longest = splits["valid"].source[: len(trained)][-3:]
    return Task("sequences", splits, *vocabularies, stats=stats, examples=tuple(longest))


def is_shared(count: int) -> bool:
    """Returns whether the splits share the sequences of a length with `count` of them, since training sees them all."""
    return count < SCARCE


def make_pairs(
    operation: str,
    num_symbols: int,
    lengths: Sequence[int],
    count: int,
    rng: np.random.Generator,
    accept: Callable[[Symbols], bool] = lambda symbols: True,
) -> Pairs:
    """Samples `count` pairs (sequence, sequence after the operation) of any lengths.

    Pair i has the length lengths[i % len(lengths)], so all lengths are equally frequent. Sequences are uniform among
    those that `accept` allows. A smaller count gives the first pairs of a larger one.

    Args:
        operation: name in OPERATIONS.
        num_symbols: size of the alphabet, at least 2.
        lengths: of the sequences, at least 1 each.
        count: number of pairs.
        rng: random number generator.
        accept: tells which sequences to keep; others are sampled again.

    Raises:
        UserError: an unknown operation, an alphabet that is too small, no length.
    """
    apply = lookup(OPERATIONS, operation, "task.operation")
    if num_symbols < 2:
        raise UserError(f"task.num_symbols {num_symbols}: expected at least 2")
    if not lengths or min(lengths) < 1:
        raise UserError(f"lengths {tuple(lengths)}: expected one or more lengths of at least 1")
    source, target = [], []
    for i in range(count):
        while not accept(symbols := rng.integers(num_symbols, size=lengths[i % len(lengths)])):
            pass
        source.append(" ".join(map(str, symbols)))
        target.append(" ".join(map(str, apply(symbols))))
    return Pairs(source, target)


def owner(symbols: Symbols) -> str:
    """Split of a sequence: the same in every process and for every size of the alphabet."""
    digest = hashlib.blake2b(symbols.astype("<i8").tobytes(), digest_size=8).digest()
    return str(OWNERS[int.from_bytes(digest, "little") % len(OWNERS)])


def is_length(n: object) -> bool:
    """Returns whether a value of an option is a length: an integer of at least 1."""
    return isinstance(n, int) and n >= 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequencesOptions(TextOptions):
    """Options of the task of copying, reversing or sorting symbols."""

    name: ClassVar[str] = "sequences"

    operation: str = option("sort", "operation that turns the source into the target", choices=OPERATIONS)
    num_symbols: int = option(32, "number of different symbols", at_least=2, at_most=100_000)
    lengths: tuple = option((1, 16), "shortest and longest source in training and validation")
    test_lengths: tuple = option((), "lengths of the test sources, such as (32, 64); (): as in training")
    valid_size: int = option(500, "number of validation examples", at_least=1)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        return sequences(
            operation=self.operation,
            num_symbols=self.num_symbols,
            lengths=self.lengths,
            test_lengths=self.test_lengths,
            num_examples=self.num_examples,
            valid_size=self.valid_size,
            vocabularies=kept,
        )
