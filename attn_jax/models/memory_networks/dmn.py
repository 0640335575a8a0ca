"""Dynamic memory networks: a question looks over the facts of a story several times, and remembers what it saw.

    facts, question = reader(story)
    memory_0 = question
    memory_i = update(memory_{i-1}, episode(facts, gates of [question; memory_{i-1}]), question)
    answer   = softmax(W [memory; question] + b)

`kumar2016` (DMN) and `xiong2016` (DMN+) choose the parts; see readers.py and episodes.py for most of them.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Attention
from attn_jax.attention.normalizers.base import softmax
from attn_jax.layers.rnn import CELLS, Recurrence
from attn_jax.models.memory_networks.base import Answered, find_sentences
from attn_jax.models.memory_networks.episodes import (
    EPISODE_CELLS,
    GatedEpisode,
    GateNetwork,
    SoftEpisode,
    each_alone,
    logistic,
    one_of_all,
)
from attn_jax.models.memory_networks.sentence_encoders import FusionReader, WordReader
from attn_jax.outputs.loss import nll_and_correct
from attn_jax.types import Array, Float, Int


class GRUUpdate(Recurrence):
    """memory' = GRU(context, memory), the same in every pass. Kumar 2016, section 2.3."""

    def __call__(
        self, memory: Float[Array, "b d"], context: Float[Array, "b d"], question: Float[Array, "b d"], index: int
    ) -> Float[Array, "b d"]:
        return self.step((memory,), self.project(context))[0]


class ReLUUpdate(nn.Module):
    """memory' = relu(W_i [memory; context; question] + b_i), with parameters of their own for each pass i.

    Xiong 2016, equation 13.
    """

    features: int
    num_passes: int

    def setup(self):
        self.layers = [nn.Dense(self.features) for _ in range(self.num_passes)]

    def __call__(
        self, memory: Float[Array, "b d"], context: Float[Array, "b d"], question: Float[Array, "b d"], index: int
    ) -> Float[Array, "b d"]:
        return nn.relu(self.layers[index](jnp.concatenate([memory, context, question], axis=-1)))


class DynamicMemoryNetwork(nn.Module, kw_only=True):
    """What both share: passes, answer, losses.

    The loss is -log p(answer) + gate_weight * sum over passes i of gate_loss(scores of pass i, slot of the i-th
    statement of the evidence). For the first `warmup_steps` steps only the gates are trained, since a memory that
    reads the wrong facts teaches the answer nothing (Kumar 2016, section 2.6).
    """

    vocab_size: int
    memory_size: int
    reader: nn.Module
    attention: Attention
    episode: nn.Module
    update: nn.Module
    num_passes: int
    shortest: int = 1  # tokens of the shortest statement, its period included
    dropout: float = 0.0  # of what the answer is made from
    gate_weight: float = 0.0
    gate_loss: Callable = one_of_all
    warmup_steps: int = 0

    def setup(self):
        self.out = nn.Dense(self.vocab_size)
        self.drop = nn.Dropout(self.dropout)

    def read(self, source: Int[Array, "b s"], train: bool = False):
        """(log_probs [b, v], the gates of each pass, their scores: lists of [b, n])."""
        story = find_sentences(source, self.memory_size, self.shortest)
        facts, question = self.reader(source, story, train)
        mask = story.mask()
        memory, prepared = self.attention.prepare(facts, mask=mask), self.episode.prepare(facts)
        state, gates, scores = question, [], []
        for index in range(self.num_passes):
            query = jnp.concatenate([question, state], axis=-1)[:, None]
            attended = self.attention(query, memory, train=train)
            gates.append(attended.weights[:, 0])
            scores.append(self.attention.score(query, memory.keys)[:, 0])  # under jit the ones computed above
            state = self.update(state, self.episode(prepared, attended, mask), question, index)
        state = self.drop(jnp.concatenate([state, question], axis=-1), deterministic=not train)
        return jax.nn.log_softmax(self.out(state)), gates, scores

    def answer(self, source: Int[Array, "b s"], train: bool = False) -> Answered:
        """log p of each answer; the gates of each pass."""
        log_probs, gates, _ = self.read(source, train)
        return Answered(log_probs, jnp.stack(gates, axis=1))

    def losses(
        self,
        source: Int[Array, "b s"],
        answers: Int[Array, "b"],
        evidence: Int[Array, "b e"],
        step: Int[Array, ""] | int,
    ) -> tuple[Float[Array, "b"], Float[Array, "b"]]:
        """(what is minimized, -log p(answer))."""
        log_probs, _, scores = self.read(source, train=True)
        nll, _ = nll_and_correct(log_probs, answers)
        loss = jnp.where(step < self.warmup_steps, 0.0, nll)
        if self.gate_weight:
            story = find_sentences(source, self.memory_size, self.shortest)
            slots, mask = story.slot_of(evidence), story.mask()
            gates = [self.gate_loss(s, slot, mask) for s, slot in zip(scores, slots.T, strict=False)]
            loss += self.gate_weight * sum(gates)
        return loss, nll


def kumar2016(
    *,
    vocab_size: int,
    memory_size: int,
    features: int = 40,
    embedding_size: int = 40,
    gate_size: int = 40,
    num_passes: int = 3,
    attention: Attention | None = None,
    soft: bool = False,
    question_size: int = 16,
    shortest: int = 1,
    fact_dropout: float = 0.0,
    dropout: float = 0.0,
    gate_weight: float = 0.0,
    warmup_steps: int = 0,
) -> DynamicMemoryNetwork:
    """DMN of Kumar 2016 (arXiv 1506.07285). The answer is one word, so its GRU is a softmax layer here.

    Args:
        vocab_size: words of stories and answers.
        memory_size: the last statements kept.
        features: width of every state.
        embedding_size: width of a word.
        gate_size: hidden layer of the gate network.
        num_passes: how often the facts are looked over.
        attention: its weights are the gates; None: the gate network as published, each gate a sigmoid of its own.
        soft: an episode is the weighted sum of the facts, not the state of a GRU over them.
        question_size: words of a question that are read, its last ones.
        shortest: tokens of the shortest statement there can be, its period included; the more, the fewer slots are
            worked on for short sources.
        fact_dropout, dropout: rates, of the embeddings and of what the answer is made from.
        gate_weight, warmup_steps: see DynamicMemoryNetwork.
    """
    attention = attention or Attention(GateNetwork(gate_size, whole=True), logistic)
    return DynamicMemoryNetwork(
        vocab_size=vocab_size,
        memory_size=memory_size,
        reader=WordReader(vocab_size, features, embedding_size, question_size, fact_dropout),
        attention=attention,
        episode=SoftEpisode() if soft else GatedEpisode(cell=EPISODE_CELLS["gated_gru"], features=features),
        update=GRUUpdate(cell=CELLS["gru"], features=features),
        num_passes=num_passes,
        shortest=shortest,
        dropout=dropout,
        gate_weight=gate_weight,
        gate_loss=loss_of(attention),
        warmup_steps=warmup_steps,
    )


def xiong2016(
    *,
    vocab_size: int,
    memory_size: int,
    features: int = 80,
    gate_size: int = 80,
    num_passes: int = 3,
    attention: Attention | None = None,
    soft: bool = False,
    question_size: int = 16,
    shortest: int = 1,
    fact_dropout: float = 0.0,
    dropout: float = 0.0,
    gate_weight: float = 0.0,
    warmup_steps: int = 0,
) -> DynamicMemoryNetwork:
    """DMN+ of Xiong 2016 (arXiv 1603.01417), whose gates sum to one. A word is as wide as a state.

    The arguments are those of `kumar2016`; `fact_dropout` is of the vectors of the statements.
    """
    attention = attention or Attention(GateNetwork(gate_size), softmax)
    return DynamicMemoryNetwork(
        vocab_size=vocab_size,
        memory_size=memory_size,
        reader=FusionReader(vocab_size, features, question_size, fact_dropout),
        attention=attention,
        episode=SoftEpisode() if soft else GatedEpisode(cell=EPISODE_CELLS["attention_gru"], features=features),
        update=ReLUUpdate(features, num_passes),
        num_passes=num_passes,
        shortest=shortest,
        dropout=dropout,
        gate_weight=gate_weight,
        gate_loss=loss_of(attention),
        warmup_steps=warmup_steps,
    )


def loss_of(attention: Attention) -> Callable:
    """The likelihood of gates: of sigmoids, or else of a softmax of the scores, whatever normalizes them in reading."""
    return each_alone if attention.normalize is logistic else one_of_all
