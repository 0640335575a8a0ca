"""The mean of the states ignores masked states, whatever they hold."""

import jax.numpy as jnp
import numpy as np

from attn_jax.layers.pooling import MeanPooling


def test_the_mean_is_that_of_the_states_that_are_not_masked():
    states = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
    mask = np.array([[True, True, True, True], [True, False, True, False], [False] * 4])
    vector, weights, _ = MeanPooling().apply(
        {}, jnp.where(mask[..., None], states, jnp.nan), key_mask=jnp.asarray(mask)
    )
    np.testing.assert_allclose(vector[0], states[0].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(vector[1], states[1, [0, 2]].mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(vector[2], 0)
    np.testing.assert_array_equal(weights[:, 0], [[0.25] * 4, [0.5, 0, 0.5, 0], [0] * 4])
