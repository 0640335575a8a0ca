"""A query without any key: zeros and no gradient, from a mask as from a bias of -inf, and no NaN on the way there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.attention import NORMALIZERS
from attn_jax.attention.core import Attention
from attn_jax.attention.normalizers.forms import FORMS

RNG = np.random.default_rng(0)
QUERY, KEYS, VALUES = (jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in ((3, 4), (5, 4), (5, 4)))
MASK = jnp.asarray(RNG.random((3, 5)) > 0.4).at[1].set(False).at[:, 0].set([True, False, True])
BIAS = jnp.where(MASK, jnp.asarray(RNG.normal(size=(3, 5)), jnp.float32), -jnp.inf)
BY_BLOCKS = sorted(name for name, x in NORMALIZERS.items() if x in FORMS or hasattr(x, "form"))


def total(attention, given, params, query, keys, values, bias):
    call = {"bias": bias} if given == "bias" else {"mask": MASK, "bias": jnp.where(MASK, bias, 0.0)}
    attended = attention.apply(params, query, keys, values, **call)
    return jnp.sum(jnp.sin(attended.context)) + jnp.sum(attended.weights**2), attended


def check(attention):
    """Each operation by itself, since inside of jit a NaN that is thrown away is not noticed."""
    params = attention.init(jax.random.key(0), QUERY, KEYS, VALUES)
    arrays = params, QUERY, KEYS, VALUES, BIAS
    found = {}
    with jax.debug_nans(True):
        for given in ("mask", "bias"):
            grad = jax.value_and_grad(lambda *x: total(attention, given, *x), argnums=tuple(range(5)), has_aux=True)  # noqa: B023
            found[given] = grad(*arrays)
    (_, attended), gradients = found["bias"]
    assert not np.any(attended.context[1]) and not np.any(attended.weights[1])
    assert np.any(attended.context[0]) and not np.any(np.where(MASK, 0, gradients[-1]))
    assert not np.any(gradients[1][1])
    for x, y in zip(*(jax.tree.leaves(x) for x in found.values()), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NORMALIZERS))
def test_of_every_normalizer(name):
    check(Attention(score="dot", normalize=name))


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_BLOCKS)
def test_of_every_normalizer_by_blocks(name):
    check(Attention(score="dot", normalize=name, block_size=2))
