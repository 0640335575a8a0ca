"""End-to-end memory networks (Sukhbaatar 2015, arXiv 1503.08895): several hops of soft attention over a story.

    m_i = sum_j A x_ij + T_A(age of i)      c_i = sum_j C x_ij + T_C(age of i)      u = sum_j B q_j
    o = sum_i softmax(u . m)_i c_i          u <- u + o                              answer = softmax(W u)

so a hop is attention with score dot, keys m and values c. In the terms of Weston 2015: I is the sum over the words, G
stores each statement in a slot, O are the hops, R is the softmax.

Adjacent tying: the values of a hop are the keys of the next hop, B is the table of the first keys, W the table of the
last values. Layer-wise tying: all hops share their keys and values, and u <- H u + o.

The authors' code also reads the empty slots of the memory, with m = c = 0, so a hop without a relevant statement can
attend to them. The paper does not mention this.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Attention
from attn_jax.layers.rows import RowTable
from attn_jax.models.memory_networks.base import (
    Answer,
    StoryLayout,
    StoryModule,
    bags,
    centred_feature,
    centred_position,
    find_sentences,
)
from attn_jax.outputs.base import OutputLayer, sampling_rng
from attn_jax.types import Array, Float, Int, PRNGKeyArray

INIT = nn.initializers.normal(0.1)


class MemN2N(StoryModule, kw_only=True):
    """An end-to-end memory network with `num_hops` hops.

    Raises:
        ValueError: several attentions are given, but not one for each hop.
    """

    vocab_size: int
    output: OutputLayer  # `tied`: it shares `words`
    features: int
    num_hops: int
    memory_size: int  # largest number of statements in the memory
    attention: Attention | tuple[Attention, ...]  # shared by all hops, or one for each hop
    adjacent: bool = True  # adjacent tying; False: layer-wise tying
    position_encoding: bool = True  # False: bag of words
    nonlinear: bool = False  # u <- relu(u + o), used by the paper for the data set of 10,000 questions
    attend_empty: bool = False  # False: empty slots are masked
    noise: float = 0.0  # empty memories inserted in training, at most this share of the statements, rounded up (4.1)
    linear_steps: int = 0  # linear start: training steps without the normalizer; evaluation always has it (section 4.2)

    def __post_init__(self):
        if isinstance(self.attention, tuple) and len(self.attention) != self.num_hops:
            raise ValueError(f"{len(self.attention)} attentions for {self.num_hops} hops; expected one for each")
        super().__post_init__()

    def setup(self):
        words, times = (self.vocab_size, self.features), (self.memory_size, self.features)
        count = self.num_hops + 1 if self.adjacent else 2  # tables: keys and values, shared or not
        self.embeddings = [self.param(f"embedding_{i}", INIT, words, jnp.float32) for i in range(count)]
        self.times = [self.param(f"time_{i}", INIT, times, jnp.float32) for i in range(count)]
        if not self.adjacent:
            self.question = self.param("question", INIT, words, jnp.float32)
            self.between = self.param("between", INIT, (self.features, self.features), jnp.float32)
            self.out = self.param("out", INIT, words, jnp.float32)

    def answer(self, source: Int[Array, "b s"], train: bool = False, step: Int[Array, ""] | int = 0) -> Answer:
        """Log-probabilities of all answers, and the weights of each hop."""
        hidden, hops = self.read(source, train, step)
        return Answer(log_probs=self.output.log_probs(hidden, self.words), hops=hops)

    def read(self, source: Int[Array, "b s"], train: bool = False, step: Int[Array, ""] | int = 0):
        """Returns the hidden state of the answer [b, d], and the weights of each hop [b, h, n]."""
        layout = find_sentences(source, self.memory_size)
        memories, u = self.embed(source, layout, train=train)
        # The keys and values of an empty slot are zero: it has neither words nor an age.
        key_mask, hops = None if self.attend_empty else layout.mask(), []
        attentions = self.attention if isinstance(self.attention, tuple) else (self.attention,) * self.num_hops
        for hop, attention in enumerate(attentions):
            keys, values = (memories[hop], memories[hop + 1]) if self.adjacent else memories
            memory = attention.prepare(keys, values, key_mask=key_mask)
            attended = attention(u[:, None], memory)
            context = attended.context[:, 0]
            if train and self.linear_steps:
                context = jnp.where(step < self.linear_steps, attention.linear(u[:, None], memory)[:, 0], context)
            u = (u if self.adjacent else u @ self.between) + context
            u = nn.relu(u) if self.nonlinear else u
            hops.append(attended.weights[:, 0])
        return u, jnp.stack(hops, axis=1)

    @property
    def words(self) -> RowTable:
        """Vectors of the answers: the last table of values, or a separate table."""
        name = f"embedding_{self.num_hops}" if self.adjacent else "out"
        return RowTable(self, name, self.embeddings[-1] if self.adjacent else self.out)

    def losses(
        self, source: Int[Array, "b s"], answers: Int[Array, "b"], evidence: Int[Array, "b e"], step: Int[Array, ""]
    ) -> tuple[Float[Array, "b"], Float[Array, "b"]]:
        """Returns the training loss and -log p(answer); the evidence is not used."""
        hidden, _ = self.read(source, train=True, step=step)
        return self.output.loss(hidden, answers, self.words, rng=sampling_rng(self))

    def embed(
        self, source: Int[Array, "b s"], layout: StoryLayout, train: bool
    ) -> tuple[list[Float[Array, "b n d"]], Float[Array, "b d"]]:
        """Returns the memory vectors of the statements, one array per table, and the vector of the question."""
        ages = noisy_ages(self.make_rng("sample"), layout, self.noise) if train and self.noise > 0 else layout.age()
        onehot = jax.nn.one_hot(jnp.where(layout.mask(), ages, -1), layout.size, dtype=jnp.float32)
        # All tables side by side, words above ages: [v + n, t d].
        tables = jnp.concatenate([jnp.concatenate(part, axis=1) for part in (self.embeddings, self.times)])
        weights = [jnp.ones(source.shape, jnp.float32)] + ([centred_position(layout)] if self.position_encoding else [])
        counts, question_counts = bags(source, layout, jnp.stack(weights, axis=-1), self.vocab_size)
        memories = rows_times(jnp.concatenate([counts[..., 0], onehot], axis=-1), tables)
        table = self.embeddings[0] if self.adjacent else self.question
        question = question_counts[..., 0] @ table
        if self.position_encoding:
            feature = centred_feature(self.features)
            at_places = rows_times(counts[..., 1], tables[: self.vocab_size])
            memories += jnp.tile(feature, len(self.embeddings))[None, None] * at_places
            question += feature[None] * (question_counts[..., 1] @ table)
        return jnp.split(memories, len(self.embeddings), axis=-1), question


def rows_times(rows: Float[Array, "b n v"], table: Float[Array, "v d"]) -> Float[Array, "b n d"]:
    """rows @ table, with the first two axes of rows merged, which is faster under vmap over tables."""
    return (rows.reshape(-1, rows.shape[-1]) @ table).reshape(*rows.shape[:-1], -1)


def noisy_ages(rng: PRNGKeyArray, layout: StoryLayout, noise: float) -> Int[Array, "b n"]:
    """Ages of the statements after random empty memories are inserted between them, at most layout.size - 1.

    For n statements, the number of insertions is uniform on 0 ... ceil(noise n); each place of insertion is uniform.
    """
    ages = layout.age()
    most = jnp.ceil(noise * layout.count).astype(jnp.int32)
    blanks = math.ceil(noise * layout.size)
    number_rng, place_rng = jax.random.split(rng)
    number = jax.random.randint(number_rng, most.shape, 0, most + 1)
    # Empty memory m is inserted after the newest place[m] statements.
    place = jax.random.randint(place_rng, (len(most), blanks), 0, layout.count[:, None] + 1)
    is_inserted = jnp.arange(blanks)[None] < number[:, None]
    is_older = ages[:, :, None] >= place[:, None, :]
    return jnp.minimum(ages + jnp.sum(is_older & is_inserted[:, None, :], axis=-1), layout.size - 1)
