"""State tracking: what a sequence of permutations makes of the order of n things.

    source   21345 12354 23451          target   the permutation i -> third(second(first(i))), 32415

A permutation of 1 ... n is written as the images of 1 ... n, in one word. The word problem of S5, the permutations of
five things, is complete for NC1: a Transformer or a linear recurrence of fixed depth is thought not to solve it at
every length, a nonlinear recurrence does (Merrill 2024, arXiv 2404.08819, section 4; Liu 2022, arXiv 2210.10749). With
n = 3 or swaps of neighbours alone it is easier.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from attn_jax.data.facts import Vocabularies
from attn_jax.data.vocabulary import Words
from attn_jax.errors import UserError, lookup
from attn_jax.parts import option
from attn_jax.tasks.options import TextOptions
from attn_jax.tasks.synthetic.sequences import SPLITS, is_length, is_shared, owner
from attn_jax.tasks.task import Pairs, Task

NUM_EXAMPLES = 20_000  # training sequences by default
TEST_SIZE = 1000
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
    """Returns i -> last(... first(i)) of permutations in a row."""
    state = np.arange(moves.shape[1])
    for move in moves:
        state = move[state]
    return tuple(state.tolist())


def write(permutation: np.ndarray | Sequence[int]) -> str:
    """Writes a permutation as a word of digits."""
    return "".join(str(image + 1) for image in permutation)


def permutations(
    *,
    num_things: int,
    moves: str,
    lengths: Sequence,
    test_lengths: Sequence,
    num_examples: int,
    valid_size: int,
    vocabularies: Vocabularies | None = None,
    seed: int = 0,
) -> Task:
    """Multiplies sequences of permutations. The target is one word, so a classifier may learn it as well.

    Each split has its own random numbers, and its lengths take turns. The hash of a source decides its split, as in
    attn_jax.tasks.synthetic.sequences. Both sides share one vocabulary of all permutations.

    Args:
        num_things: of a permutation.
        moves: name in MOVES: the permutations of a source.
        lengths: the shortest and the longest source in training and validation.
        test_lengths: lengths in the test; (): as in training.
        num_examples: training sequences; 0 means NUM_EXAMPLES.
        valid_size: validation sequences.
        vocabularies: those of an earlier run.
        seed: of all sequences.

    Raises:
        UserError: unknown moves, or a length out of range.
    """
    chosen = np.array(lookup(MOVES, moves, "task.moves")(num_things))
    if len(lengths) != 2 or not all(map(is_length, lengths)) or lengths[0] > lengths[1]:
        raise UserError(f"task.lengths {tuple(lengths)}: expected the shortest and the longest length, such as (1, 16)")
    if not all(map(is_length, test_lengths)):
        raise UserError(f"task.test_lengths {tuple(test_lengths)}: expected lengths of at least 1, such as (32, 64)")
    trained = range(lengths[0], lengths[1] + 1)
    splits = {}
    for name, some, count in (
        ("train", trained, num_examples or NUM_EXAMPLES),
        ("valid", trained, valid_size),
        ("test", test_lengths or trained, TEST_SIZE),
    ):
        rng = np.random.default_rng((seed, SPLITS.index(name)))
        source, target = [], []
        for i in range(count):
            size = some[i % len(some)]
            index = rng.integers(len(chosen), size=size)
            while size in trained and not is_shared(len(chosen) ** size) and owner(index) != name:
                index = rng.integers(len(chosen), size=size)
            source.append(" ".join(write(move) for move in chosen[index]))
            target.append(write(follow(chosen[index])))
        splits[name] = Pairs(source, target)
    if vocabularies is None:
        vocabularies = (Words([write(permutation) for permutation in all_permutations(num_things)]),) * 2
    stats = {name: len(split) for name, split in splits.items()}
    known = set(splits["train"].source)
    for name in SPLITS[1:]:
        if count := sum(text in known for text in splits[name].source):
            stats[f"{name} sequences that training has too"] = count
    return Task("permutations", splits, *vocabularies, stats=stats)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PermutationsOptions(TextOptions):
    """Options of the task of following permutations."""

    name: ClassVar[str] = "permutations"

    num_things: int = option(5, "things that are permuted; 5: S5", at_least=2, at_most=7)
    moves: str = option(
        "all", "permutations of a source: all, swaps of neighbours, or a swap and a cycle", choices=MOVES
    )
    lengths: tuple = option((1, 16), "shortest and longest source in training and validation")
    test_lengths: tuple = option((), "lengths of the test sources, such as (32, 64); (): as in training")
    valid_size: int = option(500, "number of validation examples", at_least=1)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        return permutations(
            num_things=self.num_things,
            moves=self.moves,
            lengths=self.lengths,
            test_lengths=self.test_lengths,
            num_examples=self.num_examples,
            valid_size=self.valid_size,
            vocabularies=kept,
        )
