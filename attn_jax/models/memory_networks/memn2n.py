"""End-to-end memory networks (Sukhbaatar 2015, arXiv 1503.08895): several hops of soft attention over a story.

    m_i = sum_j A x_ij + T_A(age of i)      c_i = sum_j C x_ij + T_C(age of i)      u = sum_j B q_j
    o = sum_i softmax(u . m)_i c_i          u <- u + o                              answer = softmax(W u)

so a hop is the one formula with score dot, keys m and values c. In the words of Weston 2015: I is the sum over the
words, G gives each statement its slot, O are the hops, R is the softmax.

Adjacent tying: the values of a hop are the keys of the next, B the keys of the first, W the values of the last.
Layer-wise tying: all hops have the same keys and values, and u <- H u + o.

In the authors' code the slots of the memory that a story leaves empty are read, too, as m = c = 0: a hop that finds
nothing has somewhere to look. The paper does not say so.
"""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Attention
from attn_jax.attention.normalizers import linear
from attn_jax.attention.scores.base import Score
from attn_jax.models.memory_networks.base import (
    Answered,
    Story,
    bags,
    centred_feature,
    centred_position,
    find_sentences,
)
from attn_jax.types import Array, Float, Int, PRNGKeyArray

INIT = nn.initializers.normal(0.1)


class MemN2N(nn.Module):
    """An answer from `num_hops` readings of a story."""

    vocab_size: int
    features: int
    num_hops: int
    memory_size: int
    score: Score
    normalize: Callable
    adjacent: bool = True  # else layer-wise tying
    position_encoding: bool = True  # else a statement is the bag of its words
    nonlinear: bool = False  # u <- relu(u + o), as for 10,000 questions
    attend_empty: bool = False  # else empty slots are masked
    noise: float = 0.0  # in training, empty memories are put in, at most this share of the statements (section 4.1)
    linear_steps: int = 0  # linear start: so many training steps without the normalizer (section 4.2)

    def setup(self):
        words, times = (self.vocab_size, self.features), (self.memory_size, self.features)
        count = self.num_hops + 1 if self.adjacent else 2  # tables: keys and values, shared or not
        self.embeddings = [self.param(f"embedding_{i}", INIT, words) for i in range(count)]
        self.times = [self.param(f"time_{i}", INIT, times) for i in range(count)]
        if not self.adjacent:
            self.question = self.param("question", INIT, words)
            self.between = self.param("between", INIT, (self.features, self.features))
            self.out = self.param("out", INIT, words)
        self.attention = Attention(score=self.score, normalize=self.normalize)
        self.linear = Attention(score=self.score, normalize=linear)

    def answer(self, source: Int[Array, "b s"], train: bool = False, step: Int[Array, ""] | int = 0) -> Answered:
        """log p of every word as the answer, and the weights of each hop."""
        story = find_sentences(source, self.memory_size)
        memories, u = self.embed(source, story, train)
        # An empty slot has neither words nor an age: its memories are zero.
        mask, hops = None if self.attend_empty else story.mask(), []
        for hop in range(self.num_hops):
            keys, values = (memories[hop], memories[hop + 1]) if self.adjacent else memories
            memory = self.attention.prepare(keys, values, mask)
            attended = self.attention(u[:, None], memory)
            context = attended.context[:, 0]
            if train and self.linear_steps:
                context = jnp.where(step < self.linear_steps, self.linear(u[:, None], memory).context[:, 0], context)
            u = (u if self.adjacent else u @ self.between) + context
            u = nn.relu(u) if self.nonlinear else u
            hops.append(attended.weights[:, 0])
        logits = u @ (self.embeddings[-1] if self.adjacent else self.out).T
        return Answered(jax.nn.log_softmax(logits), jnp.stack(hops, axis=1))

    def losses(
        self, source: Int[Array, "b s"], answers: Int[Array, "b"], evidence: Int[Array, "b e"], step: Int[Array, ""]
    ) -> tuple[Float[Array, "b"], Float[Array, "b"]]:
        """Training: the negative log-likelihood of the answers. The evidence is not looked at."""
        log_probs = self.answer(source, train=True, step=step).log_probs
        nll = -jnp.take_along_axis(log_probs, answers[:, None], axis=-1)[:, 0]
        return nll, nll

    def embed(
        self, source: Int[Array, "b s"], story: Story, train: bool
    ) -> tuple[list[Float[Array, "b n d"]], Float[Array, "b d"]]:
        """(the statements by each table, the question)."""
        noisy = train and self.noise > 0
        rng = self.make_rng("sample") if noisy else None
        ages = noisy_ages(rng, story, self.noise) if noisy else story.age()
        onehot = jax.nn.one_hot(jnp.where(story.mask(), ages, -1), story.size)
        # All tables side by side: [v + n, t d].
        tables = jnp.concatenate([jnp.concatenate(part, axis=1) for part in (self.embeddings, self.times)])
        weights = [jnp.ones(source.shape)] + ([centred_position(story)] if self.position_encoding else [])
        counts, asked = bags(source, story, jnp.stack(weights, axis=-1), self.vocab_size)
        memories = rows_times(jnp.concatenate([counts[..., 0], onehot], axis=-1), tables)
        table = self.embeddings[0] if self.adjacent else self.question
        question = asked[..., 0] @ table
        if self.position_encoding:
            feature = centred_feature(self.features)
            memories += jnp.tile(feature, len(self.embeddings)) * rows_times(counts[..., 1], tables[: self.vocab_size])
            question += feature * (asked[..., 1] @ table)
        return jnp.split(memories, len(self.embeddings), axis=-1), question


def rows_times(rows: Float[Array, "b n v"], table: Float[Array, "v d"]) -> Float[Array, "b n d"]:
    """rows @ table, two axes of rows laid out as one: the faster layout under vmap over tables."""
    return (rows.reshape(-1, rows.shape[-1]) @ table).reshape(*rows.shape[:-1], -1)


def noisy_ages(rng: PRNGKeyArray, story: Story, noise: float) -> Int[Array, "b n"]:
    """The age of each statement when empty memories stand between them, at most that of the memory's last slot.

    Of a story with n statements up to ceil(noise n) are put in, each number of them and each place as likely.
    """
    ages = story.age()
    most = jnp.ceil(noise * story.count).astype(jnp.int32)
    blanks = math.ceil(noise * story.size)
    number, place = jax.random.split(rng)
    number = jax.random.randint(number, most.shape, 0, most + 1)
    # Empty memory m stands after the newest place[m] statements.
    place = jax.random.randint(place, (len(most), blanks), 0, story.count[:, None] + 1)
    put_in = jnp.arange(blanks) < number[:, None]
    older = ages[:, :, None] >= place[:, None, :]
    return jnp.minimum(ages + jnp.sum(older & put_in[:, None, :], axis=-1), story.size - 1)
