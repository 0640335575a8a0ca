"""Answers to the exercises of chapters 1 to 3 of the book: recurrent networks, sequence to sequence, soft attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn_jax
from attn_jax.layers.rnn import CELLS, RNN, Recurrence


def linear_gradient(W, steps):
    """Chapter 1, exercise 1. With h' = W h the chain rule multiplies W with itself: W^steps."""
    return np.linalg.matrix_power(W, steps)


def test_the_gradient_of_a_linear_network_is_a_power_of_its_matrix():
    W = 0.5 * jax.random.normal(jax.random.key(0), (4, 4))

    def last(h):
        for _ in range(5):
            h = W @ h
        return h

    gradient = jax.jacobian(last)(jnp.ones(4))
    np.testing.assert_allclose(gradient, linear_gradient(np.asarray(W), 5), rtol=1e-4, atol=1e-5)


def gradient_bound(W, steps):
    """Chapter 1, exercise 2. Each factor is diag(tanh') W, of norm at most 1 |W|, and norms multiply: |W|^steps."""
    return np.linalg.norm(W, 2) ** steps


@pytest.mark.slow
def test_the_gradient_of_a_tanh_network_stays_below_the_bound():
    layer, mask = Recurrence(cell=CELLS["rnn"], features=4), jnp.ones((1, 6), bool)
    inputs = jax.random.normal(jax.random.key(0), (1, 6, 3))
    params = layer.init(jax.random.key(1), inputs, mask)

    def last(h):
        return layer.apply(params, inputs, mask, state=(h,))[0][0][0]

    gradient = np.asarray(jax.jacobian(last)(0.1 * jnp.ones((1, 4)))[:, 0])
    norm = np.linalg.norm(gradient, 2)
    assert 0 < norm <= gradient_bound(np.asarray(params["params"]["kernel"]), 6) * (1 + 1e-5)


def keeping_gates(features):
    """Chapter 1, exercise 3. c' = f c + i g is c for f = 1 and i = 0: biases of plus and minus infinity, as 100."""
    i, f, g, o = -100.0, 100.0, 0.0, 0.0
    return jnp.repeat(jnp.array([i, f, g, o]), features)


def test_an_lstm_with_an_open_forget_gate_keeps_its_cell():
    state = jnp.zeros((1, 3)), jnp.array([[0.3, -2.0, 5.0]])
    projected = jax.random.normal(jax.random.key(0), (1, 12)) + keeping_gates(3)
    for _ in range(10):
        state = CELLS["lstm"].update({}, state, projected, jnp.zeros((1, 12)))
    np.testing.assert_allclose(state[1], [[0.3, -2.0, 5.0]], rtol=1e-6)


def half_life(bias):
    """Chapter 1, exercise 4. sigmoid(b)^n = 1/2 for n = log(1/2) / log sigmoid(b)."""
    return np.log(0.5) / -np.log1p(np.exp(-bias))


def test_half_of_a_cell_is_forgotten_after_the_half_life():
    for bias in (0.0, 1.0, 5.0):
        np.testing.assert_allclose((1 / (1 + np.exp(-bias))) ** half_life(bias), 0.5)
    assert half_life(0.0) == 1  # the gate is 1/2


@pytest.mark.slow
def test_padding_does_not_change_the_last_state():
    """Chapter 2, exercise 1. A masked step leaves the state as it was."""
    encoder = RNN(cell=CELLS["lstm"], features=4)
    inputs = jax.random.normal(jax.random.key(0), (1, 5, 3))
    params = encoder.init(jax.random.key(1), inputs, jnp.ones((1, 5), bool))
    ((h, c),), _ = encoder.apply(params, inputs, jnp.ones((1, 5), bool))
    longer = jnp.concatenate([inputs, 9 * jnp.ones((1, 3, 3))], axis=1)
    ((padded_h, padded_c),), _ = encoder.apply(params, longer, jnp.arange(8)[None] < 5)
    np.testing.assert_allclose(padded_h, h, rtol=1e-6)
    np.testing.assert_allclose(padded_c, c, rtol=1e-6)
    ((wrong, _),), _ = encoder.apply(params, longer, jnp.ones((1, 8), bool))
    assert np.abs(wrong - h).max() > 1e-3  # without the mask it does


def greedy(scores, length, first):
    """Chapter 2, exercise 2. Each step sees its own earlier choices; if all are right, they are the target's."""
    written = [first]
    for _ in range(length):
        written.append(int(np.argmax(scores(tuple(written)))))
    return written[1:]


def test_greedy_decoding_is_the_target_where_every_forced_step_is_right():
    target, rng = [3, 1, 4, 1], np.random.default_rng(0)
    table = {}

    def scores(prefix):
        return table.setdefault(prefix, rng.normal(size=5))

    for j in range(4):  # make the model right after the right prefixes, and random after all others
        scores((0, *target[:j]))[target[j]] = 10
    assert greedy(scores, 4, first=0) == target
    table[(0, 3)] = np.array([10.0, 0, 0, 0, 0])
    assert greedy(scores, 4, first=0) != target


def perplexity_of_equal_words(vocab_size):
    """Chapter 2, exercise 3. exp(-log(1 / V)) = V."""
    return vocab_size


def test_a_model_that_knows_nothing_has_the_vocabulary_as_its_perplexity():
    log_p = jax.nn.log_softmax(jnp.zeros((7, 12)))
    np.testing.assert_allclose(jnp.exp(-log_p[:, 3].mean()), perplexity_of_equal_words(12), rtol=1e-5)


def test_a_number_added_to_all_scores_cancels():
    """Chapter 3, exercise 1. exp(e + c) = exp(c) exp(e), and exp(c) is in numerator and denominator."""
    scores = jnp.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(attn_jax.softmax(scores + 7), attn_jax.softmax(scores), rtol=1e-5)
    assert np.abs(attn_jax.softmax(2 * scores) - attn_jax.softmax(scores)).max() > 0.1


def test_small_factors_make_weights_equal_and_large_ones_a_choice():
    """Chapter 3, exercise 2. The limits are 1 / I and the maximum."""
    scores = jnp.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(attn_jax.softmax(1e-6 * scores), [1 / 3] * 3, rtol=1e-4)
    np.testing.assert_allclose(attn_jax.softmax(200 * scores), [1, 0, 0], atol=1e-6)


def concat_score(v, W_query, W_key, query, key):
    """Chapter 3, exercise 3. [W_query W_key] [query; key] = W_query query + W_key key: additive, without a bias."""
    return v @ jnp.tanh(jnp.concatenate([W_query, W_key], axis=1) @ jnp.concatenate([query, key]))


@pytest.mark.slow
def test_the_concat_score_is_the_additive_one():
    query, keys = jax.random.normal(jax.random.key(0), (1, 3)), jax.random.normal(jax.random.key(1), (4, 3))
    score = attn_jax.Additive(features=5, use_bias=False)
    attention = attn_jax.attention(score=score)
    params = attention.init(jax.random.key(2), query, keys)
    parts = params["params"]["map"]["score"]
    matrices = [parts[name]["kernel"] for name in ("vector", "query", "key")]
    by_hand = jnp.stack([concat_score(matrices[0][:, 0], matrices[1].T, matrices[2].T, query[0], k) for k in keys])
    weights = attention.apply(params, query, keys).weights[0]
    np.testing.assert_allclose(weights, jax.nn.softmax(by_hand), rtol=1e-5)


def context_gradient(weights, states):
    """Chapter 3, exercise 4. d a_k / d e_i = a_k ([k = i] - a_i), so d context / d e_i = a_i (h_i - context)."""
    return weights[:, None] * (states - weights @ states)


def test_the_context_moves_towards_the_state_whose_score_grows():
    scores, states = jnp.array([0.3, -1.0, 0.8]), jax.random.normal(jax.random.key(0), (3, 2))
    gradient = jax.jacobian(lambda e: attn_jax.softmax(e) @ states)(scores).T
    np.testing.assert_allclose(gradient, context_gradient(attn_jax.softmax(scores), states), atol=1e-6)
