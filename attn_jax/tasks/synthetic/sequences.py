"""Copy, reverse or sort a sequence: the target has the symbols of the source in another order. Data is generated.

    sort       7 31 0 7 12  ->  0 7 7 12 31

A test of length generalization: train on short sequences, test on longer ones. Symbols are independent and uniform, as
in Vasylenko et al. 2025, arXiv 2506.16640, whose data has 32 symbols, lengths 32 to 64 in training and 64 to 4096 in
the test. Splits share only short sequences, see attn_jax.tasks.synthetic.generated; the stats of the task count the
examples that are in training as well.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from attn_jax.data.splits import seen_in_training
from attn_jax.data.vocabulary import Words
from attn_jax.errors import UserError, lookup
from attn_jax.parts import option
from attn_jax.tasks.options import TextOptions
from attn_jax.tasks.synthetic.generated import (
    NUM_EXAMPLES,
    Symbols,
    make_splits,
    may_have,
    read_lengths,
    sample_sequences,
)
from attn_jax.tasks.task import Pairs, Task

OPERATIONS = {
    "copy": lambda symbols: symbols,
    "reverse": lambda symbols: symbols[::-1],
    "sort": np.sort,
}


def make_pairs(
    operation: str,
    num_symbols: int,
    lengths: Sequence[int],
    count: int,
    rng: np.random.Generator,
    accept: Callable[[Symbols], bool] = lambda symbols: True,
) -> Pairs:
    """Samples `count` pairs (sequence, sequence after the operation) of any lengths, see `sample_sequences`.

    Args:
        operation: name in OPERATIONS.
        num_symbols: size of the alphabet, at least 2.
        lengths: lengths of the sequences, at least 1 each.
        count: number of pairs.
        rng: random number generator.
        accept: tells which sequences to keep; rejected sequences are sampled again.

    Raises:
        UserError: the operation is unknown, the alphabet is too small, or there is no length.
    """
    apply = lookup(OPERATIONS, operation, "task.operation")
    if num_symbols < 2:
        raise UserError(f"task.num_symbols {num_symbols}: expected at least 2")
    if not lengths or min(lengths) < 1:
        raise UserError(f"lengths {tuple(lengths)}: expected one or more lengths of at least 1")
    source, target = [], []
    for symbols in sample_sequences(num_symbols, lengths, count, rng, accept):
        source.append(" ".join(map(str, symbols)))
        target.append(" ".join(map(str, apply(symbols))))
    return Pairs(source, target)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequencesOptions(TextOptions):
    """Options of the task of copying, reversing or sorting symbols.

    Symbols are the words "0", "1", "2", ... Both sides share one vocabulary of all symbols. A smaller split is the
    beginning of a larger one.
    """

    name: ClassVar[str] = "sequences"

    operation: str = option("sort", "operation that turns the source into the target", choices=OPERATIONS)
    num_symbols: int = option(32, "number of different symbols", at_least=2, at_most=100_000)
    lengths: tuple = option((1, 16), "shortest and longest source in training and validation")
    test_lengths: tuple = option((), "lengths of the test sources, such as (32, 64); (): as in training")
    valid_size: int = option(500, "number of validation examples", at_least=1)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        """Makes the task; raises a UserError if a length is out of range."""
        lengths = read_lengths(self.lengths, self.test_lengths)

        def sample(name: str, count: int, rng: np.random.Generator) -> Pairs:
            accept = may_have(name, self.num_symbols, lengths["train"])
            return make_pairs(self.operation, self.num_symbols, lengths[name], count, rng, accept)

        splits = make_splits(sample, self.num_examples or NUM_EXAMPLES, self.valid_size)
        stats = {name: len(split) for name, split in splits.items()}
        stats |= seen_in_training(splits, lambda pairs: pairs.source, "sequences")
        vocabularies = kept or (Words([str(symbol) for symbol in range(self.num_symbols)]),) * 2
        longest = splits["valid"].source[: len(lengths["train"])][-3:]
        return Task("sequences", splits, *vocabularies, stats=stats, examples=tuple(longest))
