"""Associative recall: the source has pairs of keys and values; in the target each key is followed by its value again.

    source   k17 v3 k5 v41 k80 v9          target   . . k5 v41 . k17 v3 . . . k80 v9 .

Multi-query associative recall, Arora 2023 (arXiv 2312.04927), as language modelling of the target. Keys, values and
fillers are different words, so a filler never follows a key as its value. Every order of the target is equally
probable: with p pairs, and f fillers of m different words in a target of length 2 p + f, the entropy of the target is

    H = log binomial(p + f, p) + log p! + f log m

The loss of a value is 0 for a model that recalls it, and log p for a model that knows only the set of values.
"""

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from attn_jax.data.vocabulary import Vocabulary, Words
from attn_jax.errors import UserError
from attn_jax.parts import option
from attn_jax.tasks.options import TextOptions
from attn_jax.tasks.synthetic.generated import make_splits
from attn_jax.tasks.task import Pairs, Task

NUM_EXAMPLES = 10_000  # training texts by default
KEY, VALUE, FILLER = "k", "v", "."  # first letters of the words
MOST_WORDS = 10_000  # largest number of keys or of values: all of them are sorted for each text
AT_ONCE = 1 << 20  # largest number of random numbers in memory


def entropy(num_pairs: int, length: int, num_fillers: int) -> float:
    """Returns the entropy in nats of a target, given its source; the end of the target is certain."""
    fillers = length - 2 * num_pairs
    orders = math.comb(num_pairs + fillers, num_pairs) * math.factorial(num_pairs)
    return math.log(orders) + fillers * math.log(num_fillers)


def is_value(tokens: Int[np.ndarray, "..."], vocabulary: Vocabulary) -> np.ndarray:
    """Returns True for tokens that are values, which can be recalled."""
    values = [word.startswith(VALUE) for word in vocabulary.tokens(range(len(vocabulary)))]
    return np.array(values)[tokens]


def choose(count: int, size: int, chosen: int, rng: np.random.Generator) -> Int[np.ndarray, "n c"]:
    """Chooses different numbers below `size`, in random order, for each of `count` rows.

    The numbers come from one random matrix [count, size], of which only some rows are in memory at a time.
    """
    rows = max(1, AT_ONCE // size)
    found = np.empty((count, chosen), int)
    for start in range(0, count, rows):
        part = found[start : start + rows]
        part[:] = np.argsort(rng.random((len(part), size)), axis=1)[:, :chosen]
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecallOptions(TextOptions):
    """Options of the task of recalling the values of keys."""

    name: ClassVar[str] = "recall"

    num_pairs: int = option(4, "pairs of a key and a value in a text", at_least=1, at_most=10_000)
    num_keys: int = option(128, "number of key words", at_least=1, at_most=MOST_WORDS)
    num_values: int = option(128, "number of value words", at_least=1, at_most=MOST_WORDS)
    num_fillers: int = option(
        1, "number of filler words, which are neither keys nor values", at_least=1, at_most=10_000
    )
    length: int = option(54, "words of a target", at_least=2, at_most=100_000)
    valid_size: int = option(500, "number of validation examples", at_least=1)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        """Makes the task; raises a UserError for fewer keys or values than pairs, or a target too short for them."""
        for name, size in (("num_keys", self.num_keys), ("num_values", self.num_values)):
            if size < self.num_pairs:
                raise UserError(f"task.{name} is {size}; expected at least task.num_pairs, {self.num_pairs}")
        if self.length < 2 * self.num_pairs:
            expected = f"expected at least {2 * self.num_pairs}, for task.num_pairs {self.num_pairs}"
            raise UserError(f"task.length is {self.length}; {expected}")
        count = self.num_examples or NUM_EXAMPLES
        splits = make_splits(lambda name, *given: self.sample(*given), count, self.valid_size)
        kinds = ((FILLER, self.num_fillers), (KEY, self.num_keys), (VALUE, self.num_values))
        vocabularies = kept or (Words([f"{letter}{i}" for letter, size in kinds for i in range(size)]),) * 2
        lowest = math.exp(entropy(self.num_pairs, self.length, self.num_fillers) / (self.length + 1))
        stats = {name: len(split) for name, split in splits.items()}
        stats |= {"lowest possible perplexity": round(lowest, 4)}
        return Task("recall", splits, *vocabularies, stats=stats)

    def sample(self, count: int, rng: np.random.Generator) -> Pairs:
        """Samples texts, each with distinct keys and distinct values; a smaller count gives different texts."""
        keys, values = (choose(count, size, self.num_pairs, rng) for size in (self.num_keys, self.num_values))
        places = self.length - self.num_pairs  # a pair takes one place, like a filler
        order = choose(count, places, self.num_pairs, rng)  # place of each pair
        fillers = rng.integers(self.num_fillers, size=(count, places))
        source, target = [], []
        for row in range(count):
            pairs = [f"{KEY}{key} {VALUE}{value}" for key, value in zip(keys[row], values[row], strict=True)]
            text = [f"{FILLER}{filler}" for filler in fillers[row]]
            for place, pair in zip(order[row], pairs, strict=True):
                text[place] = pair
            source.append(" ".join(pairs))
            target.append(" ".join(text))
        return Pairs(source, target)
