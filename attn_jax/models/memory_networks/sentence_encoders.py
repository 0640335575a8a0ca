"""Sentence encoders: one vector for each statement of a story, and one for the question.

    encoder(source [b, s], layout, train) -> (statements [b, n, d], question [b, d])

n is layout.size. The vector of an empty slot is arbitrary; the caller masks it.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention.dropout import Dropout
from attn_jax.data.vocabulary import PERIOD_ID, QUESTION_ID
from attn_jax.layers.rnn import CELLS, Recurrence, scan_both
from attn_jax.models.memory_networks.base import StoryLayout, bags, centred_feature, centred_position, sum_words
from attn_jax.token_ids import BOS, EOS, PAD
from attn_jax.types import Array, Bool, Float, Int


def uniform(bound: float):
    """Initializer that samples uniformly from [-bound, bound]."""

    def init(rng, shape, dtype=jnp.float32):
        return jax.random.uniform(rng, shape, dtype, -bound, bound)

    return init


class WordEmbedding(nn.Module, kw_only=True):
    """E[word], computed as the product of a one-hot row and E.

    For the small vocabularies of stories this is faster than gathering rows, whose gradient is a scatter, especially
    under vmap.
    """

    vocab_size: int
    features: int
    init: nn.initializers.Initializer = nn.initializers.normal(0.1)

    def setup(self):
        self.table = self.param("embedding", self.init, (self.vocab_size, self.features), jnp.float32)

    def __call__(self, tokens: Int[Array, "..."]) -> Float[Array, "... d"]:
        return self.of_counts(jax.nn.one_hot(tokens, self.vocab_size, dtype=jnp.float32))

    def of_counts(self, counts: Float[Array, "... v"]) -> Float[Array, "... d"]:
        """Sum of the word vectors of a bag of words."""
        return counts @ self.table


def question_words(
    words: Float[Array, "b s e"], layout: StoryLayout, question_size: int
) -> tuple[Float[Array, "b j e"], Bool[Array, "b j"]]:
    """Returns the last `question_size` words of the question, moved to the front, and the mask of real words."""
    length = jnp.sum(layout.is_question, axis=1, keepdims=True)
    index = layout.position - jnp.maximum(length - question_size, 0)
    one_hot = jax.nn.one_hot(jnp.where(layout.is_question, index, -1), question_size, dtype=words.dtype)
    return jnp.einsum("bsj,bse->bje", one_hot, words), jnp.arange(question_size)[None] < length


class WordEncoder(nn.Module, kw_only=True):
    """One GRU over all words of the story; the vector of a statement is the state at its period.

    Kumar 2016 (arXiv 1506.07285), section 2.1. The same GRU, started at zero, encodes the last `question_size` words of
    the question. Words of statements without a slot are read too, so they affect the first slots.
    """

    vocab_size: int
    features: int
    embedding_size: int
    question_size: int = 16
    dropout: float = 0.0  # of the embeddings

    def setup(self):
        self.words = WordEmbedding(vocab_size=self.vocab_size, features=self.embedding_size, init=uniform(3**0.5))
        self.recurrence = Recurrence(cell=CELLS["gru"], features=self.features)
        self.drop = Dropout(rate=self.dropout)

    def __call__(
        self, source: Int[Array, "b s"], layout: StoryLayout, train: bool = False
    ) -> tuple[Float[Array, "b n d"], Float[Array, "b d"]]:
        words = self.drop(self.words(source), deterministic=not train)
        is_period = source == PERIOD_ID
        is_special = (source == PAD) | (source == BOS) | (source == EOS) | (source == QUESTION_ID)
        _, states = self.recurrence(words, ~(is_special | layout.is_question))
        slot = jnp.cumsum(is_period, axis=1) - 1 - layout.num_cut[:, None]
        ends = jax.nn.one_hot(jnp.where(is_period, slot, -1), layout.size, dtype=states.dtype)
        (question,), _ = self.recurrence(*question_words(words, layout, self.question_size))
        return jnp.einsum("bsn,bsd->bnd", ends, states), question


class FusionEncoder(nn.Module, kw_only=True):
    """Position-encoded sums of words, then GRUs over the statements in both directions; their states are added.

    The input fusion layer of Xiong 2016 (arXiv 1603.01417), section 3.1. A GRU over its words encodes the question.
    """

    vocab_size: int
    features: int  # width of words and of states
    question_size: int = 16
    dropout: float = 0.0  # of the statements

    def setup(self):
        self.words = WordEmbedding(vocab_size=self.vocab_size, features=self.features, init=uniform(3**0.5))
        self.forward = Recurrence(cell=CELLS["gru"], features=self.features)
        self.backward = Recurrence(cell=CELLS["gru"], features=self.features)
        self.question = Recurrence(cell=CELLS["gru"], features=self.features, name="asked")  # name in checkpoints
        self.drop = Dropout(rate=self.dropout)

    def __call__(
        self, source: Int[Array, "b s"], layout: StoryLayout, train: bool = False
    ) -> tuple[Float[Array, "b n d"], Float[Array, "b d"]]:
        position, feature = centred_position(layout), centred_feature(self.features)
        weight = jnp.stack([jnp.ones_like(position), position], axis=-1)
        counts, _ = bags(source, layout, weight, self.vocab_size)
        statements = self.words.of_counts(counts[..., 0]) + feature[None, None] * self.words.of_counts(counts[..., 1])
        statements = self.drop(statements, deterministic=not train)
        _, (before, after) = scan_both(self.forward, self.backward, statements, layout.mask())
        one_hot = jax.nn.one_hot(source, self.vocab_size, dtype=jnp.float32)
        words, is_word = question_words(one_hot, layout, self.question_size)
        (question,), _ = self.question(self.words.of_counts(words), is_word)
        return before + after, question


class MaskedBag(nn.Module, kw_only=True):
    """sum_j f_j * E[word_j], * elementwise, with one learned vector f_j per position, initialized to ones.

    Henaff 2017 (arXiv 1612.03969), section 2.1. Statements and the question have different f; words at positions of
    `sentence_size` and beyond have f = 1.
    """

    vocab_size: int
    features: int
    sentence_size: int = 16

    def setup(self):
        self.words = WordEmbedding(vocab_size=self.vocab_size, features=self.features)
        shape = (self.sentence_size, self.features)
        self.change = {
            name: self.param(name, nn.initializers.zeros, shape, jnp.float32)
            for name in ("statement_change", "question_change")
        }

    def __call__(
        self, source: Int[Array, "b s"], layout: StoryLayout, train: bool = False
    ) -> tuple[Float[Array, "b n d"], Float[Array, "b d"]]:
        words = self.words(source)
        position = jax.nn.one_hot(layout.position, self.sentence_size, dtype=jnp.float32)
        statement, question = (1 + position @ self.change[f"{name}_change"] for name in ("statement", "question"))
        factor = jnp.where(layout.is_question[..., None], question, statement)
        return sum_words(words * factor, layout)
