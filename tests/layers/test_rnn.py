"""Recurrent layers: the handwritten gradient, masks and directions, and torch with the same weights."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, fill, params_of

from attn_jax.layers.rnn import CELLS, RNN, Recurrence, cell_step, recurrent_mask, scan_both, scan_cell

TIME, BATCH, INPUTS, WIDTH = 5, 3, 3, 4
LENGTHS = np.array([5, 3, 0])
MASK = np.arange(TIME) < LENGTHS[:, None]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(BATCH, TIME, INPUTS)).astype(np.float32)
DROPPED = np.array(RNG.random((BATCH, WIDTH)) < 0.7, np.float32) / np.float32(0.7)


def assert_close(got, want, rtol=1e-4, atol=1e-5):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=atol), got, want)


# The scan and its gradient


def plain_loop(cell, params, state, projected, mask, dropped):
    """What scan_cell computes, for automatic differentiation to differentiate."""

    def step(state, inputs):
        projected, mask = inputs
        new = cell_step(cell, params, state, projected, dropped)
        state = tuple(jnp.where(mask[:, None], n, o) for n, o in zip(new, state, strict=True))
        return state, state

    return jax.lax.scan(step, state, (projected, mask))


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_the_handwritten_gradient_is_that_of_a_plain_loop(name):
    cell = CELLS[name]
    gates = cell.num_gates * WIDTH
    shape = functools.partial(jax.ShapeDtypeStruct, dtype=np.float32)
    params = fill({"kernel": shape((WIDTH, gates)), "extra": {k: shape((n * WIDTH,)) for k, n in cell.extra.items()}})
    state = fill((shape((BATCH, WIDTH)),) * cell.num_states, seed=1)
    projected = fill(shape((TIME, BATCH, gates)), seed=2, scale=1.0)
    mask = np.array(RNG.random((TIME, BATCH)) < 0.7)  # holes too, not padding alone
    mask[:, 2] = False
    cotangents = fill(
        jax.eval_shape(functools.partial(plain_loop, cell), params, state, projected, mask, DROPPED), seed=3
    )

    def both(run):
        def values_and_gradients(params, state, projected, mask, dropped, cotangents):
            values, pull = jax.vjp(lambda *args: run(cell, *args, mask, dropped), params, state, projected)
            return values, pull(cotangents)

        return compiled(values_and_gradients)(params, state, projected, mask, DROPPED, cotangents)

    assert_close(both(scan_cell), both(plain_loop))


# One layer


@functools.cache
def layer(name):
    """(parameters, compiled: inputs -> all the ways to run a layer of this cell)."""
    module = Recurrence(cell=CELLS[name], features=WIDTH)
    params = params_of(module, X, MASK)

    def ways(x, mask):
        apply = functools.partial(module.apply, {"params": params})
        start = module.initial_state(BATCH)

        def step(state, x):
            state = apply(state, apply(x, method="project"), method="step")
            return state, state

        return {
            "forward": apply(x, mask),
            "reverse": apply(x, mask, reverse=True),
            "flipped": apply(x[:, ::-1], mask[:, ::-1]),
            "vmapped": jax.vmap(lambda x, mask: jax.tree.map(lambda y: y[0], apply(x[None], mask[None])))(x, mask),
            "steps": jax.lax.scan(step, start, jnp.swapaxes(x, 0, 1))[1],  # no mask: every step is taken
        }

    return params, compiled(ways)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_sequence_without_steps_passes_the_gradient_to_its_first_state(name):
    module, x, mask = Recurrence(cell=CELLS[name], features=WIDTH), jnp.asarray(X[:, :0]), jnp.asarray(MASK[:, :0])
    params = params_of(module, X, MASK)
    state = tuple(jnp.full((BATCH, WIDTH), n + 1.0) for n in range(CELLS[name].num_states))

    def total(params, state):
        last, outputs = module.apply({"params": params}, x, mask, state=state)
        return sum(jnp.sum(x) for x in (*last, outputs))

    of_params, of_state = jax.grad(total, (0, 1))(params, state)
    jax.tree.map(lambda g: np.testing.assert_array_equal(g, 0.0), of_params)
    jax.tree.map(lambda g: np.testing.assert_array_equal(g, 1.0), of_state)


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_step_by_step_is_the_whole_sequence(name):
    """And padding neither changes the last state nor an output of a real step."""
    result = layer(name)[1](X, MASK)
    last, outputs = result["forward"]
    for b, length in enumerate(LENGTHS):
        steps = [np.asarray(part)[:length, b] for part in result["steps"]]
        np.testing.assert_allclose(outputs[b, :length], steps[0], rtol=1e-5, atol=1e-6)
        for part, step in zip(last, steps, strict=True):
            np.testing.assert_allclose(part[b], step[-1] if length else 0, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_masked_inputs_may_hold_anything_and_rows_are_independent(name):
    _, ways = layer(name)
    expected = ways(X, MASK)
    rubbish = ways(np.where(MASK[..., None], X, 1e3).astype(np.float32), MASK)
    for way in ("forward", "reverse"):
        assert_close(rubbish[way], expected[way], 0, 0)
    assert_close(expected["vmapped"], expected["forward"])


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_reverse_is_flipping(name):
    _, ways = layer(name)
    result = ways(X, MASK)
    last, outputs = result["flipped"]
    assert_close(result["reverse"], (last, outputs[:, ::-1]))
    # Row by row: the same as the real part of the row alone, read from its end.
    row = X[1, : LENGTHS[1]][::-1]
    alone = ways(np.pad(row, ((0, TIME - len(row)), (0, 0)))[None].repeat(BATCH, 0), MASK[[1] * BATCH])["forward"]
    np.testing.assert_allclose(result["reverse"][1][1, : len(row)], alone[1][1, : len(row)][::-1], rtol=1e-5, atol=1e-6)
    assert_close([part[1] for part in result["reverse"][0]], [part[1] for part in alone[0]])


def test_peephole_lstm_is_its_formula():
    params, ways = layer("peephole_lstm")
    last, outputs = ways(X, MASK)["forward"]
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    to_i, to_f, to_o = np.split(params["peephole"], 3)
    for b, length in enumerate(LENGTHS):
        h = c = np.zeros(WIDTH)
        for t in range(length):
            gates = X[b, t] @ params["input"]["kernel"] + params["input"]["bias"] + h @ params["kernel"]
            i, f, g, o = np.split(gates, 4)
            c = sigmoid(f + to_f * c) * c + sigmoid(i + to_i * c) * np.tanh(g)
            h = sigmoid(o + to_o * c) * np.tanh(c)
            np.testing.assert_allclose(outputs[b, t], h, rtol=1e-4, atol=1e-5)
        assert_close([part[b] for part in last], [h, c])


@pytest.mark.parametrize(
    ("name", "activation"),
    [("relu_rnn", lambda x: np.maximum(x, 0)), ("sigmoid_rnn", lambda x: 1 / (1 + np.exp(-x)))],
    ids=["relu_rnn", "sigmoid_rnn"],
)
def test_a_cell_without_gates_is_its_activation_of_input_and_state(name, activation):
    params, ways = layer(name)
    last, outputs = ways(X, MASK)["forward"]
    for b, length in enumerate(LENGTHS):
        h = np.zeros(WIDTH)
        for t in range(length):
            h = activation(X[b, t] @ params["input"]["kernel"] + params["input"]["bias"] + h @ params["kernel"])
            np.testing.assert_allclose(outputs[b, t], h, rtol=1e-4, atol=1e-5)
        assert_close(last[0][b], h)
    assert np.mean(outputs[MASK] > 0) > 0.2


def test_forget_gates_start_open_and_every_gate_starts_orthogonal():
    params = compiled(Recurrence(cell=CELLS["lstm"], features=WIDTH).init)(jax.random.key(0), X, MASK)["params"]
    np.testing.assert_array_equal(params["input"]["bias"].reshape(4, WIDTH), np.eye(4)[1][:, None].repeat(WIDTH, 1))
    for gate in np.split(np.asarray(params["kernel"]), 4, axis=-1):
        np.testing.assert_allclose(gate @ gate.T, np.eye(WIDTH), atol=1e-5)


# Dropout on the recurrence


def test_a_recurrent_mask_keeps_the_mean():
    mask = compiled(lambda rng: recurrent_mask(rng, rate=0.25, batch_size=500, features=8, dtype=jnp.float32))(
        jax.random.key(0)
    )
    assert set(np.unique(mask)) == {np.float32(0), np.float32(1) / np.float32(0.75)}
    assert abs(np.mean(mask) - 1) < 0.05
    small = dict(batch_size=2, features=8, dtype=jnp.float32)
    assert recurrent_mask(jax.random.key(0), rate=0.0, **small) is None
    assert recurrent_mask(None, rate=0.5, **small) is None


def test_dropout_is_for_training_and_a_recurrent_mask_is_the_same_at_every_step():
    rnn = RNN(cell=CELLS["rnn"], features=30, dropout=0.5, recurrent_dropout=0.5)
    params = params_of(rnn, X, MASK)
    params["forward_0"]["kernel"] = np.eye(30, dtype=np.float32)  # so that a unit sees itself and nothing else

    @compiled
    def outputs(rng, x, mask):
        return [
            rnn.apply({"params": params}, x, mask, train=train, rngs={"dropout": rng})[1] for train in (False, True)
        ]

    (evaluated, trained), (again, other) = (outputs(jax.random.key(seed), X, MASK) for seed in (0, 1))
    np.testing.assert_array_equal(evaluated, again)
    assert np.any(trained != evaluated) and np.any(trained != other)
    weights = params["forward_0"]["input"]
    without_past = np.tanh(X[0] @ weights["kernel"] + weights["bias"])
    dropped = np.isclose(trained[0], without_past, atol=1e-6)[1:]
    assert np.all(dropped == dropped[0]) and 0 < np.mean(dropped[0]) < 1


def test_dropout_stands_between_the_layers():
    """The second layer hands on what it is given, so its outputs show which of the first layer's were dropped."""
    width = 20
    rnn = RNN(cell=CELLS["rnn"], features=width, num_layers=2, dropout=0.5)
    params = params_of(rnn, X, MASK)
    params["forward_1"]["kernel"][:] = 0
    params["forward_1"]["input"] = {"kernel": np.eye(width, dtype=np.float32), "bias": np.zeros(width, np.float32)}
    first = {"forward_0": params["forward_0"]}

    @compiled
    def outputs(rng, x, mask):
        below = RNN(cell=CELLS["rnn"], features=width).apply({"params": first}, x, mask)[1]
        return below, *(
            rnn.apply({"params": params}, x, mask, train=train, rngs={"dropout": rng})[1] for train in (False, True)
        )

    below, evaluated, trained = (array[MASK] for array in outputs(jax.random.key(0), X, MASK))
    np.testing.assert_allclose(evaluated, np.tanh(below), atol=1e-5)
    kept = trained != 0
    np.testing.assert_allclose(trained[kept], np.tanh(2 * below)[kept], atol=1e-5)
    assert 0.3 < np.mean(kept) < 0.7


# torch as the oracle


def torch_weights(cell, layer, suffix, params):
    """The parameters of one Recurrence in torch's order of gates, and its way to split biases."""
    names = [f"{what}_l{layer}{suffix}" for what in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    hidden_bias = np.zeros_like(params["input"]["bias"])
    if cell == "gru":
        hidden_bias[-params["candidate_bias"].size :] = params["candidate_bias"]
    values = params["input"]["kernel"].T, params["kernel"].T, params["input"]["bias"], hidden_bias
    return dict(zip(names, values, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bidirectional"), [("rnn", False), ("gru", True), ("lstm", True)])
def test_torch_computes_the_same(name, bidirectional):
    """Two layers, packed sequences of different lengths: outputs, last states and gradients."""
    torch = pytest.importorskip("torch", reason="torch (requirements-oracles.txt) is the oracle")
    directions = 1 + bidirectional
    lengths, x, mask = LENGTHS[:2], X[:2], MASK[:2]  # torch knows no empty sequence
    rnn = RNN(cell=CELLS[name], features=WIDTH * directions, num_layers=2, bidirectional=bidirectional)
    params = params_of(rnn, x, mask)
    shapes = jax.eval_shape(lambda: rnn.apply({"params": params}, jnp.asarray(x), jnp.asarray(mask)))
    d_last, d_outputs = fill(shapes, seed=4, scale=1.0)
    d_outputs *= mask[..., None]  # torch gives zeros where nothing is

    @compiled
    def ours(params, x, mask):
        values, pull = jax.vjp(lambda *args: rnn.apply({"params": args[0]}, args[1], mask), params, x)
        return values, pull((d_last, d_outputs))

    (last, outputs), (d_params, d_x) = ours(params, x, mask)

    theirs = getattr(torch.nn, name.upper())(INPUTS, WIDTH, 2, batch_first=True, bidirectional=bidirectional)
    sides = [("forward", "")] + [("backward", "_reverse")] * bidirectional
    weights, gradients = {}, {}
    for layer in range(2):
        for side, suffix in sides:
            weights |= torch_weights(name, layer, suffix, params[f"{side}_{layer}"])
            gradients |= torch_weights(name, layer, suffix, jax.tree.map(np.asarray, d_params[f"{side}_{layer}"]))
    theirs.load_state_dict({key: torch.tensor(np.ascontiguousarray(value)) for key, value in weights.items()})
    inputs = torch.tensor(x, requires_grad=True)
    packed = torch.nn.utils.rnn.pack_padded_sequence(inputs, torch.tensor(lengths), batch_first=True)
    packed_outputs, states = theirs(packed)
    their_outputs, _ = torch.nn.utils.rnn.pad_packed_sequence(packed_outputs, batch_first=True)
    states = states if isinstance(states, tuple) else (states,)
    # [layers * directions, b, d] -> per layer [b, directions * d]
    by_layer = [state.reshape(2, directions, 2, WIDTH).transpose(1, 2).flatten(2) for state in states]
    total = (their_outputs * torch.tensor(d_outputs)).sum()
    for index, state in enumerate(by_layer):
        total = total + sum((state[layer] * torch.tensor(d_last[layer][index])).sum() for layer in range(2))
    total.backward()

    np.testing.assert_allclose(np.where(mask[..., None], outputs, 0), their_outputs.detach(), atol=1e-5)
    for layer, index in np.ndindex(2, len(states)):
        np.testing.assert_allclose(last[layer][index], by_layer[index][layer].detach(), atol=1e-5)
    np.testing.assert_allclose(d_x, inputs.grad, atol=1e-5)
    for key, parameter in theirs.named_parameters():
        if "bias_hh" not in key:
            np.testing.assert_allclose(gradients[key], parameter.grad, atol=2e-5, err_msg=key)
        elif name == "gru":  # the candidate's; the other hidden biases are none of ours
            np.testing.assert_allclose(gradients[key][-WIDTH:], parameter.grad[-WIDTH:], atol=2e-5, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gru", "peephole_lstm"])
def test_gradients_of_extra_parameters_are_summed_over_many_steps(name):
    """In bfloat16 a sum of a thousand steps would stop growing."""
    cell, steps = CELLS[name], 1000

    def slope(dtype):
        layer = Recurrence(cell=cell, features=WIDTH, dtype=dtype)
        x, mask = jnp.ones((1, steps, INPUTS)), jnp.ones((1, steps), bool)
        params = jax.tree.map(lambda p: jnp.full_like(p, 0.1), layer.init(jax.random.key(0), x, mask))
        return jax.jit(jax.grad(lambda params: layer.apply(params, x, mask)[1].astype(jnp.float32).sum()))(params)

    low, high = (slope(dtype)["params"] for dtype in (jnp.bfloat16, jnp.float32))
    for extra in cell.extra:
        assert_close(low[extra], high[extra], rtol=0.1)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_both_directions_take_one_scan_and_are_those_of_two(name):
    """One loop in the encoder, and states and outputs of a layer that runs alone."""

    class Layers(nn.Module):
        at_once: bool

        @nn.compact
        def __call__(self, x, mask, dropped):
            layers = [Recurrence(cell=CELLS[name], features=WIDTH, name=side) for side in ("forward", "backward")]
            if self.at_once:
                return scan_both(*layers, x, mask, dropped=(dropped, None))
            return layers[0](x, mask, dropped=dropped), layers[1](x, mask, reverse=True)

    params = params_of(Layers(True), X, MASK, DROPPED)
    (last, outputs), alone = (
        compiled(Layers(at_once).apply)({"params": params}, X, MASK, DROPPED) for at_once in (True, False)
    )
    for side in (0, 1):
        assert_close((tuple(x[side] for x in last), outputs[side]), alone[side], rtol=1e-6)
    encoder = RNN(cell=CELLS[name], features=2 * WIDTH, num_layers=3, bidirectional=True)
    program = jax.make_jaxpr(encoder.init_with_output)(jax.random.key(0), X, MASK)
    assert str(program).count(" scan[") == 3


def test_both_directions_need_an_even_number_of_features():
    module = RNN(cell=CELLS["rnn"], features=5, bidirectional=True)
    with pytest.raises(ValueError, match="features of a bidirectional RNN is 5; expected an even number"):
        jax.eval_shape(module.init, jax.random.key(0), X, MASK)
