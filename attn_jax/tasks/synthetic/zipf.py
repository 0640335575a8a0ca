"""Language modelling of a generated text with known entropy, which gives a true lower bound of the perplexity.

    class_t ~ transitions[class_{t-1}]        word_t ~ p(word | class_t)

Words have frequencies by Zipf's law: within its class, the probability of the word of rank r is proportional to
r^-exponent, and the ranks are dealt to the classes in turn. A word determines its class, so with the stationary
distribution pi the entropy of a word given all words before it is

    H = sum_c pi_c (H(transitions[c]) + H(words of c))

A model without context can reach H(pi) + sum_c pi_c H(words of c).
"""

import dataclasses
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from attn_jax.data.vocabulary import Words
from attn_jax.errors import UserError
from attn_jax.parts import option
from attn_jax.tasks.options import SEED, TextOptions
from attn_jax.tasks.synthetic.generated import NUM_EXAMPLES, make_splits
from attn_jax.tasks.task import Pairs, Task
from attn_jax.tasks.text.plain_text import beginnings

CONCENTRATION = 0.1  # of the Dirichlet distribution of transitions: few classes often follow a class


class ZipfSource:
    """A random text: a Markov chain of word classes, and words by rank within their class."""

    def __init__(self, *, num_words: int, num_classes: int = 16, exponent: float = 1.0, seed: int = 0):
        """
        Args:
            num_words: number of words, at least one for each class.
            num_classes: number of classes.
            exponent: exponent of Zipf's law.
            seed: seed of the transitions.
        """
        rng = np.random.default_rng((seed, num_classes))
        self.transitions = rng.dirichlet(np.full(num_classes, CONCENTRATION), num_classes)
        self.transitions = 0.99 * self.transitions + 0.01 / num_classes  # every class can follow every other
        self.stationary = np.linalg.matrix_power(self.transitions, 1000)[0]
        ranks = np.arange(num_words)
        self.words = [ranks[c::num_classes] for c in range(num_classes)]
        self.probs = [_normalized((1.0 + words) ** -exponent) for words in self.words]

    @property
    def word_probs(self) -> Float[np.ndarray, " v"]:
        """Probability of each word at any position of the text."""
        probs = np.empty(sum(map(len, self.words)))
        for share, words, within in zip(self.stationary, self.words, self.probs, strict=True):
            probs[words] = share * within
        return probs

    def entropy(self, length: int) -> float:
        """Returns the entropy in nats of a text of this length; the end of the text is certain."""
        of_words = sum(share * _entropy(probs) for share, probs in zip(self.stationary, self.probs, strict=True))
        of_steps = sum(share * _entropy(row) for share, row in zip(self.stationary, self.transitions, strict=True))
        return _entropy(self.stationary) + (length - 1) * of_steps + length * of_words

    def sample(self, count: int, length: int, rng: np.random.Generator) -> Int[np.ndarray, "n t"]:
        """Samples texts as word numbers; a smaller count gives different texts."""
        words = np.empty((count, length), np.int64)
        classes = _choose(np.broadcast_to(self.stationary, (count, len(self.stationary))), rng)
        for t in range(length):
            uniform = rng.random(count)
            for c, (names, probs) in enumerate(zip(self.words, self.probs, strict=True)):
                own = classes == c
                index = np.searchsorted(np.cumsum(probs), uniform[own], side="right")
                words[own, t] = names[np.minimum(index, len(names) - 1)]
            classes = _choose(self.transitions[classes], rng)
        return words


def _normalized(weights: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return weights / np.sum(weights)


def _entropy(probs: Float[np.ndarray, " n"]) -> float:
    return float(-np.sum(probs * np.log(np.where(probs > 0, probs, 1.0))))


def _choose(probs: Float[np.ndarray, "n c"], rng: np.random.Generator) -> Int[np.ndarray, " n"]:
    """Samples an index for each row."""
    below = rng.random((len(probs), 1)) < np.cumsum(probs, axis=1)
    return np.where(below[:, -1], np.argmax(below, axis=1), probs.shape[1] - 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZipfOptions(TextOptions):
    """Options of the task of predicting a generated text of known entropy.

    The vocabulary has all words, most frequent first, including unseen ones.
    """

    has_sources: ClassVar[bool] = False
    name: ClassVar[str] = "zipf"

    num_words: int = option(10_000, "number of words", at_least=2, at_most=10_000_000)
    num_classes: int = option(16, "number of word classes, each followed by few others", at_least=1, at_most=1000)
    exponent: float = option(1.0, "exponent of Zipf's law", at_least=0, at_most=10)
    length: int = option(32, "words of a text", at_least=1)
    valid_size: int = option(500, "number of validation examples", at_least=1)

    def build(self, *, data_dir: str, kept: Any, seeds: tuple[int, ...]) -> Task:
        """Makes the task; raises a UserError if there are fewer words than classes."""
        words, classes = self.num_words, self.num_classes
        if words < classes:
            raise UserError(f"task.num_words is {words}; expected at least task.num_classes, {classes}")
        source = ZipfSource(num_words=words, num_classes=classes, exponent=self.exponent, seed=SEED)

        def sample(name: str, count: int, rng: np.random.Generator) -> Pairs:
            texts = source.sample(count, self.length, rng)
            return Pairs([""] * count, [" ".join(map(str, text)) for text in texts.tolist()])

        splits = make_splits(sample, self.num_examples or NUM_EXAMPLES, self.valid_size)
        order = np.argsort(-source.word_probs, kind="stable")
        vocabularies = kept or (Words([str(word) for word in order]),) * 2
        lowest = float(np.exp(source.entropy(self.length) / (self.length + 1)))
        stats = {name: len(split) for name, split in splits.items()}
        stats |= {"lowest possible perplexity": round(lowest, 3)}
        examples = beginnings(splits["valid"].target, vocabularies[1])
        return Task("zipf", splits, *vocabularies, stats=stats, examples=examples)
