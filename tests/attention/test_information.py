"""Numbers of distributions: those that can be counted, and what impossible keys do."""

import jax.numpy as jnp
import numpy as np

from attn_jax.attention.hard.readings import log_of
from attn_jax.attention.information import entropy, kl_divergence


def test_divergence_and_entropy():
    q = np.array([[0.5, 0.5, 0, 0], [0.25] * 4, [0, 0, 0, 0]])
    p = np.array([[0.25, 0.75, 0, 0], [0.25] * 4, [0, 0, 0, 0]])
    divergence = kl_divergence(log_of(jnp.asarray(q)), log_of(jnp.asarray(p)))
    np.testing.assert_allclose(divergence, [0.5 * np.log(2) + 0.5 * np.log(2 / 3), 0, 0], atol=1e-7)
    np.testing.assert_allclose(entropy(jnp.asarray(q)), [np.log(2), np.log(4), 0], rtol=1e-6)


def test_the_divergence_is_infinite_where_q_has_a_key_that_p_has_not():
    q = jnp.array([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])
    p = jnp.array([[1.0, 0.0], [0.25, 0.75], [0.5, 0.5], [0.0, 0.0]])
    expected = [np.inf, 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75), np.log(2), 0.0]
    np.testing.assert_allclose(kl_divergence(log_of(q), log_of(p)), expected, rtol=1e-6)
