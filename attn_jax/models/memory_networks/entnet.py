"""Recurrent entity networks: slots that each follow one thing in the world, written by every statement.

    g_j  = sigmoid(s . (h_j + w_j) + b_j)          the gate: does statement s concern slot j, of key w_j?
    h_j' = h_j + g_j prelu(U h_j + V w_j + W s),   then divided by its length
    p_j  = softmax_j(question . h_j),  u = sum_j p_j h_j,  answer = softmax(R prelu(question + H u))

Henaff 2017 (arXiv 1612.03969), section 2. Both the gates and p are attention: of a statement to the slots that it
writes, and of the question to those that it reads.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Attention
from attn_jax.attention.scores import Dot
from attn_jax.models.memory_networks.base import Answered, find_sentences
from attn_jax.models.memory_networks.episodes import independent_sigmoid
from attn_jax.models.memory_networks.sentence_encoders import MaskedBag
from attn_jax.outputs.loss import nll_and_correct
from attn_jax.types import Array, Bool, Float, Int

INIT = nn.initializers.normal(0.1)


class PReLU(nn.Module):
    """x where it is positive, slope * x elsewhere; one slope for each feature, from one: at first it does nothing."""

    features: int

    def setup(self):
        self.slope = self.param("slope", nn.initializers.ones, (self.features,))

    def __call__(self, x: Float[Array, "... d"]) -> Float[Array, "... d"]:
        return jnp.where(x > 0, x, self.slope * x)


class EntityCell(nn.Module):
    """One statement written into all slots; what does not depend on the slots comes computed."""

    write: Attention
    features: int

    def setup(self):
        self.old = nn.Dense(self.features, use_bias=False, kernel_init=INIT)
        self.activation = PReLU(self.features)

    def __call__(
        self,
        slots: Float[Array, "b m d"],
        statement: tuple[Float[Array, "b d"], Float[Array, "b m"], Float[Array, "b d"], Bool[Array, "b"]],
        of_keys: Float[Array, "#b m d"],
    ) -> tuple[Float[Array, "b m d"], Float[Array, "b m"]]:
        """(slots', gates). `statement` is s, s . w_j + b_j, W s, and whether there is one; `of_keys` is V w_j."""
        vector, bias, candidate, real = statement
        memory = self.write.prepare(slots, mask=jnp.broadcast_to(real[:, None], slots.shape[:-1]))
        gates = self.write(vector[:, None], memory, bias=bias[:, None]).weights[:, 0]
        change = self.activation(self.old(slots) + of_keys + candidate[:, None])
        # Where there is no statement the gates are zero, and the length is one already.
        return normalized(slots + gates[..., None] * change), gates


def normalized(x: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """x / |x|, and zero for zero."""
    return x * jax.lax.rsqrt(jnp.maximum(jnp.sum(jnp.square(x), axis=-1, keepdims=True), 1e-12))


class EntityNetwork(nn.Module, kw_only=True):
    """The network over the last `memory_size` statements of a story, with `num_slots` slots that begin as their keys.

    Keys are learned. The first of them can be tied to the vectors of the words `entities`: a slot then is told whom
    it follows (section 3: names of the people and things). What `answer` returns as hops are the gates: how much
    each slot took from each statement.
    """

    vocab_size: int
    memory_size: int
    features: int
    num_slots: int
    write: Attention  # of statements to slots; its weights need not sum to one
    read: Attention  # of the question to slots
    entities: tuple[int, ...] = ()  # ids of words
    sentence_size: int = 16  # words of a sentence that have a mask of their own
    shortest: int = 1  # tokens of the shortest statement, its period included
    dropout: float = 0.0  # of the statements and the question

    def setup(self):
        self.reader = MaskedBag(self.vocab_size, self.features, self.sentence_size)
        self.free_keys = self.param("keys", INIT, (self.num_slots - len(self.entities), self.features))
        self.gate_bias = self.param("gate_bias", nn.initializers.zeros, (self.num_slots,))
        self.cell = EntityCell(self.write, self.features)
        self.key = nn.Dense(self.features, use_bias=False, kernel_init=INIT)
        self.statement = nn.Dense(self.features, use_bias=False, kernel_init=INIT)
        self.hop = nn.Dense(self.features, use_bias=False, kernel_init=INIT)
        self.activation = PReLU(self.features)
        self.out = nn.Dense(self.vocab_size, use_bias=False, kernel_init=INIT)
        self.drop = nn.Dropout(self.dropout)

    def slots(self, source: Int[Array, "b s"], train: bool = False):
        """(the slots after the last statement [b, m, d], gates [b, m, n], the question [b, d])."""
        story = find_sentences(source, self.memory_size, self.shortest)
        statements, question = self.reader(source, story, train)
        statements = self.drop(statements, deterministic=not train)
        question = self.drop(question, deterministic=not train)
        tied = self.reader.words(jnp.array(self.entities, jnp.int32))
        keys = jnp.concatenate([tied, self.free_keys])
        inputs = (
            statements,
            statements @ keys.T + self.gate_bias,
            self.statement(statements),
            story.mask(),
        )
        of_keys = self.key(keys)[None]
        scan = nn.scan(
            lambda cell, slots, statement: cell(slots, statement, of_keys),
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=0,
            out_axes=0,
        )
        slots = jnp.broadcast_to(keys, (len(source), *keys.shape))
        slots, gates = scan(self.cell, slots, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), inputs))
        return slots, jnp.transpose(gates, (1, 2, 0)), question

    def answer(self, source: Int[Array, "b s"], train: bool = False) -> Answered:
        """log p of each answer; the gate of each slot over the statements."""
        slots, gates, question = self.slots(source, train)
        read = self.read(question[:, None], self.read.prepare(slots)).context[:, 0]
        hidden = self.activation(question + self.hop(read))
        return Answered(jax.nn.log_softmax(self.out(hidden)), gates)

    def losses(
        self,
        source: Int[Array, "b s"],
        answers: Int[Array, "b"],
        evidence: Int[Array, "b e"],
        step: Int[Array, ""] | int,
    ) -> tuple[Float[Array, "b"], Float[Array, "b"]]:
        """-log p(answer), twice: the evidence is not used."""
        nll, _ = nll_and_correct(self.answer(source, train=True).log_probs, answers)
        return nll, nll


def henaff2017(
    *,
    vocab_size: int,
    memory_size: int,
    features: int = 100,
    num_slots: int = 20,
    read: Attention | None = None,
    entities: tuple[int, ...] = (),
    sentence_size: int = 16,
    shortest: int = 1,
    dropout: float = 0.0,
) -> EntityNetwork:
    """The network as published: sigmoid gates, and softmax of a product to `read`. For the arguments see the class."""
    return EntityNetwork(
        vocab_size=vocab_size,
        memory_size=memory_size,
        features=features,
        num_slots=num_slots,
        write=Attention(Dot(), independent_sigmoid),
        read=read or Attention(Dot()),
        entities=entities,
        sentence_size=sentence_size,
        shortest=shortest,
        dropout=dropout,
    )
