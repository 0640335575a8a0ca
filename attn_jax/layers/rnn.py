"""Recurrent networks: cells, one scan, stacked and bidirectional layers.

A cell is an elementwise function, so that matrix products can be moved out of the scan:

    state' = cell.update(extra, state, projected, recurrent)        elementwise
    projected = U x + b      for all time steps at once, before the scan
    recurrent = W h          the only matrix product inside the scan

The gradient of `scan_cell` is written by hand for the same reason: dW is one product over all time steps after the
backward scan, while automatic differentiation would add up one matrix per time step.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from attn_jax.attention import loops
from attn_jax.attention.dense import Dense, narrow_product, outer_products, product
from attn_jax.attention.dropout import Dropout, drop
from attn_jax.attention.masks import checked_masks
from attn_jax.layers.encoder import Encoder
from attn_jax.types import Array, Bool, Dtype, Float, PyTree, widest

State = tuple[Array, ...]  # hidden first: (h,) or (h, c), each [..., d]


class Cell(NamedTuple):
    """The step function of a recurrent network; h, the first entry of a state, is the output."""

    num_gates: int  # `projected` and `recurrent` are num_gates * d wide
    num_states: int
    update: Callable[..., State]  # (extra params, state, projected [..., g d], recurrent [..., g d]) -> state
    extra: dict[str, int]  # further parameters: name -> width in units of d


def _rnn(extra: PyTree, state: State, projected: Array, recurrent: Array) -> State:
    """h' = tanh(U x + b + W h). Elman 1990."""
    return (jnp.tanh(projected + recurrent),)


def _relu_rnn(extra: PyTree, state: State, projected: Array, recurrent: Array) -> State:
    """h' = max(U x + b + W h, 0). Le 2015 (arXiv 1504.00941), who initialize W = 1 and b = 0."""
    return (nn.relu(projected + recurrent),)


def _sigmoid_rnn(extra: PyTree, state: State, projected: Array, recurrent: Array) -> State:
    """h' = sigmoid(U x + b + W h). Elman 1990."""
    return (nn.sigmoid(projected + recurrent),)


def _lstm(extra: PyTree, state: State, projected: Array, recurrent: Array) -> State:
    """i, f, o = sigmoid(.), g = tanh(.) of U x + b + W h;  c' = f c + i g;  h' = o tanh(c'). Gers 2000."""
    i, f, g, o = jnp.split(projected + recurrent, 4, axis=-1)
    c = nn.sigmoid(f) * state[1] + nn.sigmoid(i) * jnp.tanh(g)
    return nn.sigmoid(o) * jnp.tanh(c), c


def _peephole_lstm(extra: PyTree, state: State, projected: Array, recurrent: Array) -> State:
    """The LSTM with p_i c added to gate i, p_f c to f and p_o c' to o, p vectors. Gers & Schmidhuber 2000."""
    i, f, g, o = jnp.split(projected + recurrent, 4, axis=-1)
    peep_i, peep_f, peep_o = jnp.split(extra["peephole"][None], 3, axis=-1)
    c = nn.sigmoid(f + peep_f * state[1]) * state[1] + nn.sigmoid(i + peep_i * state[1]) * jnp.tanh(g)
    return nn.sigmoid(o + peep_o * c) * jnp.tanh(c), c


def _gru(extra: PyTree, state: State, projected: Array, recurrent: Array) -> State:
    """r, z = sigmoid(.);  n = tanh(W_n x + b_n + r (U_n h + c_n));  h' = (1 - z) n + z h.

    Cho 2014 (arXiv 1406.1078) in the form of cuDNN and PyTorch, with r after the product U_n h.
    """
    x_r, x_z, x_n = jnp.split(projected, 3, axis=-1)
    h_r, h_z, h_n = jnp.split(recurrent, 3, axis=-1)
    r, z = nn.sigmoid(x_r + h_r), nn.sigmoid(x_z + h_z)
    n = jnp.tanh(x_n + r * (h_n + extra["candidate_bias"][None]))
    return ((1 - z) * n + z * state[0],)


CELLS = {
    "rnn": Cell(num_gates=1, num_states=1, update=_rnn, extra={}),
    "relu_rnn": Cell(num_gates=1, num_states=1, update=_relu_rnn, extra={}),
    "sigmoid_rnn": Cell(num_gates=1, num_states=1, update=_sigmoid_rnn, extra={}),
    "lstm": Cell(num_gates=4, num_states=2, update=_lstm, extra={}),
    "gru": Cell(num_gates=3, num_states=1, update=_gru, extra={"candidate_bias": 1}),
    "peephole_lstm": Cell(num_gates=4, num_states=2, update=_peephole_lstm, extra={"peephole": 3}),
}


def cell_step(cell: Cell, params: PyTree, state: State, projected: Array, dropped: Array | None = None) -> State:
    """Computes one step; `dropped` [..., d] is a variational dropout mask (Gal 2016): W (dropped h) for W h."""
    h = state[0] if dropped is None else state[0] * dropped
    recurrent = product(h, params["kernel"], h.dtype).astype(h.dtype)
    return cell.update(params["extra"], state, projected, recurrent)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def scan_cell(
    cell: Cell,
    params: PyTree,
    state: State,
    projected: Float[Array, "t b gd"],
    mask: Bool[Array, "t b"],
    dropped: Float[Array, "b d"],
) -> tuple[State, tuple[Float[Array, "t b d"], ...]]:
    """Runs a cell over time; returns (last state, states of every step). Masked steps do not change the state.

    `params` = {"kernel": W [d, g d], "extra": {...}}; `dropped` multiplies h before W at every step.
    """
    return _forward(cell, params, state, projected, mask, dropped)[0]


def _forward(cell, params, state, projected, mask, dropped):
    kernel = jnp.asarray(params["kernel"], dropped.dtype)

    def step(state, inputs):
        projected, mask = inputs
        recurrent = narrow_product(state[0] * dropped, kernel)
        new = cell.update(params["extra"], state, projected, recurrent)
        new = _keep(mask, new, state)
        return new, (new, recurrent)

    last, (states, recurrent) = loops.scan(step, state, (projected, mask))
    return (last, states), (params, state, projected, mask, dropped, states, recurrent)


def _backward(cell, residuals, cotangents):
    params, first, projected, mask, dropped, states, recurrent = residuals
    # One state per step, also for a sequence without steps.
    before = jax.tree.map(lambda x0, x: jnp.concatenate([x0[None], x[:-1]])[: len(x)], first, states)
    d_last, d_states = cotangents
    kernel = jnp.asarray(params["kernel"], dropped.dtype).T

    def step(carry, inputs):
        d_state, d_extra = carry
        before, projected, recurrent, mask, d_out = inputs
        d_state = jax.tree.map(jnp.add, d_state, d_out)
        d_new = _keep(mask, d_state, jax.tree.map(jnp.zeros_like, d_state))
        d_old = _keep(mask, jax.tree.map(jnp.zeros_like, d_state), d_state)
        _, pull = jax.vjp(cell.update, params["extra"], before, projected, recurrent)
        d_extra_step, d_before, d_projected, d_recurrent = pull(d_new)
        d_h = narrow_product(d_recurrent, kernel) * dropped
        d_before = jax.tree.map(jnp.add, d_before, d_old)
        d_before = (d_before[0] + d_h, *d_before[1:])
        d_extra = jax.tree.map(lambda x, y: x + y.astype(x.dtype), d_extra, d_extra_step)
        return (d_before, d_extra), (d_projected, d_recurrent)

    # The sum over many steps is in float32: in bfloat16 it would stop growing.
    zeros = lambda x: jnp.zeros(x.shape, widest(x))  # noqa: E731
    carry = d_last, jax.tree.map(zeros, params["extra"])
    inputs = before, projected, recurrent, mask, d_states
    (d_first, d_extra), (d_projected, d_recurrent) = loops.scan(step, carry, inputs, reverse=True)
    d_kernel = outer_products(before[0] * dropped[None], d_recurrent).astype(params["kernel"].dtype)
    # The dropout mask is a random constant; its gradient is never needed.
    d_extra = jax.tree.map(lambda x, like: x.astype(like.dtype), d_extra, params["extra"])
    return {"kernel": d_kernel, "extra": d_extra}, d_first, d_projected, None, jnp.zeros_like(dropped)


scan_cell.defvjp(_forward, _backward)


def _keep(mask: Bool[Array, "b"], new: State, old: State) -> State:
    return jax.tree.map(lambda n, o: jnp.where(mask[:, None], n, o), new, old)


class Recurrence(nn.Module, kw_only=True):
    """One recurrent layer with the parameters of a cell, for all steps at once or step by step.

    A call computes the whole sequence, (inputs [b, t, i], mask [b, t]) -> (last state, outputs [b, t, d]), from
    `state` or zeros; with `reverse`, from the last step to the first. `dropped` is a recurrent_mask, and `offset` is
    added to U x + b at every step.
    """

    cell: Cell
    features: int
    dtype: Dtype = jnp.float32

    def setup(self):
        gates = self.cell.num_gates * self.features
        self.input = Dense(features=gates, bias_init=self._bias_init, dtype=self.dtype)
        orthogonal = _per_gate_orthogonal(self.cell.num_gates)
        self.kernel = self.param("kernel", orthogonal, (self.features, gates), jnp.float32)
        self.extra = {
            name: self.param(name, nn.initializers.zeros, (width * self.features,), jnp.float32)
            for name, width in self.cell.extra.items()
        }

    def _bias_init(self, rng, shape, dtype=jnp.float32):
        bias = jnp.zeros(shape, dtype)
        # Forget gates start with bias one, so that an LSTM initially remembers (Jozefowicz 2015, section 2.3.2).
        return bias.at[self.features : 2 * self.features].set(1.0) if self.cell.num_states == 2 else bias

    def initial_state(self, batch_size: int) -> State:
        """Returns zeros."""
        return tuple(jnp.zeros((batch_size, self.features), self.dtype) for _ in range(self.cell.num_states))

    def project(self, inputs: Float[Array, "... i"]) -> Float[Array, "... gd"]:
        """Computes U x + b, the part of every step that does not depend on the state."""
        return self.input(inputs)

    def step(self, state: State, projected: Float[Array, "b gd"], dropped: Array | None = None) -> State:
        """Computes one step from a projected input."""
        return cell_step(self.cell, self._params(), state, projected, dropped)

    @checked_masks
    def __call__(
        self,
        inputs: Float[Array, "b t i"],
        mask: Bool[Array, "b t"],
        *,
        state: State | None = None,
        dropped: Float[Array, "b d"] | None = None,
        offset: Float[Array, "b 1 gd"] | None = None,
        reverse: bool = False,
    ) -> tuple[State, Float[Array, "b t d"]]:
        arguments = self._arguments(inputs, mask, state=state, dropped=dropped, offset=offset, reverse=reverse)
        last, states = scan_cell(self.cell, *arguments)
        outputs = states[0][::-1] if reverse else states[0]
        return last, jnp.swapaxes(outputs, 0, 1)

    def _arguments(self, inputs, mask, *, state=None, dropped=None, offset=None, reverse=False):
        """Returns what `scan_cell` takes after the cell, for the arguments of a call."""
        batch_size = inputs.shape[0]
        state = self.initial_state(batch_size) if state is None else state
        dropped = jnp.ones((batch_size, self.features), self.dtype) if dropped is None else dropped
        nothing = jnp.zeros_like(jnp.sum(inputs, axis=(1, 2))[:, None], self.dtype)  # varies as the inputs do
        state, dropped = jax.tree.map(lambda x: x + nothing, (state, dropped))
        # Time first before the projection, which is wider than the inputs.
        projected, mask = self.project(jnp.swapaxes(inputs, 0, 1)), mask.T
        if offset is not None:
            projected += jnp.swapaxes(offset, 0, 1)
        if reverse:
            # Padding then comes first, and does not change the initial state.
            projected, mask = projected[::-1], mask[::-1]
        return loops.vary(self._params(), projected), state, projected, mask, dropped

    def _params(self) -> PyTree:
        return {"kernel": self.kernel, "extra": jax.tree.map(lambda x: x.astype(self.dtype), self.extra)}


def _per_gate_orthogonal(num_gates: int):
    """Initializes W of each gate as an orthogonal matrix, which keeps the norm of the state."""

    def init(rng, shape, dtype=jnp.float32):
        square = (shape[0], shape[1] // num_gates)
        rngs = jax.random.split(rng, num_gates)
        return jnp.concatenate([nn.initializers.orthogonal()(r, square, dtype) for r in rngs], axis=-1)

    return init


@checked_masks
def scan_both(
    forward: Recurrence,
    backward: Recurrence,
    inputs: Float[Array, "b t i"],
    mask: Bool[Array, "b t"],
    *,
    dropped: tuple[Array | None, Array | None] = (None, None),
) -> tuple[State, Float[Array, "2 b t d"]]:
    """Runs a layer of each direction, of one cell and one width, in one scan: half as many steps one after the other.

    Returns (last states, each [2, b, d], outputs), of `forward` first.
    """
    sides = [
        layer._arguments(inputs, mask, dropped=one, reverse=reverse)
        for layer, one, reverse in zip((forward, backward), dropped, (False, True), strict=True)
    ]
    last, states = jax.vmap(partial(scan_cell, forward.cell))(*jax.tree.map(lambda *x: jnp.stack(x), *sides))
    outputs = jnp.stack([states[0][0], states[0][1, ::-1]])
    return last, jnp.swapaxes(outputs, 1, 2)


def recurrent_mask(rng: Array | None, *, rate: float, batch_size: int, features: int, dtype: Dtype) -> Array | None:
    """Makes a variational dropout mask [b, d], the same for all steps; None without an rng or at rate 0."""
    if rng is None or rate == 0.0:
        return None
    return drop(rng, rate, jnp.ones((batch_size, features), dtype))


class RNN(Encoder, kw_only=True):
    """An encoder of recurrent layers, in one direction or both, with dropout between the layers.

    Returns (last state of each layer, outputs of the last layer [b, t, d]). In a bidirectional layer each direction
    has half of the `features`, and states and outputs of both are concatenated.

    Raises:
        ValueError: `features` is odd in a bidirectional encoder.
    """

    cell: Cell
    features: int
    num_layers: int = 1
    bidirectional: bool = False
    dropout: float = 0.0
    recurrent_dropout: float = 0.0
    dtype: Dtype = jnp.float32

    @checked_masks
    @nn.compact
    def __call__(
        self, inputs: Float[Array, "b t i"], mask: Bool[Array, "b t"], *, train: bool = False
    ) -> tuple[tuple[State, ...], Float[Array, "b t d"]]:
        if self.bidirectional and self.features % 2:
            raise ValueError(f"features of a bidirectional RNN is {self.features}; expected an even number")
        directions = ("forward", "backward") if self.bidirectional else ("forward",)
        width = self.features // len(directions)
        last, outputs = [], inputs
        for layer in range(self.num_layers):
            if layer > 0:
                outputs = Dropout(rate=self.dropout)(outputs, deterministic=not train)
            rngs = [self.make_rng("dropout") if train and self.recurrent_dropout else None for _ in directions]
            options = dict(batch_size=inputs.shape[0], features=width, dtype=self.dtype)
            dropped = tuple(recurrent_mask(rng, rate=self.recurrent_dropout, **options) for rng in rngs)
            layers = [
                Recurrence(cell=self.cell, features=width, dtype=self.dtype, name=f"{direction}_{layer}")
                for direction in directions
            ]
            if self.bidirectional:
                end, outputs = scan_both(*layers, outputs, mask, dropped=dropped)
                end, outputs = jax.tree.map(lambda x: jnp.concatenate(x, axis=-1), (end, outputs))
            else:
                end, outputs = layers[0](outputs, mask, dropped=dropped[0])
            last.append(end)
        return tuple(last), outputs
