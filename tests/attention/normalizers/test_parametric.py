"""Normalizers with fields and parameters: what their parameters do, and that they learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.normalizers.entmax import entmax, entmax15
from attn_jax.attention.normalizers.fusedmax import fusedmax
from attn_jax.attention.normalizers.parametric import Entmax, Fusedmax, LearnedEntmax, ScalableEntmax, ScalableSoftmax

RNG = np.random.default_rng(0)
BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 4, 6, 5
SCORES = RNG.normal(0, 1, (BATCH, HEADS, QUERIES, KEYS)).astype(np.float32)
QUERY = RNG.normal(0, 1, (BATCH, HEADS, QUERIES, WIDTH)).astype(np.float32)
LENGTHS = np.array([6, 3])
MASK = np.arange(KEYS) < LENGTHS[:, None, None, None]


def called(module, params):
    """(scores, mask, query) -> weights."""
    call = compiled(lambda params, scores, mask, query: module.apply({"params": params}, scores, mask, query=query))
    return lambda *args: call(params, *args)


@pytest.mark.slow
def test_fields_are_arguments():
    for module, normalize in [
        (Entmax(alpha=1.33), lambda scores: entmax(scores, None, 1.33)),
        (Fusedmax(fusion=0.3), lambda scores: fusedmax(scores, None, 0.3)),
    ]:
        got, expected = compiled(lambda x, module=module, f=normalize: (module.apply({}, x), f(x)))(SCORES)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.slow
def test_each_head_has_its_alpha():
    module = LearnedEntmax(num_heads=HEADS)
    logits = np.array([-3, 0, 3], np.float32)[:, None, None]
    weights = called(module, {"alpha": logits})(SCORES, MASK, None)
    for head, alpha in enumerate(1 + 1 / (1 + np.exp(-logits[:, 0, 0]))):
        expected = compiled(lambda x, mask, alpha=float(alpha): entmax(x, mask, alpha))(SCORES[:, head], MASK[:, 0])
        np.testing.assert_allclose(weights[:, head], expected, atol=2e-6)
    fresh = module.init(jax.random.key(0), jnp.asarray(SCORES))["params"]["alpha"]
    assert fresh.shape == (HEADS, 1, 1) and np.all(fresh == 0)  # alpha = 1.5


def test_the_scale_of_scalable_softmax_is_the_logarithm_of_the_number_of_keys():
    scale = np.array([0.2, 0.43, 1], np.float32)[:, None, None]
    weights = called(ScalableSoftmax(num_heads=HEADS), {"scale": scale})(SCORES, MASK, None)
    factor = scale * np.log(LENGTHS)[:, None, None, None]
    np.testing.assert_allclose(weights, compiled(softmax)((factor * SCORES).astype(np.float32), MASK), atol=1e-6)
    # s log(n) with the maximum above the others by 1 / s keeps the same weight, whatever n.
    largest = []
    for num_keys in (4, 4000):
        row = np.r_[1 / 0.43, np.zeros(num_keys - 1)].astype(np.float32)
        largest.append(called(ScalableSoftmax(), {"scale": np.full((1, 1, 1), 0.43, np.float32)})(row, None, None)[0])
    np.testing.assert_allclose(largest, 1 / (2 - 1 / np.array([4, 4000])), rtol=1e-5)


@pytest.mark.parametrize("shared", [False, True])
def test_scalable_entmax_is_its_formula(shared):
    module = ScalableEntmax(num_heads=HEADS, delta=0.7)
    query = QUERY[:, 0] if shared else QUERY
    params = params_of(module, SCORES, MASK, query=jnp.asarray(query))
    assert {name: leaf.shape for name, leaf in params.items()} == dict.fromkeys(["beta", "gamma"], (HEADS, 1, WIDTH))
    weights = called(module, params)(SCORES, MASK, query)
    each = QUERY[:, :1] if shared else QUERY
    beta = np.log1p(np.exp((each * params["beta"]).sum(-1)))
    gamma = 2 * np.tanh((each * params["gamma"]).sum(-1))
    factor = 0.7 + beta * np.log(LENGTHS)[:, None, None] ** gamma
    expected = compiled(lambda x, mask: entmax(x, mask, 1.5))((SCORES * factor[..., None]).astype(np.float32), MASK)
    np.testing.assert_allclose(weights, expected, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "plain"), [(ScalableSoftmax, softmax), (ScalableEntmax, entmax15)])
def test_the_other_heads_are_not_scaled(kind, plain):
    params = params_of(kind(num_heads=HEADS), SCORES, MASK, query=jnp.asarray(QUERY))
    some, all_ = (called(kind(num_heads=HEADS, num_scaled=n), params)(SCORES, MASK, QUERY) for n in (2, 0))
    np.testing.assert_allclose(some[:, :2], all_[:, :2], atol=1e-6)
    np.testing.assert_allclose(some[:, 2], compiled(plain)(SCORES, MASK)[:, 2], atol=1e-6)
    assert np.abs(some[:, 2] - all_[:, 2]).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LearnedEntmax, ScalableSoftmax, ScalableEntmax])
def test_parameters_and_query_get_gradients_by_finite_differences(kind):
    module = kind(num_heads=HEADS)
    params = params_of(module, SCORES, MASK, query=jnp.asarray(QUERY))
    senses = RNG.normal(size=SCORES.shape).astype(np.float32)
    one_key = np.concatenate([MASK[:1], np.arange(KEYS)[None, None, None] < 1])  # a row with one key: log(1) = 0

    def total(params, query):
        weights = module.apply({"params": params}, jnp.asarray(SCORES), jnp.asarray(one_key), query=query)
        return jnp.sum(weights * senses)

    value, gradient = compiled(total), compiled(jax.grad(total, argnums=(0, 1)))(params, QUERY)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    for name, leaf in params.items():
        direction, step = RNG.normal(size=leaf.shape).astype(np.float32), 1e-2
        ahead, behind = (value(params | {name: leaf + sign * step * direction}, QUERY) for sign in (1, -1))
        assert np.all(gradient[0][name] != 0)
        np.testing.assert_allclose(np.sum(gradient[0][name] * direction), (ahead - behind) / (2 * step), atol=5e-3)
    direction = RNG.normal(size=QUERY.shape).astype(np.float32)
    ahead, behind = (value(params, QUERY + sign * step * direction) for sign in (1, -1))
    assert np.any(gradient[1]) == (kind is ScalableEntmax)
    np.testing.assert_allclose(np.sum(gradient[1] * direction), (ahead - behind) / (2 * step), atol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("rubbish", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("kind", [LearnedEntmax, ScalableSoftmax, ScalableEntmax])
def test_masked_scores_change_neither_weights_nor_gradients(kind, rubbish):
    module = kind(num_heads=HEADS)
    params = params_of(module, SCORES, MASK, query=jnp.asarray(QUERY))
    senses = RNG.normal(size=SCORES.shape).astype(np.float32)

    def total(params, scores, query):
        return jnp.sum(module.apply({"params": params}, scores, jnp.asarray(MASK), query=query) * senses)

    both = compiled(jax.value_and_grad(total, argnums=(0, 1, 2)))
    expected = both(params, SCORES, QUERY)
    got = both(params, np.where(MASK, SCORES, np.float32(rubbish)), QUERY)
    jax.tree.map(np.testing.assert_array_equal, got, expected)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"scores \[..., 4, q, k\] were expected"):
        LearnedEntmax(num_heads=4).init(jax.random.key(0), jnp.asarray(SCORES))
    with pytest.raises(ValueError, match="called without one"):
        ScalableEntmax(num_heads=HEADS).init(jax.random.key(0), jnp.asarray(SCORES))
