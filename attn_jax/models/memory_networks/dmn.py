"""Dynamic memory networks: several passes over the facts of a story, each with gates that depend on the previous one.

    facts, question = sentence_encoder(story)
    memory_0 = question
    memory_i = update(memory_{i-1}, episode(facts, gates of [question; memory_{i-1}]), question)
    answer   = softmax(W [memory; question] + b)

`dmn` (Kumar 2016) and `dmn_plus` (Xiong 2016) build the published networks from the parts of sentence_encoders.py and
episodes.py.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention import Attention, build_attention
from attn_jax.attention.dropout import Dropout
from attn_jax.attention.normalizers.base import softmax
from attn_jax.layers.rnn import CELLS, Recurrence
from attn_jax.models.memory_networks.base import Answer, StoryModule, find_sentences
from attn_jax.models.memory_networks.episodes import (
    EPISODE_CELLS,
    LOGISTIC,
    GatedEpisode,
    GateNetwork,
    SoftEpisode,
    gate_loss_of,
)
from attn_jax.models.memory_networks.sentence_encoders import FusionEncoder, WordEncoder
from attn_jax.outputs.base import OutputLayer, sampling_rng
from attn_jax.outputs.full import FullSoftmax
from attn_jax.types import Array, Float, Int


class GRUUpdate(Recurrence, kw_only=True):
    """memory' = GRU(context, memory), with the same parameters in every pass. Kumar 2016, section 2.3."""

    def __call__(
        self, memory: Float[Array, "b d"], context: Float[Array, "b d"], question: Float[Array, "b d"], index: int
    ) -> Float[Array, "b d"]:
        return self.step((memory,), self.project(context))[0]


class ReLUUpdate(nn.Module, kw_only=True):
    """memory' = relu(W_i [memory; context; question] + b_i), with separate parameters for each pass i.

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


class DynamicMemoryNetwork(StoryModule, kw_only=True):
    """A dynamic memory network with any encoder, gates, episode and update.

    loss = -log p(answer) + gate_weight * sum over passes i of gate_loss(scores of pass i, slot of the i-th statement of
    the evidence). During the first `warmup_steps` steps -log p(answer) is left out and only the gates are trained
    (Kumar 2016, section 2.6), since wrong facts are not informative about the answer.
    """

    output: OutputLayer
    memory_size: int  # largest number of statements in the memory
    sentence_encoder: nn.Module
    attention: Attention  # its weights are the gates
    episode: nn.Module
    update: nn.Module
    num_passes: int = 3
    shortest: int = 1  # tokens of the shortest statement, its period included; a larger number avoids empty slots
    dropout: float = 0.0  # of the input of the answer layer
    gate_weight: float = 0.0
    warmup_steps: int = 0

    def setup(self):
        self.encoder = self.sentence_encoder.clone(parent=self, name="reader")  # the name of its parameters
        self.out = self.output.clone(parent=self, name="out")
        self.drop = Dropout(rate=self.dropout)

    @property
    def gate_loss(self) -> Callable:
        """Loss of the scores of one pass, see episodes.py."""
        return gate_loss_of(self.attention.normalize)

    def read(self, source: Int[Array, "b s"], train: bool = False):
        """Returns (hidden state of the answer [b, d], gates of each pass, scores of each pass), the last two [b, n]."""
        layout = find_sentences(source, self.memory_size, self.shortest)
        facts, question = self.encoder(source, layout, train=train)
        mask = layout.mask()
        memory = self.attention.prepare(facts, key_mask=mask)
        prepared = self.episode.prepare(facts)
        state, gates, scores = question, [], []
        for index in range(self.num_passes):
            query = jnp.concatenate([question, state], axis=-1)[:, None]
            attended = self.attention(query, memory, train=train)
            gates.append(attended.weights[:, 0])
            if self.gate_weight:
                scores.append(self.attention.score(query, memory.keys)[:, 0])  # free under jit: computed above
            context = self.episode(prepared=prepared, attended=attended, mask=mask)
            state = self.update(memory=state, context=context, question=question, index=index)
        state = self.drop(jnp.concatenate([state, question], axis=-1), deterministic=not train)
        return state, gates, scores

    def answer(self, source: Int[Array, "b s"], train: bool = False) -> Answer:
        """Log-probabilities of all answers, and the gates of each pass."""
        hidden, gates, _ = self.read(source, train)
        return Answer(log_probs=self.out.log_probs(hidden), hops=jnp.stack(gates, axis=1))

    def losses(
        self,
        source: Int[Array, "b s"],
        answers: Int[Array, "b"],
        evidence: Int[Array, "b e"],
        step: Int[Array, ""] | int,
    ) -> tuple[Float[Array, "b"], Float[Array, "b"]]:
        """Returns the training loss and -log p(answer)."""
        hidden, _, scores = self.read(source, train=True)
        loss, nll = self.out.loss(hidden, answers, rng=sampling_rng(self))
        loss = jnp.where(step < self.warmup_steps, 0.0, loss)
        if self.gate_weight:
            layout = find_sentences(source, self.memory_size, self.shortest)
            slots, mask = layout.slot_of(evidence), layout.mask()
            gates = [self.gate_loss(s, slot, mask) for s, slot in zip(scores, slots.T, strict=False)]
            loss += self.gate_weight * sum(gates)
        return loss, nll


def dmn(
    *,
    vocab_size: int,
    output: OutputLayer | None = None,
    features: int = 40,
    embedding_size: int = 40,
    gate_size: int = 40,
    attention: Attention | None = None,
    soft: bool = False,
    question_size: int = 16,
    fact_dropout: float = 0.0,
    **fields: Any,
) -> DynamicMemoryNetwork:
    """DMN of Kumar 2016 (arXiv 1506.07285). Answers are one word, so a softmax layer replaces its answer GRU.

    Args:
        vocab_size: number of words of stories and answers.
        output: output layer; None: the full softmax.
        features: width of every state.
        embedding_size: width of a word.
        gate_size: hidden layer of the gate network.
        attention: its weights are the gates; None: the gate network as published, with independent sigmoids.
        soft: an episode is the weighted sum of the facts instead of the last state of a gated GRU over them.
        question_size: largest number of words of a question; longer ones are cut to their last words.
        fact_dropout: dropout rate of the embeddings.
        fields: the other fields of DynamicMemoryNetwork.
    """
    gate_network = GateNetwork(features=gate_size, all_terms=True)
    return DynamicMemoryNetwork(
        output=output or FullSoftmax(vocab_size=vocab_size, group=""),
        sentence_encoder=WordEncoder(
            vocab_size=vocab_size,
            features=features,
            embedding_size=embedding_size,
            question_size=question_size,
            dropout=fact_dropout,
        ),
        attention=attention or build_attention(score=gate_network, normalize=LOGISTIC),
        episode=SoftEpisode() if soft else GatedEpisode(cell=EPISODE_CELLS["gated_gru"], features=features),
        update=GRUUpdate(cell=CELLS["gru"], features=features),
        **fields,
    )


def dmn_plus(
    *,
    vocab_size: int,
    output: OutputLayer | None = None,
    features: int = 80,
    gate_size: int = 80,
    num_passes: int = 3,
    attention: Attention | None = None,
    soft: bool = False,
    question_size: int = 16,
    fact_dropout: float = 0.0,
    **fields: Any,
) -> DynamicMemoryNetwork:
    """DMN+ of Xiong 2016 (arXiv 1603.01417), with gates that sum to one. Words and states have one width.

    The arguments are those of `dmn`, without `embedding_size`; `fact_dropout` applies to the vectors of the statements.
    """
    return DynamicMemoryNetwork(
        output=output or FullSoftmax(vocab_size=vocab_size, group=""),
        sentence_encoder=FusionEncoder(
            vocab_size=vocab_size, features=features, question_size=question_size, dropout=fact_dropout
        ),
        attention=attention or build_attention(score=GateNetwork(features=gate_size), normalize=softmax),
        episode=SoftEpisode() if soft else GatedEpisode(cell=EPISODE_CELLS["attention_gru"], features=features),
        update=ReLUUpdate(features=features, num_passes=num_passes),
        num_passes=num_passes,
        **fields,
    )
