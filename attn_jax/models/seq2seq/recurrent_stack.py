"""The recurrent layers of a decoder, and the bridges that make their initial states from the encoder's states."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from attn_jax.attention.dense import Dense
from attn_jax.attention.dropout import Dropout
from attn_jax.layers.rnn import Cell, Recurrence, State, recurrent_mask
from attn_jax.types import Array, Bool, Dtype, Float, PyTree


class EncoderStates(struct.PyTreeNode):
    """The encoded source."""

    states: Float[Array, "b s d"]
    mask: Bool[Array, "b s"]  # True at real tokens
    last: tuple[State, ...]  # final state of each layer
    tags: PyTree = None  # for a source with tags: Tags, or one vector [b, e] for all tags


class Bridge:
    """Makes the initial states of a decoder's layers from the encoder's states.

    `needs_every_layer`: the encoder must have as many layers as the decoder, each of the same width.
    `needs_every_state`: encoder and decoder layers must have the same number of states: h, or h and c.
    """

    needs_every_layer: ClassVar[bool] = False
    needs_every_state: ClassVar[bool] = False

    def num_projections(self, cell: Cell) -> int:
        """Returns the number of linear maps [width of an encoder state -> width of a decoder state] for each layer."""
        return 0

    def start(
        self, encoded: EncoderStates, layers: Sequence[Recurrence], projections: Sequence[nn.Dense]
    ) -> tuple[State, ...]:
        """Returns the initial state of each layer; `projections` has num_projections entries per layer, in order."""
        raise NotImplementedError


class DenseBridge(Bridge):
    """h = tanh(W last_h + b) and c = W last_c + b in each layer.

    If the decoder has more layers than the encoder, the other layers use the states of the encoder's last layer.
    """

    needs_every_state: ClassVar[bool] = True

    def num_projections(self, cell: Cell) -> int:
        return cell.num_states

    def start(self, encoded, layers, projections):
        states, count = [], len(projections) // len(layers)
        for index in range(len(layers)):
            last = encoded.last[min(index, len(encoded.last) - 1)]
            dense = projections[index * count : (index + 1) * count]
            h = jnp.tanh(dense[0](last[0]))
            states.append((h, *(layer(part) for layer, part in zip(dense[1:], last[1:], strict=True))))
        return tuple(states)


class HiddenBridge(Bridge):
    """h = tanh(W last_h + b) and c = 0 in each layer: the cell state of the encoder is not used."""

    activation: ClassVar[Callable] = staticmethod(jnp.tanh)

    def num_projections(self, cell: Cell) -> int:
        return 1

    def start(self, encoded, layers, projections):
        states = []
        for index, (layer, dense) in enumerate(zip(layers, projections, strict=True)):
            h = self.activation(dense(encoded.last[min(index, len(encoded.last) - 1)][0]))
            states.append((h, *(jnp.zeros_like(h) for _ in range(1, layer.cell.num_states))))
        return tuple(states)


class LinearBridge(HiddenBridge):
    """h = W last_h + b and c = 0 in each layer."""

    activation: ClassVar[Callable] = staticmethod(lambda h: h)


class CopyBridge(Bridge):
    """The last states of the encoder, unchanged (Sutskever 2014, arXiv 1409.3215)."""

    needs_every_layer: ClassVar[bool] = True
    needs_every_state: ClassVar[bool] = True

    def start(self, encoded, layers, projections):
        return encoded.last


class ZerosBridge(Bridge):
    """Zeros: the source enters only through attention."""

    def start(self, encoded, layers, projections):
        return tuple(layer.initial_state(encoded.states.shape[0]) for layer in layers)


BRIDGES = {
    "dense": DenseBridge(),
    "hidden": HiddenBridge(),
    "linear": LinearBridge(),
    "copy": CopyBridge(),
    "zeros": ZerosBridge(),
}


class Stack(nn.Module, kw_only=True):
    """The recurrent layers of a decoder: embedded tokens in, hidden states of the last layer out.

    The input of a step is [embedded; extra], where `extra` (such as a context) may be known only inside the loop. The
    product W [embedded; extra] is therefore split, and the part of embedded tokens is computed for all steps at once.
    """

    cell: Cell
    features: int
    num_layers: int
    bridge: Bridge
    dropout: float = 0.0  # between the layers
    recurrent_dropout: float = 0.0
    dtype: Dtype = jnp.float32

    def setup(self):
        self.layers = [
            Recurrence(cell=self.cell, features=self.features, dtype=self.dtype) for _ in range(self.num_layers)
        ]
        self.between = Dropout(rate=self.dropout)
        # Has parameters only if a decoder passes an `extra`: a flax module that is never called has none.
        self.extra = Dense(features=self.cell.num_gates * self.features, use_bias=False, dtype=self.dtype)
        count = self.bridge.num_projections(self.cell) * self.num_layers
        self.bridges = [Dense(features=self.features, dtype=self.dtype) for _ in range(count)]

    def start(self, encoded: EncoderStates) -> tuple[State, ...]:
        """Returns the state of each layer before the first step."""
        return self.bridge.start(encoded, self.layers, self.bridges)

    def project(self, embedded: Float[Array, "... e"]) -> Float[Array, "... gd"]:
        """Projects embedded tokens to the gates of the first layer: W embedded + b."""
        return self.layers[0].project(embedded)

    def masks(self, batch_size: int, train: bool) -> tuple:
        """Returns one variational dropout mask [b, d] for each layer, or None for each."""
        if not train or not self.recurrent_dropout:
            return (None,) * self.num_layers
        return tuple(
            recurrent_mask(
                self.make_rng("dropout"),
                rate=self.recurrent_dropout,
                batch_size=batch_size,
                features=self.features,
                dtype=self.dtype,
            )
            for _ in range(self.num_layers)
        )

    def step(
        self,
        states: tuple[State, ...],
        projected: Float[Array, "b gd"],
        *,
        extra: Float[Array, "b x"] | None = None,
        masks: tuple = (),
        train: bool = False,
    ) -> tuple[State, ...]:
        """Computes one step of every layer; result[-1][0] is the hidden state of the last layer."""
        masks = masks or (None,) * self.num_layers
        projected = projected if extra is None else projected + self.extra(extra)
        new = []
        for index, layer in enumerate(self.layers):
            if index > 0:
                projected = layer.project(self.between(new[-1][0], deterministic=not train))
            new.append(layer.step(states[index], projected, dropped=masks[index]))
        return tuple(new)

    def run(
        self,
        states: tuple[State, ...],
        embedded: Float[Array, "b t e"],
        *,
        extra: Float[Array, "b x"] | None = None,
        train: bool = False,
    ) -> Float[Array, "b t d"]:
        """Computes all steps, layer by layer, for an `extra` that is the same at every step."""
        masks = self.masks(embedded.shape[0], train)
        everywhere = jnp.ones(embedded.shape[:2], bool)
        outputs = embedded
        for index, layer in enumerate(self.layers):
            outputs = self.between(outputs, deterministic=not train) if index > 0 else outputs
            offset = self.extra(extra)[:, None] if index == 0 and extra is not None else None
            _, outputs = layer(outputs, everywhere, state=states[index], dropped=masks[index], offset=offset)
        return outputs
