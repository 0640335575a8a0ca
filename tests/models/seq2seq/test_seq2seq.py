"""The model as the rest sees it: losses and metrics, dropout, types, seeds, and torch with the same weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of
from tiny_seq2seq import PAD, SOURCE_VOCAB, TARGET_VOCAB, build, random_params, sentences

from attn_jax.errors import UserError
from attn_jax.layers.rnn import CELLS
from attn_jax.models.seq2seq.model import DROPOUT_PLACES, backwards
from attn_jax.models.seq2seq.recurrent_stack import BRIDGES, EncoderStates, Stack
from attn_jax.training.model_size import num_parameters

LENGTHS = [(7, 3), (4, 6), (1, 5), (0, 0)]  # source, target; the last row is padding
BATCH = sentences(LENGTHS, 8, 7)
REAL = BATCH["target_out"] != 0
PLAIN = dict(
    decoder="luong",
    encoder="rnn",
    encoder__bidirectional=False,
    decoder__cell="rnn",
    decoder__input_feeding=False,
    attention=dict(score="dot"),
)


def teacher_forced(module, batch):
    """(log_probs [b, t, v], weights [b, t, s]) of one pass over the whole target."""
    _, steps = module.unroll(batch["source"], batch["target_in"])
    return module.log_probs(steps.readout), steps.weights


# Losses and metrics

SMOOTHING = 0.2


@functools.cache
def measured():
    """What models with label smoothing and with dropout say of one batch with the same parameters, for four rngs."""
    smooth = build(**PLAIN, label_smoothing=SMOOTHING)
    recurrent = dict(encoder__recurrent_dropout=0.5, decoder__recurrent_dropout=0.5)
    dropping = build(**PLAIN, label_smoothing=SMOOTHING, dropout=0.5, **recurrent)
    params = random_params(smooth, BATCH)
    # Two tokens that are guessed often, so that some guesses are right, also where nothing counts.
    params["output"]["dense"]["bias"][[PAD, 8]] += 6, 5.5

    @compiled
    def run(params, batch, rng):
        log_probs, weights = smooth.module.apply({"params": params}, batch, method=teacher_forced)
        return {
            "log_probs": log_probs,
            "weights": weights,
            "train": smooth.loss_fn(params, batch, rng),
            "dropped": dropping.loss_fn(params, batch, rng)[0],
            "eval": dropping.eval_fn(params, batch),
            "score": dropping.score(params, batch),
            "align": dropping.attention_weights(params, batch),
        }

    # The default keys take four times as long to compile.
    return [run(params, BATCH, jax.random.key(seed, impl="rbg")) for seed in (0, 0, 1, 2)]


@pytest.mark.slow
def test_training_loss_is_the_cross_entropy_with_the_smoothed_distribution():
    result = measured()[0]
    total, metrics = result["train"]
    smoothed = (1 - SMOOTHING) * np.eye(TARGET_VOCAB)[BATCH["target_out"]] + SMOOTHING / TARGET_VOCAB
    cross_entropy = -np.sum(smoothed * result["log_probs"], axis=-1)[REAL].sum()
    np.testing.assert_allclose(total, cross_entropy, rtol=1e-5)
    assert metrics["loss"].total == total and metrics["loss"].count == REAL.sum() == 14
    np.testing.assert_allclose(metrics["nll"].total, result["eval"]["loss"].total, rtol=1e-5)


@pytest.mark.slow
def test_evaluation_has_neither_dropout_nor_smoothing_and_dropout_is_a_function_of_its_rng():
    result = measured()[0]
    log_probs, metrics = result["log_probs"], result["eval"]
    picked = np.take_along_axis(log_probs, BATCH["target_out"][..., None], -1)[..., 0] * REAL
    np.testing.assert_allclose(result["score"], picked.sum(-1), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"].total, -picked.sum(), rtol=1e-5)
    correct = log_probs.argmax(-1) == BATCH["target_out"]
    assert np.any(correct[REAL]) and np.any(correct[~REAL])
    np.testing.assert_array_equal(metrics["accuracy"].total, correct[REAL].sum())
    assert metrics["loss"].count == metrics["accuracy"].count == REAL.sum()
    np.testing.assert_array_equal(result["align"], result["weights"])
    same, again, other, another = (float(each["dropped"]) for each in measured())
    assert same == again and len({same, other, another, float(metrics["loss"].total)}) == 4


@functools.cache
def at_places(*places):
    """What stands at each place of dropout, where it acts at some of them."""
    model = build(**PLAIN, decoder__bridge="linear", dropout=0.5, dropout_places=places)

    def of(module, batch):
        encoded = module.encode(batch["source"], train=True)
        embedded = module.embed(batch["target_in"], None, train=True)
        readout = module.unroll(batch["source"], batch["target_in"], train=True)[1].readout
        return dict(embeddings=embedded, states=encoded.states, summary=encoded.last[0][0], readout=readout)

    rngs = {"dropout": jax.random.key(0)}
    run = compiled(lambda params, batch: model.module.apply({"params": params}, batch, method=of, rngs=rngs))
    return run(random_params(model, BATCH), BATCH)


@pytest.mark.slow
@pytest.mark.parametrize("place", DROPOUT_PLACES)
def test_dropout_acts_at_the_place_that_is_named_and_nowhere_else(place):
    """At rate 0.5 a place has zeros and doubled numbers; what comes before it is unchanged, and the mask is its own."""
    plain, dropped = at_places(), at_places(place)
    if place in ("embeddings", "states", "summary"):
        kept = dropped[place] != 0
        assert 0.2 < kept[plain[place] != 0].mean() < 0.8
        np.testing.assert_allclose(dropped[place][kept], 2 * plain[place][kept], rtol=1e-5)
    else:
        assert 0.2 < (dropped[place] == 0).mean() < 0.8 and not np.any(plain[place] == 0)
    changed = {name for name in plain if not np.array_equal(plain[name], dropped[name])}
    after = {"embeddings": {"states", "summary", "readout"}, "states": {"readout"}, "summary": {"readout"}}
    assert changed == {place} | after.get(place, set())


def test_an_unknown_place_of_dropout_is_refused():
    with pytest.raises(UserError, match=r"unknown model\.dropout_places 'sumary'; did you mean summary"):
        build(**PLAIN | dict(dropout=0.5, dropout_places=("sumary",)))


# Parameters


def test_tied_embeddings_leave_the_output_layer_its_bias_alone():
    shapes = {
        tied: jax.eval_shape(build(**PLAIN, embedding_size=4, tie_embeddings=tied).init, jax.random.key(0), BATCH)
        for tied in (False, True)
    }
    assert list(shapes[True]["output"]) == ["bias"]
    assert num_parameters(shapes[False]) - num_parameters(shapes[True]) == 4 * TARGET_VOCAB
    assert shapes[True]["source_embedding"]["embedding"].shape == (SOURCE_VOCAB, 4)


def test_bridges():
    rng = np.random.default_rng(0)
    last = rng.normal(size=(2, 2, 3, 6)).astype(np.float32)  # layer, h and c, batch, width
    last = tuple(tuple(map(jnp.asarray, layer)) for layer in last)
    encoded = EncoderStates(states=jnp.zeros((3, 5, 6)), mask=jnp.ones((3, 5), bool), last=last)

    def start(bridge, num_layers):
        stack = Stack(cell=CELLS["lstm"], features=6, num_layers=num_layers, bridge=bridge)
        params = params_of(stack, encoded, method="start")
        return params, jax.device_get(stack.apply({"params": params}, encoded, method="start"))

    _, copied = start(BRIDGES["copy"], 2)
    np.testing.assert_array_equal(copied, jax.device_get(last))
    np.testing.assert_array_equal(start(BRIDGES["zeros"], 2)[1], np.zeros_like(copied))
    for name, activation in (("hidden", np.tanh), ("linear", np.asarray)):
        params, states = start(BRIDGES[name], 3)
        for layer, (h, c) in enumerate(states):
            to_h = params[f"bridges_{layer}"]
            expected = activation(last[min(layer, 1)][0] @ to_h["kernel"] + to_h["bias"])
            np.testing.assert_allclose(h, expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(c, 0)
    params, dense = start(BRIDGES["dense"], 3)
    for layer, (h, c) in enumerate(dense):
        from_h, from_c = last[min(layer, 1)]  # the third decoder layer starts from the second encoder layer too
        to_h, to_c = (params[f"bridges_{2 * layer + i}"] for i in range(2))
        np.testing.assert_allclose(h, np.tanh(from_h @ to_h["kernel"] + to_h["bias"]), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(c, from_c @ to_c["kernel"] + to_c["bias"], rtol=1e-5, atol=1e-6)


def test_a_bridge_copies_states_only_where_every_layer_has_one():
    assert {name for name, bridge in BRIDGES.items() if bridge.needs_every_layer} == {"copy"}
    counts = {name: bridge.num_projections(CELLS["lstm"]) for name, bridge in BRIDGES.items()}
    assert counts == {"dense": 2, "hidden": 1, "linear": 1, "copy": 0, "zeros": 0}


@pytest.mark.parametrize("input_feeding", [False, True])
def test_an_extra_input_has_parameters_only_where_there_is_one(input_feeding):
    shapes = jax.eval_shape(build(**PLAIN | dict(decoder__input_feeding=input_feeding)).init, jax.random.key(0), BATCH)
    assert ("extra" in shapes["decoder"]["stack"]) == input_feeding


# One program for seeds, another for types


def loss_and_gradient(**options):
    """(params, batch) -> (loss, gradient)."""
    model = build(**PLAIN, **options)
    return jax.value_and_grad(lambda params, batch: model.loss_fn(params, batch, jax.random.key(0))[0])


@functools.cache
def one_by_one():
    """(parameters, batch, loss and gradient) of two seeds."""
    run = compiled(loss_and_gradient())
    batches = [BATCH, sentences(LENGTHS[::-1], 8, 7, seed=1)]
    params = [random_params(build(**PLAIN), BATCH, seed, scale=0.3) for seed in (0, 1)]
    return [(p, batch, run(p, batch)) for p, batch in zip(params, batches, strict=True)]


@pytest.mark.slow
def test_several_seeds_in_one_program_are_the_seeds_one_by_one():
    params, batches, results = zip(*one_by_one(), strict=True)
    stack = lambda trees: jax.tree.map(lambda *x: np.stack(x), *trees)  # noqa: E731
    together = compiled(jax.vmap(loss_and_gradient()))(stack(params), stack(batches))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, together, stack(results))


@pytest.mark.slow
def test_bfloat16_is_close_to_float32_and_parameters_stay_float32():
    params, batch, (loss, gradient) = one_by_one()[0]
    half = build(**PLAIN, dtype="bfloat16")
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(random_params(half, BATCH)))
    half_loss, half_gradient = compiled(loss_and_gradient(dtype="bfloat16"))(params, batch)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves((half_loss, half_gradient)))
    np.testing.assert_allclose(half_loss, loss, rtol=0.01)
    assert half_loss != loss
    norm = lambda tree: np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(tree)))  # noqa: E731
    assert norm(jax.tree.map(np.subtract, half_gradient, gradient)) < 0.05 * norm(gradient)


# torch as the oracle


@pytest.mark.slow
def test_torch_computes_the_same_loss_and_gradients():
    """A bidirectional LSTM encoder, dense bridge, input feeding, dot attention, tied and smoothed output.

    Written once more with torch.nn.LSTM and a loop. Torch never sees the row of padding, so this also says
    that such a row weighs nothing.
    """
    torch = pytest.importorskip("torch", reason="torch (requirements-oracles.txt) is the oracle")
    width = 3  # of each direction
    model = build(
        decoder="luong",
        encoder="lstm",
        decoder__cell="lstm",
        attention=dict(score="dot"),
        decoder__readout_size=5,
        tie_embeddings=True,
        label_smoothing=0.1,
    )
    params = random_params(model, BATCH)
    total, gradients = compiled(
        jax.value_and_grad(lambda params, batch: model.loss_fn(params, batch, jax.random.key(0))[0])
    )(params, BATCH)

    p = jax.tree.map(lambda x: torch.tensor(x, requires_grad=True), params)
    encoder, decoder, stack = p["encoder"], p["decoder"], p["decoder"]["stack"]
    lstm = torch.nn.LSTM(5, width, batch_first=True, bidirectional=True)
    for side, suffix in [("forward_0", ""), ("backward_0", "_reverse")]:
        own = {
            f"weight_ih_l0{suffix}": encoder[side]["input"]["kernel"].T,
            f"weight_hh_l0{suffix}": encoder[side]["kernel"].T,
            f"bias_ih_l0{suffix}": encoder[side]["input"]["bias"],
            f"bias_hh_l0{suffix}": torch.zeros(4 * width),
        }
        for name, value in own.items():
            delattr(lstm, name)
            setattr(lstm, name, value)

    source, target_in, target_out = (torch.tensor(BATCH[name][:3]).long() for name in BATCH)
    lengths = (source != 0).sum(1)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        p["source_embedding"]["embedding"][source], lengths, batch_first=True, enforce_sorted=False
    )
    packed, last = lstm(packed)
    states, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    mask = torch.arange(states.shape[1]) < lengths[:, None]
    dense = lambda layer, x: x @ layer["kernel"] + layer["bias"]  # noqa: E731
    h, c = (part.transpose(0, 1).flatten(1) for part in last)
    h, c = torch.tanh(dense(stack["bridges_0"], h)), dense(stack["bridges_1"], c)
    fed = torch.zeros(3, 5)
    loss = 0.0
    for t in range(target_in.shape[1]):
        layer = stack["layers_0"]
        embedded = p["target_embedding"]["embedding"][target_in[:, t]]
        gates = dense(layer["input"], embedded) + fed @ stack["extra"]["kernel"] + h @ layer["kernel"]
        i, f, g, o = gates.chunk(4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        scores = torch.bmm(states, h[:, :, None])[:, :, 0].masked_fill(~mask, -torch.inf)
        context = torch.bmm(scores.softmax(1)[:, None], states)[:, 0]
        fed = torch.tanh(dense(decoder["combine"], torch.cat([context, h], dim=1)))
        logits = fed @ p["target_embedding"]["embedding"].T + p["output"]["bias"]
        loss = loss + torch.nn.functional.cross_entropy(
            logits, target_out[:, t], reduction="sum", ignore_index=0, label_smoothing=0.1
        )
    loss.backward()

    np.testing.assert_allclose(total, loss.detach(), rtol=1e-5)
    paths, theirs = zip(*jax.tree_util.tree_flatten_with_path(p)[0], strict=True)
    for path, ours, tensor in zip(paths, jax.tree.leaves(gradients), theirs, strict=True):
        np.testing.assert_allclose(ours, tensor.grad, rtol=1e-4, atol=2e-5, err_msg=jax.tree_util.keystr(path))


@pytest.mark.slow
def test_a_source_is_read_backwards_with_its_end_last():
    """Sutskever 2014: equal to the model that reads forwards, of reversed words."""
    source = jnp.array([[5, 6, 7, 3, 0, 0], [8, 3, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    turned = backwards(source, pad=PAD)
    np.testing.assert_array_equal(turned, [[7, 6, 5, 3, 0, 0], [8, 3, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(backwards(turned, pad=PAD), source)
    forwards, reads_back = build(decoder="none"), build(decoder="none", decoder__reverse_source=True)
    params = random_params(forwards, BATCH)
    both = compiled(lambda batch: (reads_back.score(params, batch), forwards.score(params, batch)))
    one, plain = both(BATCH)
    _, other = both(BATCH | {"source": backwards(jnp.asarray(BATCH["source"]), pad=PAD)})
    np.testing.assert_allclose(one, other, rtol=1e-5)
    assert np.any(np.abs(np.asarray(plain) - np.asarray(one)) > 1e-3)


def test_only_a_source_without_attention_is_read_backwards():
    message = r"unknown config key model\.decoder\.reverse_source; it is an option of model\.decoder none"
    with pytest.raises(UserError, match=message):
        build(**PLAIN, decoder__reverse_source=True)
