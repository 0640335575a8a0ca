"""Readers: from the words of a story to one vector of each statement and one of the question.

    reader(source [b, s], story, train) -> (statements [b, n, d], question [b, d])

n is story.size; a slot without a statement holds anything, and is masked by who
reads it.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.layers.rnn import CELLS, Recurrence
from attn_jax.models.memory_networks.base import Story, bags, centred_feature, centred_position, sum_words
from attn_jax.tasks.vocabulary import BOS, EOS, PAD, PERIOD_ID, QUESTION_ID
from attn_jax.types import Array, Bool, Float, Int


def uniform(bound: float):
    """An initializer: uniform in [-bound, bound]."""

    def init(rng, shape, dtype=jnp.float32):
        return jax.random.uniform(rng, shape, dtype, -bound, bound)

    return init


class Words(nn.Module):
    """E[word], as the product of a one-hot row and E.

    The vocabulary of stories is small, so this is faster than gathering rows, whose gradient is a scatter; most of
    all under vmap.
    """

    vocab_size: int
    features: int
    init: nn.initializers.Initializer = nn.initializers.normal(0.1)

    def setup(self):
        self.table = self.param("embedding", self.init, (self.vocab_size, self.features))

    def __call__(self, tokens: Int[Array, "..."]) -> Float[Array, "... d"]:
        return self.of_counts(jax.nn.one_hot(tokens, self.vocab_size))

    def of_counts(self, counts: Float[Array, "... v"]) -> Float[Array, "... d"]:
        """The sum of the vectors of a bag of words."""
        return counts @ self.table


def asked_words(
    words: Float[Array, "b s e"], story: Story, question_size: int
) -> tuple[Float[Array, "b j e"], Bool[Array, "b j"]]:
    """The last `question_size` words of the question, moved to the front, and which of them there are."""
    length = jnp.sum(story.asked, axis=1, keepdims=True)
    place = story.position - jnp.maximum(length - question_size, 0)
    to = jax.nn.one_hot(jnp.where(story.asked, place, -1), question_size, dtype=words.dtype)
    return jnp.einsum("bsj,bse->bje", to, words), jnp.arange(question_size) < length


class WordReader(nn.Module):
    """One GRU over all words of all statements; a statement is its state at the period. Kumar 2016 (arXiv 1506.07285).

    The same GRU reads the question, from zero: of a question of more than `question_size` words its last ones.
    Statements that the memory has no slot for are read as well, so the first ones kept know of them.
    """

    vocab_size: int
    features: int
    embedding_size: int
    question_size: int = 16
    dropout: float = 0.0  # of the embeddings

    def setup(self):
        self.words = Words(self.vocab_size, self.embedding_size, uniform(3**0.5))
        self.recurrence = Recurrence(cell=CELLS["gru"], features=self.features)
        self.drop = nn.Dropout(self.dropout)

    def __call__(
        self, source: Int[Array, "b s"], story: Story, train: bool = False
    ) -> tuple[Float[Array, "b n d"], Float[Array, "b d"]]:
        words = self.drop(self.words(source), deterministic=not train)
        stop = source == PERIOD_ID
        nothing = (source == PAD) | (source == BOS) | (source == EOS) | (source == QUESTION_ID)
        _, states = self.recurrence(words, ~(nothing | story.asked))
        slot = jnp.cumsum(stop, axis=1) - 1 - story.cut[:, None]
        ends = jax.nn.one_hot(jnp.where(stop, slot, -1), story.size, dtype=states.dtype)
        (question,), _ = self.recurrence(*asked_words(words, story, self.question_size))
        return jnp.einsum("bsn,bsd->bnd", ends, states), question


class FusionReader(nn.Module):
    """Position-encoded sums of words, through a GRU over statements in either direction, whose states are added.

    Xiong 2016 (arXiv 1603.01417), section 3.1: the input fusion layer. The question is read by a GRU over its words.
    """

    vocab_size: int
    features: int  # of a word, too
    question_size: int = 16
    dropout: float = 0.0  # of the statements

    def setup(self):
        self.words = Words(self.vocab_size, self.features, uniform(3**0.5))
        self.forward = Recurrence(cell=CELLS["gru"], features=self.features)
        self.backward = Recurrence(cell=CELLS["gru"], features=self.features)
        self.asked = Recurrence(cell=CELLS["gru"], features=self.features)
        self.drop = nn.Dropout(self.dropout)

    def __call__(
        self, source: Int[Array, "b s"], story: Story, train: bool = False
    ) -> tuple[Float[Array, "b n d"], Float[Array, "b d"]]:
        place, scale = centred_position(story), centred_feature(self.features)
        weight = jnp.stack([jnp.ones_like(place), place], axis=-1)
        counts, _ = bags(source, story, weight, self.vocab_size)
        statements = self.words.of_counts(counts[..., 0]) + scale * self.words.of_counts(counts[..., 1])
        statements = self.drop(statements, deterministic=not train)
        mask = story.mask()
        _, before = self.forward(statements, mask)
        _, after = self.backward(statements, mask, reverse=True)
        asked, real = asked_words(jax.nn.one_hot(source, self.vocab_size), story, self.question_size)
        (question,), _ = self.asked(self.words.of_counts(asked), real)
        return before + after, question


class MaskedBag(nn.Module):
    """sum_j f_j * E[word_j], * elementwise: each place in a sentence has a vector f of its own, learned from ones.

    Henaff 2017 (arXiv 1612.03969), section 2.1. The question has its own f; words beyond `sentence_size` count as
    they are.
    """

    vocab_size: int
    features: int
    sentence_size: int = 16

    def setup(self):
        self.words = Words(self.vocab_size, self.features)
        shape = (self.sentence_size, self.features)
        self.change = {
            name: self.param(name, nn.initializers.zeros, shape) for name in ("statement_change", "question_change")
        }

    def __call__(
        self, source: Int[Array, "b s"], story: Story, train: bool = False
    ) -> tuple[Float[Array, "b n d"], Float[Array, "b d"]]:
        words = self.words(source)
        place = jax.nn.one_hot(story.position, self.sentence_size)
        statement, question = (1 + place @ self.change[f"{name}_change"] for name in ("statement", "question"))
        factor = jnp.where(story.asked[..., None], question, statement)
        return sum_words(words * factor, story)
