"""Convolutions beside flax.linen.Conv."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled

from attn_jax.layers.windows import Conv

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("places", [(1,), (7,), (6, 9), (4, 5, 3)])
@pytest.mark.parametrize("size, stride", [(1, 1), (3, 1), (2, 2), (5, 2), (2, 3)])
def test_a_convolution_is_that_of_flax(places, size, stride):
    x = jnp.asarray(RNG.normal(size=(2, *places, 3)), jnp.float32)
    sizes, strides = (size,) * len(places), (stride,) * len(places)
    theirs = nn.Conv(4, sizes, strides, bias_init=nn.initializers.normal())
    ours = Conv(features=4, sizes=sizes, strides=strides)
    params = jax.tree.map(np.asarray, compiled(theirs.init)(jax.random.key(0), x))
    drawn = compiled(ours.init)(jax.random.key(0), x)["params"]["kernel"]
    np.testing.assert_array_equal(drawn, params["params"]["kernel"])
    found, expected = (compiled(module.apply)(params, x) for module in (ours, theirs))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
