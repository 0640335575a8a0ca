"""Every decoder with the attention that it may have: steps, padding, batches and causality.

For each case two programs are compiled, one for a padded batch and one for a single sentence of its own
length, and all tests look at what these return.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_seq2seq import BOS, TARGET_VOCAB, build, random_params, sentences


def recurrent(cell, **options):
    """Options of an encoder and a decoder of one cell."""
    return {"encoder": cell, "decoder__cell": cell} | options


ONE_WAY = dict(encoder__bidirectional=False)
SIDES = ("encoder", "decoder")
TWO_LAYERS = {f"{side}__num_layers": 2 for side in SIDES}
HEADS = dict(num_heads=2, feed_forward_size=5)
PRE_NORM = {f"{side}__{key}": x for side in SIDES for key, x in dict(HEADS, norm="pre", positions="relative").items()}
POST_NORM = {f"decoder__{key}": x for key, x in dict(HEADS, norm="post", positions="sinusoidal").items()}
GENERAL = dict(attention=dict(score="general"))
NOT_FED = dict(decoder="luong", decoder__input_feeding=False)
CASES = {
    "sutskever": recurrent("lstm", decoder="none", decoder__bridge="copy", **TWO_LAYERS, **ONE_WAY),
    "cho": recurrent("gru", decoder="none", decoder__summary="every_step", decoder__summary__readout_size=4, **ONE_WAY),
    "bahdanau": recurrent("gru", decoder="bahdanau", attention=dict(score="additive")),
    "luong": recurrent("rnn", decoder="luong", **TWO_LAYERS, **GENERAL, **ONE_WAY),
    "luong without input feeding, local-m": recurrent(
        "lstm", **NOT_FED, attention=dict(score="concat", wrappers=("local_m",)), **ONE_WAY
    ),
    "luong with its own past": recurrent("gru", **NOT_FED, decoder__extras=("self_attention",), **GENERAL, **ONE_WAY),
    "luong after convolutions": dict(encoder="conv", **NOT_FED, **GENERAL),
    "luong, local-p": recurrent(
        "peephole_lstm",
        decoder="luong",
        decoder__bridge="zeros",
        attention=dict(score="location", wrappers=("local_p",)),
        **ONE_WAY,
    ),
    "transformer, pre norm": dict(decoder="transformer", encoder="transformer", embedding_size=6, **PRE_NORM)
    | dict(TWO_LAYERS, attention=dict(score="scaled_dot")),
    "transformer, post norm": dict(decoder="transformer", encoder="lstm", embedding_size=6, **POST_NORM)
    | dict(attention=dict(score="scaled_dot", wrappers=("gate",))),
}
LENGTHS = [(7, 3), (4, 6), (1, 5), (0, 0)]  # source, target; the last row is padding
BATCH, SOURCE, TARGET = len(LENGTHS), 8, 7
PADDED = sentences(LENGTHS, SOURCE, TARGET)
ROW = 1  # the sentence that is looked at alone
ALONE = {name: PADDED[name][ROW : ROW + 1, : LENGTHS[ROW][name != "source"]] for name in PADDED}


@pytest.fixture(scope="module", params=CASES)
def name(request):
    return request.param


def teacher_forced(module, batch):
    """(log_probs [b, t, v], weights [b, t, s]) of one pass over the whole target."""
    _, steps = module.unroll(batch["source"], batch["target_in"])
    return module.log_probs(steps.readout), steps.weights


@functools.cache
def built(name):
    """(model, parameters)."""
    model = build(**CASES[name])
    return model, random_params(model, PADDED)


@functools.cache
def padded(name):
    """Of the padded batch: teacher forced (log_probs, weights), log_probs step by step, leaves of memory and state."""
    model, params = built(name)

    @compiled
    def run(params, batch):
        memory, state = model.start(params, batch["source"])
        step = lambda state, token: model.step(params, memory, state, token)  # noqa: E731
        _, log_probs = jax.lax.scan(step, state, batch["target_in"].T)
        whole = model.module.apply({"params": params}, batch, method=teacher_forced)
        return *whole, jnp.swapaxes(log_probs, 0, 1), jax.tree.leaves((memory, state))

    return run(params, PADDED)


@functools.cache
def alone(name):
    """Of one sentence: (log_probs [t, v], weights [t, s], gradients of its log-probabilities [t, v, e])."""
    model, params = built(name)

    @compiled
    def run(params, batch):
        def log_probs_of_targets(table):
            changed = {**params, "target_embedding": {"embedding": table}}
            log_probs, weights = model.module.apply({"params": changed}, batch, method=teacher_forced)
            picked = jnp.take_along_axis(log_probs, batch["target_out"][..., None], -1)[0, :, 0]
            return picked, (log_probs[0], weights[0])

        table = params["target_embedding"]["embedding"]
        gradient, (log_probs, weights) = jax.jacrev(log_probs_of_targets, has_aux=True)(table)
        return log_probs, weights, gradient

    return run(params, ALONE)


@pytest.mark.slow
def test_a_padded_batch_step_by_step_is_its_sentences_teacher_forced_one_by_one(name):
    log_probs, weights, steps, leaves = padded(name)
    expected, expected_weights, _ = alone(name)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-4)
    np.testing.assert_allclose(log_probs, steps, rtol=1e-4, atol=1e-5)
    target, source = expected_weights.shape
    np.testing.assert_allclose(log_probs[ROW, :target], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weights[ROW, :target, :source], expected_weights, rtol=1e-4, atol=1e-6)
    assert np.all(weights[ROW, :, source:] == 0) and np.all(weights[LENGTHS.index((0, 0))] == 0)
    for array in jax.tree.leaves((padded(name), alone(name))):
        assert np.all(np.isfinite(array))
    # So that a search may reorder memory and state without knowing what they are:
    assert all(len(leaf) == BATCH for leaf in leaves)
    sums = weights.sum(-1)
    if CASES[name]["decoder"] == "none":
        np.testing.assert_array_equal(weights, 0)
    elif {"local_m", "local_p"} & set(CASES[name]["attention"].get("wrappers", ())):
        assert np.all(sums <= 1 + 1e-5) and np.all(sums[:-1, 0] > 0)
    else:
        np.testing.assert_allclose(sums[:-1], 1, rtol=1e-5)


@pytest.mark.slow
def test_no_target_is_seen_before_its_time(name):
    """By the gradient of log p of the target at position t with respect to the embedding of the token at position j."""
    gradient = alone(name)[-1]
    tokens = ALONE["target_in"][0]
    assert tokens[0] == BOS and len(set(tokens)) == len(tokens), "the embedding's rows do not tell positions apart"
    seen = np.any(gradient[:, tokens] != 0, axis=-1)  # [t, j]
    np.testing.assert_array_equal(seen, np.tri(len(tokens), dtype=bool))
    assert np.all(gradient[:, np.setdiff1d(np.arange(TARGET_VOCAB), tokens)] == 0)


@pytest.mark.slow
def test_what_a_decoder_says_of_itself_is_what_it_does(name):
    """Whether it attends, how wide its readout is, and whether contexts enter its recurrence: then its states change
    with the values of the memory."""
    module, params = built(name)[0].module, built(name)[1]
    decoder, weights = module.decoder, padded(name)[1]
    assert decoder.uses_attention == (decoder.attention is not None) == bool(np.any(weights != 0))
    assert decoder.takes_self_attention == hasattr(decoder, "self_attention")

    def outputs(module, batch, shift):
        memory, (state, _) = module.start(batch["source"], 1)
        if decoder.uses_attention:
            memory = memory.replace(values=memory.values + shift)
        steps = module.decoder.unroll(memory, state, module.target_embedding(batch["target_in"]))
        return steps.hidden, steps.readout

    run = compiled(lambda p, batch, shift: module.apply({"params": p}, batch, shift, method=outputs))
    (hidden, readout), (other_hidden, other_readout) = (run(params, PADDED, np.float32(shift)) for shift in (0, 1))
    assert readout.shape[-1] == decoder.readout_features
    assert np.any(readout != other_readout) == decoder.uses_attention
    assert np.any(hidden != other_hidden) == decoder.feeds_attention


def test_local_m_moves_on_with_the_target():
    weights = padded("luong without input feeding, local-m")[1]
    near = np.abs(np.arange(SOURCE) - np.arange(TARGET)[:, None]) <= 2
    np.testing.assert_array_equal(weights > 0, near & (PADDED["source"] != 0)[:, None])


@pytest.mark.parametrize("name", ["bahdanau", "cho"])
def test_gru_decoders_are_their_formulas(name):
    """In a loop over the steps of one sentence, from the memory and the state that `start` gives."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    dense = lambda layer, x: x @ layer["kernel"] + layer.get("bias", 0)  # noqa: E731
    params = built(name)[1]
    decoder, layer = params["decoder"], params["decoder"]["stack"]["layers_0"]
    expected, expected_weights, _, leaves = padded(name)
    *memory, h, _, _, _ = (leaf[ROW] for leaf in leaves)
    for t, token in enumerate(ALONE["target_in"][0]):
        embedded = params["target_embedding"]["embedding"][token]
        if name == "cho":
            context, _ = memory
        else:
            keys, values, mask = memory
            score = decoder["attention"]["map"]["score"]
            scores = dense(score["vector"], np.tanh(dense(score["query"], h) + keys))[:, 0]
            weights = np.exp(scores) * mask / np.sum(np.exp(scores) * mask)
            np.testing.assert_allclose(expected_weights[ROW, t], weights, rtol=1e-4, atol=1e-6)
            context = weights @ values
        x_r, x_z, x_n = np.split(dense(layer["input"], embedded) + dense(decoder["stack"]["extra"], context), 3)
        h_r, h_z, h_n = np.split(h @ layer["kernel"], 3)
        r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
        h = (1 - z) * np.tanh(x_n + r * (h_n + layer["candidate_bias"])) + z * h
        hidden = np.tanh(dense(decoder["combine"], np.concatenate([h, context, embedded])))
        logits = dense(params["output"]["dense"], hidden)
        np.testing.assert_allclose(expected[ROW, t], logits - np.log(np.exp(logits).sum()), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_bfloat16_goes_through(name):
    """Tracing alone finds a type that changes from step to step."""
    half, params = build(**CASES[name], dtype="bfloat16"), built(name)[1]
    run = lambda params, batch: half.module.apply({"params": params}, batch, method=teacher_forced)[0]  # noqa: E731
    assert jax.eval_shape(run, params, PADDED).dtype == np.float32
    if name == "bahdanau":  # which has all that is rounded
        error = np.abs(compiled(run)(params, PADDED) - padded(name)[0])[PADDED["target_out"] != 0]
        assert 0 < np.max(error) and np.mean(error) < 0.05
