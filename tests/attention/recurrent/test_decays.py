"""Gates are the functions of their equations, with a row of keys for each head."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.attention.recurrent.gates import ColumnDecay, FixedDecay, HeadDecay, Rates

HEADS, WIDTH, KEYS = 2, 3, 4
X = jax.random.normal(jax.random.key(0), (1, KEYS, 5))


def log_sigmoid(x):
    return -np.log1p(np.exp(-x))


def evaluated(module):
    """(gates of X, [keys, head, gate of the head] before they are squashed, by hand)."""
    params = module.init(jax.random.key(1), X)
    params = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(leaf.size), leaf.shape), params)
    dense = params["params"]["Dense_0"]
    raw = np.asarray(X[0]) @ np.asarray(dense["kernel"]) + np.asarray(dense.get("bias", 0.0))
    return np.asarray(module.apply(params, X))[0], raw.reshape(KEYS, HEADS, -1)


@pytest.mark.slow
@pytest.mark.parametrize(("gate", "columns"), [(HeadDecay, 1), (ColumnDecay, WIDTH)])
def test_a_decay_is_the_sixteenth_root_of_a_sigmoid(gate, columns):
    gates, raw = evaluated(gate(num_heads=HEADS, width=WIDTH))
    assert gates.shape == (HEADS, KEYS, columns) == (HEADS, KEYS, raw.shape[-1])
    np.testing.assert_allclose(gates, log_sigmoid(raw).transpose(1, 0, 2) / 16, rtol=2e-5)


def test_a_rate_is_a_sigmoid_without_bias():
    rates, raw = evaluated(Rates(num_heads=HEADS))
    np.testing.assert_allclose(rates, np.exp(log_sigmoid(raw[..., 0].T)), rtol=2e-5)
    assert set(nn.unbox(Rates(num_heads=HEADS).init(jax.random.key(0), X))["params"]["Dense_0"]) == {"kernel"}


def test_fixed_decays_are_those_of_the_paper():
    gates = FixedDecay(num_heads=3, width=WIDTH).apply({}, X)
    assert gates.shape == (1, 3, KEYS, 1)
    for head, decay in enumerate((31 / 32, 63 / 64, 127 / 128)):
        np.testing.assert_allclose(jnp.exp(gates[0, head]), decay, rtol=1e-6)
