"""State tracking: the composition of a sequence of permutations of n things.

    source   21345 12354 23451          target   the permutation i -> third(second(first(i))), 32415

A permutation of 1 ... n is written as one word, the images of 1 ... n. The word problem of S5, the permutations of five
things, is complete for NC1: a Transformer or a linear recurrence of fixed depth is conjectured not to solve it at every
length, whereas a nonlinear recurrence does (Merrill 2024, arXiv 2404.08819, section 4; Liu 2022, arXiv 2210.10749).
With n = 3 or only swaps of neighbours it is easier.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from attn_jax.data.splits import seen_in_training
from attn_jax.data.vocabulary import Words
from attn_jax.parts import option
from attn_jax.tasks.options import TextOptions
from attn_jax.tasks.synthetic.generated import NUM_EXAMPLES, make_splits, may_have, read_lengths, sample_sequences
from attn_jax.tasks.task import Pairs, Task

Permutation = tuple[int, ...]  # images of 0 ... n - 1


def all_permutations(n: int) -> list[Permutation]:
    """Returns every permutation of n things, the identity first."""
    return list(itertools.permutations(range(n)))


def swaps(n: int) -> list[Permutation]:
    """Returns the swaps of two neighbours."""
    return [(*range(i), i + 1, i, *range(i + 2, n)) for i in range(n - 1)]


def two_generators(n: int) -> list[Permutation]:
    """Returns a swap and a cycle, which generate all permutations."""
    return [swaps(n)[0], (*range(1, n), 0)]


MOVES = {"all": all_permutations, "swaps": swaps, "generators": two_generators}


def follow(moves: Int[np.ndarray, "k n"]) -> Permutation:
    """Composes permutations in sequence: i -> last(... first(i))."""
    state = np.arange(moves.shape[1])
    for move in moves:
        state = move[state]
    return tuple(state.tolist())


def write(permutation: np.ndarray | Sequence[int]) -> str:
    """Writes a permutation as a word of digits."""
    return "".join(str(image + 1) for image in permutation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PermutationsOptions(TextOptions):
    """Options of the task of following permutations.

    The target is one word, so a classifier can learn the task as well. The hash of a source determines its split, see
    attn_jax.tasks.synthetic.generated. Both sides share one vocabulary of all permutations.
    """

    name: ClassVar[str] = "permutations"

    num_things: int = option(5, "things that are permuted; 5: S5", at_least=2, at_most=7)
    moves: str = option(
        "all", "permutations of a source: all, swaps of neighbours, or a swap and a cycle", choices=MOVES
    )
    lengths: tuple = option((1, 16), "shortest and longest source in training and validation")
    test_lengths: tuple = option((), "lengths of the test sources, such as (32, 64); (): as in training")
    valid_size: int = option(500, "number of validation examples", at_least=1)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        """Makes the task; raises a UserError if a length is out of range."""
        chosen = np.array(MOVES[self.moves](self.num_things))
        lengths = read_lengths(self.lengths, self.test_lengths)

        def sample(name: str, count: int, rng: np.random.Generator) -> Pairs:
            accept = may_have(name, len(chosen), lengths["train"])
            rows = [chosen[index] for index in sample_sequences(len(chosen), lengths[name], count, rng, accept)]
            return Pairs([" ".join(map(write, moves)) for moves in rows], [write(follow(moves)) for moves in rows])

        splits = make_splits(sample, self.num_examples or NUM_EXAMPLES, self.valid_size)
        stats = {name: len(split) for name, split in splits.items()}
        stats |= seen_in_training(splits, lambda pairs: pairs.source, "sequences")
        vocabularies = kept or (Words(list(map(write, all_permutations(self.num_things)))),) * 2
        return Task("permutations", splits, *vocabularies, stats=stats)
