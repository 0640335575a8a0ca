"""The Universal Transformer over stories: one layer, applied again and again to statements and question alike.

    x_0 = the question, then the statements from the last back to the first
    x_t = layer(x_{t-1} + positions + steps_t),    t = 1 ... num_steps, the same layer each time
    answer = softmax(W (x of the question) + b)

Dehghani 2019 (arXiv 1807.03819). The question comes first, so a statement's position is its age, however long the
story. With adaptive computation time (Graves 2016, arXiv 1603.08983) each position decides for itself how many of the
steps it takes.
"""

from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import Attention, MultiHead
from attn_jax.attention.scores import ScaledDot
from attn_jax.layers.positions import NoPositions, Sinusoidal, sinusoids
from attn_jax.layers.transformer import TransformerLayer
from attn_jax.models.memory_networks.base import Answered, Story, find_sentences
from attn_jax.models.memory_networks.sentence_encoders import MaskedBag
from attn_jax.outputs.loss import nll_and_correct
from attn_jax.types import Array, Bool, Float, Int


class Halting(NamedTuple):
    """Where the positions stand in adaptive computation time."""

    total: Float[Array, "b n"]  # the weights of the steps taken so far
    steps: Float[Array, "b n"]  # how many those are
    running: Bool[Array, "b n"]

    @classmethod
    def start(cls, shape: tuple[int, ...]) -> "Halting":
        """Nothing done yet, and all to do."""
        return cls(jnp.zeros(shape), jnp.zeros(shape), jnp.ones(shape, bool))

    def advance(
        self, probability: Float[Array, "b n"], threshold: float, last: Bool[Array, ""]
    ) -> tuple["Halting", Float[Array, "b n"]]:
        """(where they stand after one more step, the weight of its result in the output).

        The weight is `probability`; for the step with which the total would pass the threshold, and for the last one,
        it is what is missing to one. After that a position halts.
        """
        stops = self.running & ((self.total + probability > threshold) | last)
        weight = jnp.where(stops, 1 - self.total, probability) * self.running
        return Halting(self.total + weight, self.steps + self.running, self.running & ~stops), weight


class UniversalStack(nn.Module):
    """One layer for `num_steps` steps, with encodings of position and step added before each.

    With `adaptive`, output = sum_t weight_t x_t with weights as in `Halting`, of p_t = sigmoid(v . x + b); a position
    that has halted keeps its x, which the others still see.
    """

    layer: TransformerLayer
    positions: NoPositions
    num_steps: int
    adaptive: bool = False
    threshold: float = 0.99
    dropout: float = 0.0  # of what comes in; `layer` has its own

    def setup(self):
        self.drop = nn.Dropout(self.dropout)
        if self.layer.norm_first:
            self.norm = nn.LayerNorm(epsilon=1e-5)
        if self.adaptive:
            # Most positions want to halt early at first: at a bias of one, p is about 0.73.
            self.halt = nn.Dense(1, bias_init=nn.initializers.ones)

    def __call__(
        self, embedded: Float[Array, "b n d"], mask: Bool[Array, "b n"], train: bool = False
    ) -> tuple[Float[Array, "b n d"], Float[Array, "t b h n n"], Float[Array, "t b n"], Float[Array, "b n"]]:
        """(states, attention weights of each step, what each step counts in the states, the ponder cost).

        The ponder cost of a position is the number of its steps and the weight of its last one: Graves 2016, equation
        5. It is zero where nothing is adaptive.
        """
        places = jnp.broadcast_to(jnp.arange(embedded.shape[1]), embedded.shape[:2])
        bias = self.positions.bias(places, embedded.shape[1])

        def step(self, carry, index):
            x, output, halting = carry
            x = self.positions.embed(x + sinusoids(index[None] + 1, x.shape[-1]), places)
            last = index == self.num_steps - 1
            if self.adaptive:
                probability = nn.sigmoid(self.halt(x)[..., 0])
            else:
                probability = jnp.zeros(mask.shape)
            after, weight = halting.advance(probability, self.threshold if self.adaptive else 1.0, last)
            changed, _, attended = self.layer(x, mask=mask, positions=places, bias=bias, train=train)
            x = jnp.where(halting.running[..., None], changed, carry[0])
            output = output + weight[..., None] * x
            return (x, output, after), (attended.weights, weight)

        scan = nn.scan(
            step,
            variable_broadcast="params",
            split_rngs={"params": False, "dropout": True, "sample": True},
            length=self.num_steps,
        )
        embedded = self.drop(embedded, deterministic=not train)
        carry = embedded, jnp.zeros_like(embedded), Halting.start(mask.shape)
        (_, output, halting), (seen, weights) = scan(self, carry, jnp.arange(self.num_steps))
        states = self.norm(output) if self.layer.norm_first else output
        # The last weight is 1 - the sum of those before; its gradient is what makes a position halt sooner.
        ponder = halting.steps + _last(weights, halting.steps) if self.adaptive else jnp.zeros(mask.shape)
        return states, seen, weights, ponder


def _last(weights: Float[Array, "t b n"], steps: Float[Array, "b n"]) -> Float[Array, "b n"]:
    """The weight of each position's last step."""
    index = jnp.arange(len(weights))[:, None, None]
    return jnp.sum(jnp.where(index == steps - 1, weights, 0.0), axis=0)


class UniversalReader(nn.Module, kw_only=True):
    """Answers with the state of the question. The loss is -log p(answer) + ponder_weight * mean ponder cost."""

    vocab_size: int
    memory_size: int
    features: int
    stack: UniversalStack
    sentence_size: int = 16  # words of a sentence that have a mask of their own
    shortest: int = 1  # tokens of the shortest statement, its period included
    dropout: float = 0.0  # of what the answer is made from
    ponder_weight: float = 0.0

    def setup(self):
        self.reader = MaskedBag(self.vocab_size, self.features, self.sentence_size)
        self.out = nn.Dense(self.vocab_size)
        self.drop = nn.Dropout(self.dropout)

    def read(self, source: Int[Array, "b s"], train: bool = False):
        """(log_probs [b, v], what the question saw of each slot in each step [b, t, n], ponder cost [b])."""
        story = find_sentences(source, self.memory_size, self.shortest)
        statements, question = self.reader(source, newest_first(story), train)
        x = jnp.concatenate([question[:, None], statements], axis=1) * self.features**0.5
        mask = jnp.arange(story.size + 1) <= story.count[:, None]
        states, seen, _, ponder = self.stack(x, mask, train)
        hidden = self.drop(states[:, 0], deterministic=not train)
        by_age = jnp.swapaxes(jnp.mean(seen, axis=2)[:, :, 0, 1:], 0, 1)
        here = story.mask()[:, None]
        weights = jnp.where(here, jnp.take_along_axis(by_age, story.age()[:, None], axis=-1), 0.0)
        cost = jnp.sum(ponder * mask, axis=-1) / jnp.sum(mask, axis=-1)
        return jax.nn.log_softmax(self.out(hidden)), weights, cost

    def answer(self, source: Int[Array, "b s"], train: bool = False) -> Answered:
        """log p of each answer; of each step, how much the question saw of each statement (and not of itself)."""
        return Answered(*self.read(source, train)[:2])

    def losses(
        self,
        source: Int[Array, "b s"],
        answers: Int[Array, "b"],
        evidence: Int[Array, "b e"],
        step: Int[Array, ""] | int,
    ) -> tuple[Float[Array, "b"], Float[Array, "b"]]:
        """(what is minimized, -log p(answer)); the evidence is not used."""
        log_probs, _, ponder = self.read(source, train=True)
        nll, _ = nll_and_correct(log_probs, answers)
        return nll + self.ponder_weight * ponder, nll


def newest_first(story: Story) -> Story:
    """The same story with its slots turned round: slot 0 is the last statement."""
    kept = story.slot < story.size
    return story.replace(slot=jnp.where(kept, story.count[:, None] - 1 - story.slot, story.size))


def dehghani2019(
    *,
    vocab_size: int,
    memory_size: int,
    features: int = 128,
    num_heads: int = 4,
    feed_forward_size: int = 512,
    num_steps: int = 6,
    adaptive: bool = False,
    threshold: float = 0.99,
    ponder_weight: float = 0.01,
    attention: Attention | None = None,
    norm_first: bool = True,
    dropout: float = 0.0,
    sentence_size: int = 16,
    shortest: int = 1,
) -> UniversalReader:
    """The network with its usual parts; `attention` is that of each head, by default softmax of the scaled product.

    `ponder_weight` counts only where the computation time is adaptive.
    """
    head = attention or Attention(ScaledDot())
    layer = TransformerLayer(
        make_attention=partial(MultiHead, attention=head, num_heads=num_heads, features=features),
        features=features,
        feed_forward_size=feed_forward_size,
        norm_first=norm_first,
        dropout=dropout,
    )
    return UniversalReader(
        vocab_size=vocab_size,
        memory_size=memory_size,
        features=features,
        stack=UniversalStack(layer, Sinusoidal(), num_steps, adaptive, threshold, dropout),
        sentence_size=sentence_size,
        shortest=shortest,
        dropout=dropout,
        ponder_weight=ponder_weight,
    )
