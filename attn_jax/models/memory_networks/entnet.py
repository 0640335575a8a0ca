"""Recurrent entity networks: a fixed set of slots, each for one entity, updated by every statement.

    g_j  = sigmoid(s . (h_j + w_j) + b_j)          the gate: does statement s concern slot j, of key w_j?
    h_j' = h_j + g_j prelu(U h_j + V w_j + W s),   then divided by its length
    p_j  = softmax_j(question . h_j),  u = sum_j p_j h_j,  answer = softmax(R prelu(question + H u))

Henaff 2017 (arXiv 1612.03969), section 2. The gates and p are both attention weights: the gates from a statement to the
slots that it writes, p from the question to the slots that it reads. `entity_network` builds the published network.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Attention, build_attention
from attn_jax.attention.dropout import Dropout
from attn_jax.attention.scores import Dot
from attn_jax.attention.scores.base import unit
from attn_jax.models.memory_networks.base import Answer, StoryModule, find_sentences
from attn_jax.models.memory_networks.episodes import LOGISTIC
from attn_jax.models.memory_networks.sentence_encoders import MaskedBag
from attn_jax.outputs.base import OutputLayer, sampling_rng
from attn_jax.outputs.full import FullSoftmax
from attn_jax.types import Array, Bool, Float, Int

INIT = nn.initializers.normal(0.1)


class PReLU(nn.Module, kw_only=True):
    """x where x > 0, else slope * x, with one slope per feature, initialized to one (the identity)."""

    features: int

    def setup(self):
        self.slope = self.param("slope", nn.initializers.ones, (self.features,), jnp.float32)

    def __call__(self, x: Float[Array, "... d"]) -> Float[Array, "... d"]:
        return jnp.where(x > 0, x, jnp.broadcast_to(self.slope, x.shape) * x)


class EntityCell(nn.Module, kw_only=True):
    """Writes one statement into all slots. Products that do not depend on the slots are given as inputs."""

    write: Attention
    features: int

    def setup(self):
        self.old = nn.Dense(self.features, use_bias=False, kernel_init=INIT)
        self.activation = PReLU(features=self.features)

    def __call__(
        self,
        slots: Float[Array, "b m d"],
        statement: tuple[Float[Array, "b d"], Float[Array, "b m"], Float[Array, "b d"], Bool[Array, "b"]],
        projected_keys: Float[Array, "#b m d"],
    ) -> tuple[Float[Array, "b m d"], Float[Array, "b m"]]:
        """Returns the new slots and the gates.

        Args:
            slots: h_j.
            statement: s, s . w_j + b_j, W s, and a mask that is False for an empty memory slot.
            projected_keys: V w_j.
        """
        vector, bias, candidate, is_statement = statement
        memory = self.write.prepare(slots, key_mask=jnp.broadcast_to(is_statement[:, None], slots.shape[:-1]))
        gates = self.write(vector[:, None], memory, bias=bias[:, None]).weights[:, 0]
        change = self.activation(self.old(slots) + projected_keys + candidate[:, None])
        # Without a statement the gates are zero and the slots, which have unit length, do not change.
        return unit(slots + gates[..., None] * change), gates


class EntityNetwork(StoryModule, kw_only=True):
    """An entity network over the last `memory_size` statements of a story; each slot starts as its key.

    Keys are learned. The first ones can be tied to the embeddings of the words `entities`, such as the names of people
    (section 3). The hops of its answers are the gates: how much each statement changed each slot.
    """

    vocab_size: int
    output: OutputLayer
    memory_size: int  # largest number of statements
    features: int = 100
    num_slots: int = 20
    write: Attention  # from statements to slots; its weights need not sum to one
    read: Attention  # from the question to slots
    entities: tuple[int, ...] = ()  # word ids
    sentence_size: int = 16  # word positions of a sentence with a learned mask
    shortest: int = 1  # tokens of the shortest statement, its period included
    dropout: float = 0.0  # of the statements and the question

    def setup(self):
        self.encoder = MaskedBag(
            vocab_size=self.vocab_size,
            features=self.features,
            sentence_size=self.sentence_size,
            name="reader",  # the name of its parameters
        )
        self.free_keys = self.param("keys", INIT, (self.num_slots - len(self.entities), self.features), jnp.float32)
        self.gate_bias = self.param("gate_bias", nn.initializers.zeros, (self.num_slots,), jnp.float32)
        self.cell = EntityCell(write=self.write, features=self.features)
        self.key = nn.Dense(self.features, use_bias=False, kernel_init=INIT)
        self.statement = nn.Dense(self.features, use_bias=False, kernel_init=INIT)
        self.hop = nn.Dense(self.features, use_bias=False, kernel_init=INIT)
        self.activation = PReLU(features=self.features)
        self.out = self.output.clone(parent=self, name="out")
        self.drop = Dropout(rate=self.dropout)

    def slots(self, source: Int[Array, "b s"], train: bool = False):
        """Returns the slots after the last statement [b, m, d], the gates [b, m, n] and the question [b, d]."""
        layout = find_sentences(source, self.memory_size, self.shortest)
        statements, question = self.encoder(source, layout, train=train)
        statements = self.drop(statements, deterministic=not train)
        question = self.drop(question, deterministic=not train)
        tied = self.encoder.words(jnp.array(self.entities, jnp.int32))
        keys = jnp.concatenate([tied, self.free_keys])
        inputs = (
            statements,
            statements @ keys.T + self.gate_bias[None, None],
            self.statement(statements),
            layout.mask(),
        )
        projected_keys = self.key(keys)[None]
        scan = nn.scan(
            lambda cell, slots, statement: cell(slots=slots, statement=statement, projected_keys=projected_keys),
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=0,
            out_axes=0,
        )
        slots = jnp.broadcast_to(keys, (len(source), *keys.shape))
        slots, gates = scan(self.cell, slots, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), inputs))
        return slots, jnp.transpose(gates, (1, 2, 0)), question

    def hidden(self, source: Int[Array, "b s"], train: bool = False):
        """Returns the hidden state of the answer [b, d], and the gates of each slot over the statements."""
        slots, gates, question = self.slots(source, train)
        context = self.read(question[:, None], self.read.prepare(slots), train=train).context[:, 0]
        return self.activation(question + self.hop(context)), gates

    def answer(self, source: Int[Array, "b s"], train: bool = False) -> Answer:
        """Log-probabilities of all answers, and the gates of each slot over the statements."""
        hidden, gates = self.hidden(source, train)
        return Answer(log_probs=self.out.log_probs(hidden), hops=gates)

    def losses(
        self,
        source: Int[Array, "b s"],
        answers: Int[Array, "b"],
        evidence: Int[Array, "b e"],
        step: Int[Array, ""] | int,
    ) -> tuple[Float[Array, "b"], Float[Array, "b"]]:
        """Returns the training loss and -log p(answer); the evidence is not used."""
        hidden, _ = self.hidden(source, train=True)
        return self.out.loss(hidden, answers, rng=sampling_rng(self))


def entity_network(
    *, vocab_size: int, output: OutputLayer | None = None, read: Attention | None = None, **fields: Any
) -> EntityNetwork:
    """The network as published: sigmoid gates, and by default softmax of the dot product to read.

    Args:
        vocab_size: number of words of stories and answers.
        output: output layer; None: the full softmax.
        read: attention of the question to the slots; None: softmax of the dot product.
        fields: the other fields of EntityNetwork.
    """
    return EntityNetwork(
        vocab_size=vocab_size,
        output=output or FullSoftmax(vocab_size=vocab_size, group="", use_bias=False, kernel_init=INIT),
        write=build_attention(score=Dot(), normalize=LOGISTIC),
        read=read or build_attention(score=Dot()),
        **fields,
    )
