"""Pointer-generator: normalized, the vocabulary at gate 1, the scattered attention at gate 0, and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives

from attn_jax.outputs.pointer import Pointer, mix, scatter

RNG = np.random.default_rng(0)
LOG_PROBS = jax.nn.log_softmax(jnp.asarray(RNG.normal(size=(2, 3, 6)), jnp.float32))
WEIGHTS = jnp.asarray(RNG.dirichlet(np.ones(4), (2, 3)), jnp.float32)
SOURCE = jnp.array([[4, 5, 4, 3], [8, 5, 3, 7]])  # 7 and 8 are beyond the target vocabulary
INPUTS = jnp.asarray(RNG.normal(size=(2, 3, 2)), jnp.float32)


def gated(bias, pointer=None):
    """log p with a gate that is sigmoid(bias) everywhere."""
    pointer = pointer or Pointer(vocab_size=6)
    params = {"gate": {"kernel": jnp.zeros((2, 1)), "bias": jnp.full(1, float(bias))}}
    copied = pointer.copied(SOURCE)[:, None]
    return np.asarray(pointer.apply({"params": params}, LOG_PROBS, INPUTS, WEIGHTS, copied))


def by_hand():
    """The weights of each word, token by token."""
    copies = np.zeros((2, 3, 6))
    for row in range(2):
        for step in range(3):
            for place, token in enumerate(np.asarray(SOURCE)[row]):
                copies[row, step, token if token < 6 else 1] += WEIGHTS[row, step, place]
    return copies


@pytest.mark.parametrize("bias", [-30, -1, 0, 2, 30])
def test_probabilities_sum_to_one(bias):
    np.testing.assert_allclose(np.exp(gated(bias)).sum(-1), 1, rtol=1e-6)


def test_a_gate_of_one_is_the_vocabulary_and_of_zero_the_attention_on_each_word():
    np.testing.assert_allclose(gated(40), LOG_PROBS, atol=1e-6)
    np.testing.assert_allclose(np.exp(gated(-40)), by_hand(), atol=1e-6)
    half = (np.exp(LOG_PROBS) + by_hand()) / 2
    np.testing.assert_allclose(np.exp(gated(0)), half, atol=1e-6)


def test_a_table_says_which_target_token_a_source_token_is():
    table = (0, 1, 2, 3, 5, 4, 1, 2, 0)
    copied = np.asarray(Pointer(vocab_size=6, copies=table).copied(SOURCE))
    np.testing.assert_array_equal(copied, [[5, 4, 5, 3], [0, 4, 3, 2]])


def test_label_smoothing_is_the_cross_entropy_with_the_smoothed_target():
    log_probs = jnp.asarray(gated(0))
    targets = jnp.array([[1, 4, 5], [0, 2, 3]])
    loss, nll = Pointer(vocab_size=6, label_smoothing=0.3).apply({}, log_probs, targets, method="losses")
    smoothed = 0.7 * np.eye(6)[np.asarray(targets)] + 0.3 / 6
    np.testing.assert_allclose(loss, -(smoothed * log_probs).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(nll, -np.take_along_axis(np.asarray(log_probs), targets[..., None], -1)[..., 0])


def test_derivatives_with_respect_to_vocabulary_weights_and_gate():
    out = RNG.normal(size=(2, 6))

    def total(logits, scores, gate):
        tokens = jnp.array([[4, 5, 4], [3, 5, 1]])
        copies = scatter(jax.nn.softmax(scores), tokens, 6)
        return jnp.sum(jnp.asarray(out) * mix(jax.nn.log_softmax(logits), copies, gate))

    check_derivatives(total, *(RNG.normal(size=shape) for shape in ((2, 6), (2, 3), (2, 1))))
