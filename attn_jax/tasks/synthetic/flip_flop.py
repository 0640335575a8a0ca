"""The flip-flop language: a bit is written, ignored for a while, and read.

    w 0 i 1 i 0 r 0 w 1 i 0 r 1

A text is a sequence of instructions, each followed by a bit. The bit after w (write) and after i (ignore) is random;
the bit after r (read) is the last written bit. The first instruction is w, the last r, the others are independent. Liu
2023 (arXiv 2306.00946), section 3.1: FFL(p) has share p of i, and equal shares of w and r. Liu 2023 calls occasional
errors in reading a distant write attention glitches. With n instructions the entropy of a text is

    H = (n - 2) H(p_w, p_r, p_i) + (1 + (n - 2) (p_w + p_i)) log 2
"""

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int

from attn_jax.data.vocabulary import Vocabulary, Words
from attn_jax.parts import option
from attn_jax.tasks.options import TextOptions
from attn_jax.tasks.synthetic.generated import NUM_EXAMPLES, make_splits
from attn_jax.tasks.task import Pairs, Task
from attn_jax.tasks.text.plain_text import beginnings

WRITE, IGNORE, READ = "w", "i", "r"
WORDS = ("0", "1", WRITE, IGNORE, READ)


def entropy(num_instructions: int, ignored: float) -> float:
    """Returns the entropy in nats of a text; the end of the text is certain."""
    free, share = num_instructions - 2, (1 - ignored) / 2
    of_one = -sum(p * math.log(p) for p in (share, share, ignored) if p > 0)
    return free * of_one + (1 + free * (share + ignored)) * math.log(2)


def sample(
    count: int, num_instructions: int, ignored: float, rng: np.random.Generator
) -> tuple[Int[np.ndarray, "n k"], Int[np.ndarray, "n k"]]:
    """Samples texts: (instructions as 0 for w, 1 for i, 2 for r; bits). A smaller count gives different texts."""
    share = (1 - ignored) / 2
    instructions = rng.choice(3, size=(count, num_instructions), p=(share, ignored, share))
    instructions[:, 0], instructions[:, -1] = 0, 2
    bits = rng.integers(2, size=instructions.shape)
    place = np.where(instructions == 0, np.arange(num_instructions), 0)
    written = np.take_along_axis(bits, np.maximum.accumulate(place, axis=1), axis=1)  # the last written bit
    return instructions, np.where(instructions == 2, written, bits)


def is_read(tokens: Int[np.ndarray, "b t"], vocabulary: Vocabulary) -> Bool[np.ndarray, "b t"]:
    """Returns True for bits after r, which are predictable; the first column is always False."""
    (read,) = vocabulary.encode(READ)
    return np.concatenate([np.zeros_like(tokens[:, :1], bool), tokens[:, :-1] == read], axis=1)


def _text(instructions: Int[np.ndarray, " k"], bits: Int[np.ndarray, " k"]) -> str:
    names = (WRITE, IGNORE, READ)
    return " ".join(f"{names[i]} {bit}" for i, bit in zip(instructions, bits, strict=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlipFlopOptions(TextOptions):
    """Options of the task of predicting texts of the flip-flop language."""

    has_sources: ClassVar[bool] = False
    name: ClassVar[str] = "flip_flop"

    num_instructions: int = option(64, "instructions of a text, each followed by a bit", at_least=2, at_most=100_000)
    ignored: float = option(0.8, "share of ignored bits in training and validation", at_least=0, at_most=1)
    test_ignored: float = option(0.98, "share of ignored bits in the test", at_least=0, at_most=1)
    valid_size: int = option(500, "number of validation examples", at_least=1)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        def sample_split(name: str, count: int, rng: np.random.Generator) -> Pairs:
            ignored = self.test_ignored if name == "test" else self.ignored
            texts = zip(*sample(count, self.num_instructions, ignored, rng), strict=True)
            return Pairs([""] * count, [_text(*text) for text in texts])

        splits = make_splits(sample_split, self.num_examples or NUM_EXAMPLES, self.valid_size)
        vocabularies = kept or (Words(WORDS),) * 2
        lowest = math.exp(entropy(self.num_instructions, self.test_ignored) / (2 * self.num_instructions + 1))
        stats = {name: len(split) for name, split in splits.items()}
        stats |= {"lowest possible perplexity": round(lowest, 4)}
        examples = beginnings(splits["valid"].target, vocabularies[1])
        return Task("flip_flop", splits, *vocabularies, stats=stats, examples=examples)
