"""The recurrent layers of a decoder, and the bridges over which they get their first state from the encoder."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from attn_jax.layers.rnn import Cell, Recurrence, State, recurrent_mask
from attn_jax.types import Array, Bool, Dtype, Float


@struct.dataclass
class Encoded:
    """The source as the encoder leaves it."""

    states: Float[Array, "b s d"]
    mask: Bool[Array, "b s"]  # True at real tokens
    last: tuple[State, ...]  # of each layer


class Stack(nn.Module, kw_only=True):
    """The recurrent layers of a decoder, from the bridge to the top hidden state.

    Input of a step = [embedded; extra], where `extra` (a context, say) is known only inside the loop.
    W [embedded; extra] is taken apart, so that the embedded half is one product for all steps.
    """

    cell: Cell
    features: int
    num_layers: int
    bridge: Callable
    has_extra: bool = False
    dropout: float = 0.0
    recurrent_dropout: float = 0.0
    dtype: Dtype = jnp.float32

    def setup(self):
        self.layers = [
            Recurrence(cell=self.cell, features=self.features, dtype=self.dtype) for _ in range(self.num_layers)
        ]
        self.between = nn.Dropout(self.dropout)
        if self.has_extra:
            self.extra = nn.Dense(self.cell.num_gates * self.features, use_bias=False, dtype=self.dtype)
        count = {dense_bridge: self.cell.num_states, hidden_bridge: 1}.get(self.bridge, 0) * self.num_layers
        self.bridges = [nn.Dense(self.features, dtype=self.dtype) for _ in range(count)]

    def start(self, encoded: Encoded) -> tuple[State, ...]:
        """The state of each layer before the first step."""
        return self.bridge(self, encoded)

    def project(self, embedded: Float[Array, "... e"]) -> Float[Array, "... gd"]:
        """The part of the first layer's input that is known before the loop."""
        return self.layers[0].project(embedded)

    def masks(self, batch_size: int, train: bool) -> tuple:
        """One variational dropout mask per layer, or None."""
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
        """One step of every layer; the top hidden state is the result's [-1][0]."""
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
        """All steps at once, layer after layer; possible when `extra` is the same at every step."""
        masks = self.masks(embedded.shape[0], train)
        everywhere = jnp.ones(embedded.shape[:2], bool)
        outputs = embedded
        for index, layer in enumerate(self.layers):
            outputs = self.between(outputs, deterministic=not train) if index > 0 else outputs
            offset = self.extra(extra)[:, None] if index == 0 and extra is not None else None
            _, outputs = layer(outputs, everywhere, state=states[index], dropped=masks[index], offset=offset)
        return outputs


def dense_bridge(stack: Stack, encoded: Encoded) -> tuple[State, ...]:
    """h = tanh(W last_h + b) and c = W last_c + b, layer by layer; the top encoder layer serves the missing ones."""
    states, count = [], stack.cell.num_states
    for index in range(stack.num_layers):
        last = encoded.last[min(index, len(encoded.last) - 1)]
        dense = stack.bridges[index * count : (index + 1) * count]
        h = jnp.tanh(dense[0](last[0]))
        states.append((h, *(layer(part) for layer, part in zip(dense[1:], last[1:], strict=True))))
    return tuple(states)


def hidden_bridge(stack: Stack, encoded: Encoded) -> tuple[State, ...]:
    """h = tanh(W last_h + b) and c = 0, layer by layer: only what the encoder says aloud."""
    states = []
    for index, dense in enumerate(stack.bridges):
        h = jnp.tanh(dense(encoded.last[min(index, len(encoded.last) - 1)][0]))
        states.append((h, *(jnp.zeros_like(h) for _ in range(1, stack.cell.num_states))))
    return tuple(states)


def copy_bridge(stack: Stack, encoded: Encoded) -> tuple[State, ...]:
    """The encoder's last states as they are (Sutskever 2014); both stacks are equally wide and deep."""
    return encoded.last


def zeros_bridge(stack: Stack, encoded: Encoded) -> tuple[State, ...]:
    """Zeros: everything has to come through the attention."""
    return tuple(layer.initial_state(encoded.states.shape[0]) for layer in stack.layers)


BRIDGES = {"dense": dense_bridge, "hidden": hidden_bridge, "copy": copy_bridge, "zeros": zeros_bridge}
