"""Contextual positions: the formula written out, open gates as relative positions, and no look at later keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled, params_of

from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.normalizers.contextual import ContextualSoftmax, contextual_softmax

RNG = np.random.default_rng(0)
SCORES, QUERY = RNG.normal(0, 1.5, (2, 4, 5)), RNG.normal(size=(2, 4, 3))  # [h, q, k], [h, q, d]
MASK = np.tril(np.ones((4, 5), bool), 1)
MASK[2, 1] = False


def test_it_is_the_formula_of_the_paper_for_each_head():
    module = ContextualSoftmax(num_heads=2, num_positions=3)
    scores, query, mask = jnp.asarray(SCORES, jnp.float32), jnp.asarray(QUERY, jnp.float32), jnp.asarray(MASK)[None]
    params = params_of(module, scores, mask, query=query)
    weights = compiled(lambda p: module.apply({"params": p}, scores, mask, query=query))(params)
    for head, row in np.ndindex(2, 4):
        kept = np.flatnonzero(MASK[row])
        z, total = SCORES[head, row, kept], []
        for i in range(len(kept)):
            position = min((1 / (1 + np.exp(-z[i:]))).sum(), 2)
            low, high = params["positions"][head][[int(np.floor(position)), int(np.ceil(position))]]
            vector = low + (position - np.floor(position)) * (high - low)
            total.append(np.exp(z[i] + QUERY[head, row] @ vector))
        np.testing.assert_allclose(weights[head, row, kept], total / np.sum(total), rtol=1e-5)
        assert weights[head, row].sum() == pytest.approx(1, abs=1e-6)


def test_open_gates_count_every_key_and_equal_vectors_change_nothing():
    products = RNG.normal(size=(4, 9)).astype(np.float32)
    high = np.full((4, 5), 40.0, np.float32)  # sigmoid is one: key i is 5 - i back
    relative = compiled(contextual_softmax)(high, None, products)
    np.testing.assert_allclose(relative, compiled(softmax)(products[:, 5:0:-1]), rtol=1e-5)
    scores = SCORES[0].astype(np.float32)
    equal = compiled(contextual_softmax)(scores, MASK, np.full((4, 9), 0.7, np.float32))
    np.testing.assert_allclose(equal, compiled(softmax)(scores, MASK), rtol=1e-5)


@pytest.mark.slow
def test_no_weight_depends_on_a_later_key_and_derivatives_of_two_orders_in_both_modes():
    products = RNG.normal(size=(4, 4))
    causal = jnp.tril(jnp.ones((4, 5), bool))
    depends = compiled(jax.jacobian(lambda z: contextual_softmax(z, causal, jnp.asarray(products, jnp.float32))))(
        SCORES[0].astype(np.float32)
    )
    assert np.all(depends[..., ~np.asarray(causal)] == 0)
    assert np.all(depends[3, :4, 3, :4] != 0)
    check_derivatives(
        lambda z, p: jnp.sum(jnp.sin(3 * contextual_softmax(z, jnp.asarray(MASK), p))), SCORES[0], products
    )


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="num_positions is 1; expected at least 2"):
        ContextualSoftmax(num_positions=1)
    with pytest.raises(ValueError, match="was called without one"):
        ContextualSoftmax().init(jax.random.key(0), jnp.ones((2, 3)))
