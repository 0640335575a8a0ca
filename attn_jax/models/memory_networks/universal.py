"""The Universal Transformer over stories: one layer, applied repeatedly to the statements and the question.

    x_0 = the question, then the statements, last statement first
    x_t = layer(x_{t-1} + positions + steps_t),    t = 1 ... num_steps, with the same parameters
    answer = softmax(W (x of the question) + b)

Dehghani 2019 (arXiv 1807.03819). Since the question comes first, the position of a statement depends only on its age.
With adaptive computation time (Graves 2016, arXiv 1603.08983) each position learns its number of steps.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from attn_jax.attention import Attention, MultiHead, build_attention
from attn_jax.attention.dropout import Dropout
from attn_jax.attention.masks import checked_masks
from attn_jax.attention.scores import ScaledDot
from attn_jax.layers.positions import NoPositions, Sinusoidal, sinusoids
from attn_jax.layers.transformer import TransformerLayer
from attn_jax.models.memory_networks.base import Answer, StoryLayout, StoryModule, find_sentences
from attn_jax.models.memory_networks.sentence_encoders import MaskedBag
from attn_jax.outputs.base import OutputLayer, sampling_rng
from attn_jax.outputs.full import FullSoftmax
from attn_jax.types import Array, Bool, Float, Int


class Halting(NamedTuple):
    """State of adaptive computation time for each position."""

    total: Float[Array, "b n"]  # sum of the weights of the steps so far
    steps: Float[Array, "b n"]  # number of steps so far
    running: Bool[Array, "b n"]  # False once a position has halted

    @classmethod
    def start(cls, shape: tuple[int, ...]) -> "Halting":
        """Returns the state before the first step."""
        nothing = jnp.zeros(shape, jnp.float32)
        return cls(nothing, nothing, jnp.ones(shape, bool))

    def advance(
        self, probability: Float[Array, "b n"], threshold: float, last: Bool[Array, ""]
    ) -> tuple["Halting", Float[Array, "b n"]]:
        """Takes one step; returns the new state and the weight of the step's result in the output.

        The weight is `probability`; at the step where the total would exceed the threshold, and at the last step, it is
        the remainder 1 - total. A position halts after its remainder.
        """
        halts = self.running & ((self.total + probability > threshold) | last)
        weight = jnp.where(halts, 1 - self.total, probability) * self.running
        state = Halting(total=self.total + weight, steps=self.steps + self.running, running=self.running & ~halts)
        return state, weight


class UniversalStack(nn.Module, kw_only=True):
    """One layer applied for `num_steps` steps, with encodings of position and step added before each.

    With `halting` (adaptive computation time), output = sum_t weight_t x_t, with weights from `Halting.advance` and
    probabilities p_t = sigmoid(v . x + b). A position that has halted keeps its x; the others still attend to it.
    """

    layer: TransformerLayer
    positions: NoPositions
    num_steps: int
    halting: bool = False
    threshold: float = 0.99
    dropout: float = 0.0  # dropout of the input; `layer` has its own rate

    def setup(self):
        self.drop = Dropout(rate=self.dropout)
        if self.layer.norm_first:
            self.norm = nn.LayerNorm(epsilon=1e-5)
        if self.halting:
            # With a bias of one, p is about 0.73 initially, so that most positions halt early.
            self.halt = nn.Dense(1, bias_init=nn.initializers.ones)

    @checked_masks
    def __call__(
        self, embedded: Float[Array, "b n d"], mask: Bool[Array, "b n"], train: bool = False
    ) -> tuple[Float[Array, "b n d"], Float[Array, "t b h n n"], Float[Array, "t b n"], Float[Array, "b n"]]:
        """Returns the states, the attention weights and output weights of each step, and the ponder cost.

        The ponder cost of a position is the number of its steps plus the weight of its last one (Graves 2016, equation
        5), and zero without `halting`.
        """
        positions = jnp.broadcast_to(jnp.arange(embedded.shape[1]), embedded.shape[:2])
        bias = self.positions.of_distance if self.positions.biased else None

        def step(self, carry, index):
            previous, output, state = carry
            x = self.positions.embed(previous + sinusoids(index[None, None] + 1, previous.shape[-1]), positions)
            last = index == self.num_steps - 1
            if self.halting:
                probability = nn.sigmoid(self.halt(x)[..., 0])
            else:
                probability = jnp.zeros(mask.shape, jnp.float32)
            next_state, weight = state.advance(probability, self.threshold if self.halting else 1.0, last)
            changed, _, read = self.layer(
                x, key_mask=mask, positions=positions, bias=bias, source=None, cache=None, train=train
            )
            x = jnp.where(state.running[..., None], changed, previous)
            output = output + weight[..., None] * x
            return (x, output, next_state), (read.own.weights, weight)

        scan = nn.scan(
            step,
            variable_broadcast="params",
            split_rngs={"params": False, "dropout": True, "sample": True},
            length=self.num_steps,
        )
        embedded = self.drop(embedded, deterministic=not train)
        carry = embedded, jnp.zeros_like(embedded), Halting.start(mask.shape)
        (_, output, state), (attention_weights, weights) = scan(self, carry, jnp.arange(self.num_steps))
        states = self.norm(output) if self.layer.norm_first else output
        # The last weight is one minus the sum of the others; its gradient trains a position to halt sooner.
        ponder = state.steps + _last_weight(weights, state.steps) if self.halting else jnp.zeros_like(state.steps)
        return states, attention_weights, weights, ponder


def _last_weight(weights: Float[Array, "t b n"], steps: Float[Array, "b n"]) -> Float[Array, "b n"]:
    """Weight of the last step of each position."""
    index = jnp.arange(len(weights))[:, None, None]
    return jnp.sum(jnp.where(index == steps - 1, weights, 0.0), axis=0)


class UniversalTransformer(StoryModule, kw_only=True):
    """Answers from the final state of the question. loss = -log p(answer) + ponder_weight * mean ponder cost."""

    vocab_size: int
    output: OutputLayer
    memory_size: int  # largest number of statements
    features: int
    stack: UniversalStack
    sentence_size: int = 16  # word positions of a sentence with a learned mask
    shortest: int = 1  # tokens of the shortest statement, its period included
    dropout: float = 0.0  # of the input of the answer layer
    ponder_weight: float = 0.01  # no effect unless the stack halts

    def setup(self):
        self.encoder = MaskedBag(
            vocab_size=self.vocab_size,
            features=self.features,
            sentence_size=self.sentence_size,
            name="reader",  # the name of its parameters
        )
        self.out = self.output.clone(parent=self, name="out")
        self.drop = Dropout(rate=self.dropout)

    def read(self, source: Int[Array, "b s"], train: bool = False):
        """Returns (hidden state of the answer [b, d], weights of the slots in each step [b, t, n], ponder cost [b])."""
        layout = find_sentences(source, self.memory_size, self.shortest)
        statements, question = self.encoder(source, newest_first(layout), train=train)
        x = jnp.concatenate([question[:, None], statements], axis=1) * self.features**0.5
        mask = jnp.arange(layout.size + 1)[None] <= layout.count[:, None]
        states, attention_weights, _, ponder = self.stack(x, mask=mask, train=train)
        hidden = self.drop(states[:, 0], deterministic=not train)
        # Mean over the heads; from the question (position 0) to the statements, last statement first.
        by_age = jnp.swapaxes(jnp.mean(attention_weights, axis=2)[:, :, 0, 1:], 0, 1)
        by_slot = jnp.take_along_axis(by_age, layout.age()[:, None], axis=-1)
        weights = jnp.where(layout.mask()[:, None], by_slot, 0.0)
        cost = jnp.sum(ponder * mask, axis=-1) / jnp.sum(mask, axis=-1)
        return hidden, weights, cost

    def answer(self, source: Int[Array, "b s"], train: bool = False) -> Answer:
        """Log-probabilities of all answers, and the question's weights of the statements in each step."""
        hidden, weights, _ = self.read(source, train)
        return Answer(log_probs=self.out.log_probs(hidden), hops=weights)

    def losses(
        self,
        source: Int[Array, "b s"],
        answers: Int[Array, "b"],
        evidence: Int[Array, "b e"],
        step: Int[Array, ""] | int,
    ) -> tuple[Float[Array, "b"], Float[Array, "b"]]:
        """Returns the training loss and -log p(answer); the evidence is not used."""
        hidden, _, ponder = self.read(source, train=True)
        loss, nll = self.out.loss(hidden, answers, rng=sampling_rng(self))
        return loss + self.ponder_weight * ponder, nll


def newest_first(layout: StoryLayout) -> StoryLayout:
    """Returns the layout with its slots in reverse order: slot 0 is the last statement."""
    in_memory = layout.slot < layout.size
    return layout.replace(slot=jnp.where(in_memory, layout.count[:, None] - 1 - layout.slot, layout.size))


def universal_transformer(
    *,
    vocab_size: int,
    output: OutputLayer | None = None,
    features: int = 128,
    num_heads: int = 4,
    feed_forward_size: int = 512,
    num_steps: int = 6,
    halting: bool = False,
    threshold: float = 0.99,
    attention: Attention | None = None,
    gate: bool = False,
    norm_first: bool = True,
    dropout: float = 0.0,
    **fields: Any,
) -> UniversalTransformer:
    """A Universal Transformer with sinusoidal positions.

    Args:
        vocab_size: number of words of stories and answers.
        output: output layer; None: the full softmax.
        features: width of words and states.
        num_heads: number of heads.
        feed_forward_size: hidden layer of the feed-forward part.
        num_steps: largest number of steps.
        halting: whether to use adaptive computation time.
        threshold: total halting probability at which a position stops.
        attention: of each head; None: softmax of the scaled dot product.
        gate: whether to multiply the contexts of all heads by a sigmoid of their input.
        norm_first: layer norm before each part of the layer instead of after each sum.
        dropout: dropout rate everywhere.
        fields: the other fields of UniversalTransformer.
    """
    head = attention or build_attention(score=ScaledDot())
    layer = TransformerLayer(
        make_attention=partial(MultiHead, attention=head, gate=gate, num_heads=num_heads, features=features),
        features=features,
        feed_forward_size=feed_forward_size,
        norm_first=norm_first,
        dropout=dropout,
    )
    stack = UniversalStack(
        layer=layer,
        positions=Sinusoidal(),
        num_steps=num_steps,
        halting=halting,
        threshold=threshold,
        dropout=dropout,
    )
    return UniversalTransformer(
        vocab_size=vocab_size,
        output=output or FullSoftmax(vocab_size=vocab_size, group=""),
        features=features,
        stack=stack,
        dropout=dropout,
        **fields,
    )
