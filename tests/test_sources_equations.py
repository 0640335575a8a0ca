"""docs/sources.md: the model that a command builds computes the equation that its row prints.

Each command is read from the page; its model gets tiny widths and random parameters, and numpy computes the equation.
"""

import re
import shlex
import types
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import fill
from test_sources_page import COMMAND, ROOT, ROWS
from tiny_run import fitted
from tiny_stories import VOCAB, random_batch

from attn_jax.data.sizes import PointSizes, TextSizes
from attn_jax.models.memory_networks.base import find_sentences
from attn_jax.models.seq2seq.decoder_base import StepOutputs
from attn_jax.models.seq2seq.objectives import Readout
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import resolve
from attn_jax.runs.overrides import override

SIZES_OF_PLACES = ("readout_size", "summary.readout_size", "feed_forward_size")
TINY = dict(hidden_size=6, embedding_size=6, readout_size=6, dropout=0.0) | {"attention.score.features": 5}
TINY |= {f"{place}.{size}": 6 for place in ("encoder", "decoder") for size in SIZES_OF_PLACES}
WORDS = {
    "source": np.array([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0]], np.int32),
    "target_in": np.array([[2, 5, 6, 7], [2, 8, 9, 4]], np.int32),
    "target_out": np.array([[5, 6, 7, 3], [8, 9, 4, 3]], np.int32),
}
SIZES = TextSizes(11, 11)
LAST = np.array([4, 2])  # place of the last token of each source


def commands(section):
    """The commands with a config of the row whose section begins with these words."""
    (row,) = [row for row in ROWS if row[0].startswith(section)]
    return [found for found in COMMAND.findall(row[4]) if "--config=" in found and "--mode" not in found]


def model_of(command, sizes=SIZES, **tiny):
    """The model that a command builds, with tiny widths; `tiny` are those of other keys, "__" for the dot."""
    words = shlex.split(command)
    (path,) = [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
    config = override(load_config_file(str(ROOT / path)), [word for word in words if word.startswith("--config.")])
    values = TINY | {key.replace("__", "."): value for key, value in tiny.items()}
    config = fitted(config, {f"model.{key}": value for key, value in values.items()})
    return resolve(config).build_model(sizes)


def params_of(model, batch=None):
    return fill(jax.eval_shape(model.init, jax.random.key(0), batch or jax.tree.map(jnp.asarray, WORDS)))


def run(model, params, function, **rngs):
    """function(module, words) with the parameters, as numpy arrays."""
    words = jax.tree.map(jnp.asarray, WORDS)
    return jax.device_get(model.module.apply({"params": params}, words, method=function, rngs=rngs))


def dense(layer, x):
    return x @ layer["kernel"] + layer.get("bias", 0)


def softmax(x, where=True):
    powers = np.exp(x - x.max(-1, keepdims=True)) * where
    return powers / powers.sum(-1, keepdims=True)


def check_weighted_mean(command):
    """h_j = cell(y_j, h_j-1), a = softmax(Omega(h_i, h_j)), tanh(W [sum_i a_i h_i; h_j])."""
    model = model_of(command)
    params = params_of(model)

    def parts(module, words):
        encoded, embedded = module.encode(words["source"]), module.embed(words["target_in"], None)
        memory, state = module.decoder.start(encoded)
        steps = module.decoder.unroll(memory, state, embedded)
        scores = module.decoder.scores(steps.query, memory)
        hidden = module.decoder.stack.run(state.layers, embedded)
        return encoded.states, hidden, scores, steps.hidden, steps.weights, steps.readout

    states, h, scores, hidden, weights, readout = run(model, params, parts)
    np.testing.assert_allclose(hidden, h, rtol=1e-5)  # nothing else enters the recurrence
    a = softmax(scores, WORDS["source"][:, None] != 0)
    np.testing.assert_allclose(weights, a, rtol=1e-4, atol=1e-6)
    both = np.concatenate([a @ states, h], axis=-1)
    np.testing.assert_allclose(readout, np.tanh(dense(params["decoder"]["combine"], both)), rtol=1e-4, atol=1e-5)


def check_one_value_is_read(command):
    """y_x of one x: every row that is read is one-hot."""
    reading = model_of(command).module.objective.reading
    rows = np.asarray(reading(jax.random.key(0), jnp.log(jnp.full((7, 5), 0.2))).rows)
    assert set(np.unique(rows)) == {0, 1} and np.all(rows.sum(-1) == 1)


def check_gradient_of_the_expectation(command, num_samples=0, baseline=0.0):
    """sum_n w_n (grad f(y_n) + (f(y_n) - b) grad log a_n); w = 1 / T for T samples, w = a for all keys (0 samples)."""
    objective = model_of(command).module.objective
    rng = np.random.default_rng(0)
    scores, values = rng.normal(size=(1, 1, 5)).astype(np.float32), rng.normal(size=(5, 3)).astype(np.float32)
    zeros, targets = jnp.zeros((1, 1, 4)), jnp.zeros((1, 1), jnp.int32)

    def surrogate(scores, values):
        read = []

        def row_losses(memory, steps, rows, targets):
            read.append(jnp.eye(5)[None, None] if rows is None else rows)
            f = jnp.square(read[0] @ values).sum(-1)
            return f, f

        steps = dict.fromkeys(("readout", "hidden", "query", "embedded"), zeros)
        steps = StepOutputs(weights=jax.nn.softmax(scores), log_prob=zeros[..., 0], **steps)
        functions = dict.fromkeys(Readout._fields[:-2], lambda x: zeros) | {"row_losses": row_losses}
        losses = objective.apply(
            {"params": {"baseline": {"running_mean": jnp.float32(baseline)}}},
            Readout(**functions, vocab_size=9),
            types.SimpleNamespace(values=values[None]),
            steps,
            targets=targets,
            real=targets == 0,
            method="losses",
            rngs={"sample": jax.random.key(1)},
        )
        return losses.loss.sum(), read[0]

    (value, rows), gradients = jax.device_get(jax.value_and_grad(surrogate, (0, 1), has_aux=True)(scores, values))
    a, rows = softmax(scores[0, 0]), rows[0, 0]
    assert len(rows) == (num_samples or 5)
    w = np.full(num_samples, 1 / num_samples) if num_samples else a
    f = np.square(rows @ values).sum(-1)
    np.testing.assert_allclose(value, w @ f, rtol=1e-5)
    np.testing.assert_allclose(gradients[0][0, 0], (w * (f - baseline)) @ (rows - a), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients[1], 2 * rows.T @ (w[:, None] * (rows @ values)), rtol=1e-4, atol=1e-5)


def check_facts_and_answer(command):
    """o_1 = argmax s_O(x, m_i), o_2 = argmax s_O((x, m_o1), m_i), r = argmax s_R((x, m_o1, m_o2), w)."""
    batch = random_batch(3, rows=8)
    model = model_of(command, TextSizes(VOCAB, VOCAB, longest_story=4))
    params = params_of(model, batch)
    layout, answered = (
        find_sentences(jnp.asarray(batch["source"]), 4),
        model.answer(params, jnp.asarray(batch["source"])),
    )
    slots, is_question = np.asarray(layout.slot), np.asarray(layout.is_question)
    hops, log_probs = np.asarray(answered.hops), np.asarray(answered.log_probs)
    assert hops.shape[1] == 2
    asking, candidate, answering = (params[name]["table"] for name in ("asking", "candidate", "answering"))
    for row, tokens in enumerate(batch["source"]):
        bag = lambda here: np.bincount(tokens[here], minlength=VOCAB).astype(np.float32)  # noqa: B023, E731
        x, memory = bag(is_question[row]), np.stack([bag(slots[row] == slot) for slot in range(4)])
        m = memory @ candidate[0]  # I: the sum of the words' vectors
        first = np.argmax(m @ (x @ asking[0]))
        second = np.argmax(m @ (x @ asking[0] + memory[first] @ asking[1]))
        assert list(hops[row].argmax(-1)) == [first, second] and np.all(hops[row].sum(-1) == 1)
        s_r = params["words"] @ (x @ answering[0] + memory[first] @ answering[1] + memory[second] @ answering[2])
        np.testing.assert_allclose(log_probs[row], np.log(softmax(s_r)), rtol=1e-3, atol=1e-3)


def check_recurrence(command):
    """h(t) = f(U x(t) + W h(t-1) + b)."""
    name = re.search(r"cell=(\w+)", command)[1]
    f = {"rnn": np.tanh, "relu_rnn": lambda x: np.maximum(x, 0), "sigmoid_rnn": lambda x: 1 / (1 + np.exp(-x))}[name]
    model = model_of(command)
    params = params_of(model)

    def states(module, words):
        embedded = module.target_embedding(words["target_in"])
        start = tuple(layer.initial_state(2) for layer in module.layers)
        return embedded, module.run(start, embedded, words["target_in"] != 0, train=False)[1]

    embedded, hidden = run(model, params, states)
    (layer,) = (params[key] for key in params if key.startswith("layers_"))
    h = np.zeros((2, 6))
    for t in range(4):
        h = f(dense(layer["input"], embedded[:, t]) + h @ layer["kernel"])
        np.testing.assert_allclose(hidden[:, t], h, rtol=1e-4, atol=1e-5)


def check_last_state_starts_the_decoder(command):
    """q = h_T: the decoder starts at the last state of the encoder and reads nothing else; its state is the readout."""
    model = model_of(command)
    params = params_of(model)

    def parts(module, words):
        encoded = module.encode(words["source"])
        (memory, state), embedded = module.decoder.start(encoded), module.embed(words["target_in"], None)
        _, without = module.decoder.start(encoded.replace(states=0 * encoded.states))
        steps = module.decoder.unroll((0 * memory[0], memory[1]), without, embedded)
        hidden = module.decoder.stack.run(state.layers, embedded)
        return encoded.states, encoded.last[0], state.layers[0], steps.readout, hidden

    states, last, first, readout, hidden = run(model, params, parts)
    np.testing.assert_allclose(last[0], states[np.arange(2), LAST], rtol=1e-6)
    np.testing.assert_array_equal(first, last)
    np.testing.assert_allclose(readout, hidden, rtol=1e-5)


def check_summary_enters_every_step(command):
    """s_t = f(s_t-1, y_t-1, C) and p(y_t) = g(s_t, y_t-1, C), with C = h_T."""
    model = model_of(command)
    params = params_of(model)

    def parts(module, words):
        encoded, embedded = module.encode(words["source"]), module.embed(words["target_in"], None)
        (summary, mask), state = module.decoder.start(encoded)
        steps = module.decoder.unroll((summary, mask), state, embedded)
        moved = module.decoder.unroll((summary + 1, mask), state, embedded).hidden
        return encoded.states, summary, embedded, steps.hidden, steps.readout, moved

    states, summary, embedded, hidden, readout, moved = run(model, params, parts)
    np.testing.assert_allclose(summary, states[np.arange(2), LAST], rtol=1e-6)
    assert np.all(np.abs(moved - hidden).max(-1) > 1e-4)  # from the first step on, with the same first state
    all_three = np.concatenate([hidden, np.broadcast_to(summary[:, None], hidden.shape), embedded], axis=-1)
    expected = np.tanh(dense(params["decoder"]["combine"], all_three))
    np.testing.assert_allclose(readout, expected, rtol=1e-4, atol=1e-5)


def check_attends_with_the_state_before(command):
    """e_ij = v . tanh(W s_i-1 + U h_j + b), a = softmax(e), c_i = sum_j a_ij h_j, then s_i."""
    model = model_of(command)
    params = params_of(model)

    def parts(module, words):
        encoded, embedded = module.encode(words["source"]), module.embed(words["target_in"], None)
        memory, state = module.decoder.start(encoded)
        steps = module.decoder.unroll(memory, state, embedded)
        return encoded.states, state.layers[0][0], embedded, steps.hidden, steps.weights, steps.readout

    states, first, embedded, hidden, weights, readout = run(model, params, parts)
    before = np.concatenate([first[:, None], hidden[:, :-1]], axis=1)
    score = params["decoder"]["attention"]["map"]["score"]
    inner = np.tanh(dense(score["query"], before)[:, :, None] + dense(score["key"], states)[:, None])
    a = softmax(dense(score["vector"], inner)[..., 0], WORDS["source"][:, None] != 0)
    np.testing.assert_allclose(weights, a, rtol=1e-4, atol=1e-6)
    all_three = np.concatenate([hidden, a @ states, embedded], axis=-1)
    np.testing.assert_allclose(readout, np.tanh(dense(params["decoder"]["combine"], all_three)), rtol=1e-3, atol=1e-5)


def check_products_of_queries_and_keys(command):
    """softmax(q k / sqrt(width)), with q = Q x and k = K x of the embeddings, to which sines and cosines are added."""
    one = dict.fromkeys(("encoder__num_heads", "encoder__num_layers", "decoder__num_heads", "decoder__num_layers"), 1)
    model = model_of(command, **one)
    assert not model.module.encoder.positions.rotary and not model.module.encoder.positions.needs_attention
    params = params_of(model)
    (heads,) = (layer["self_attention"] for name, layer in params["encoder"].items() if name.startswith("layers"))
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype(np.float32)
    module = model.module.encoder.make_layer().make_attention()
    attended = module.apply({"params": heads}, jnp.asarray(x), jnp.asarray(x))
    q, k = (dense(heads[name], x) for name in ("query", "key"))
    np.testing.assert_allclose(attended.weights[:, 0], softmax(q @ np.swapaxes(k, 1, 2) / np.sqrt(6)), rtol=1e-4)


def check_kernel_mean(command):
    """f(q) = sum_i v_i alpha(q, k_i) / sum_j alpha(q, k_j), alpha = exp(-|q - k|^2 / (2 w^2))."""
    model = model_of(command, PointSizes(features=1, count=9))
    rng = np.random.default_rng(0)
    query, x, y = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((4, 1), (9, 1), (9, 2)))
    params = model.init(jax.random.key(0), {"inputs": x, "targets": y, "index": np.arange(9)})
    prediction, _ = model.predict(params, query, x, y, model.mixture_weights(params, x, y))
    alpha = np.exp(-np.square(query - x.T) / (2 * float(model.width(params, 1)) ** 2))
    np.testing.assert_allclose(prediction, alpha @ y / alpha.sum(-1, keepdims=True), rtol=1e-4, atol=1e-5)


EQUATIONS = {  # beginning of the section -> the check of each command with a config, in order; None: of no equation
    "Soft attention: encoder": (None, check_weighted_mean),
    "Hard attention: P(X = x)": (check_one_value_is_read,),
    "Minimize the expectation": (check_gradient_of_the_expectation,),
    "First term by T samples": (partial(check_gradient_of_the_expectation, num_samples=4),),
    "The variance is large": (partial(check_gradient_of_the_expectation, num_samples=1, baseline=0.7),),
    "Trained on supporting facts": (None, check_facts_and_answer),
    "RNN: h(t)": (check_recurrence,) * 3,
    "Sequence to sequence: Sutskever": (check_last_state_starts_the_decoder,),
    "Sequence to sequence: Cho": (check_summary_enters_every_step,),
    "Bahdanau 2015": (check_attends_with_the_state_before, None),
    "Self-attention: Q, K, V": (check_products_of_queries_and_keys,),
    "Regression: values are targets": (check_kernel_mean, None),
    "Classification: values are one-hot": (check_kernel_mean,),
}
CASES = [(section, i) for section, checks in EQUATIONS.items() for i, check in enumerate(checks) if check]


@pytest.mark.slow
@pytest.mark.parametrize("section,index", CASES, ids=lambda part: str(part).partition(":")[0])
def test_the_command_gives_the_equation_of_its_row(section, index):
    given, checks = commands(section), EQUATIONS[section]
    assert len(given) == len(checks)
    checks[index](given[index])


def test_every_row_that_prints_an_equation_and_trains_is_checked():
    printed = [row[0] for row in ROWS if re.search(r" = |= \w|\[.*;.*\]", row[0]) and "--config=" in row[4]]
    assert len(printed) >= 4
    for section in printed:
        assert any(section.startswith(begin) for begin in EQUATIONS), section


def test_options_of_the_page_stand_in_a_whole_command():
    """So that what a reader may add is checked with the rest of its command."""
    for section, _, _, _, command, _ in ROWS:
        assert "--" not in COMMAND.sub("", command), section
