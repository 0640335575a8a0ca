"""Weights that may be negative: lines are least squares, a difference is two maps, and masking is still deleting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled, params_of

from attn_jax import MultiHead
from attn_jax.attention.build import build_attention
from attn_jax.attention.masks import causal_mask
from attn_jax.attention.normalizers import softmax
from attn_jax.attention.parts import SUMS_TO_ONE
from attn_jax.attention.scores import QKNorm, Softcap
from attn_jax.attention.scores.base import unit
from attn_jax.attention.signed import LocalLine, Parallax, Subtract, local_line_by_steps, local_line_weights, tilt

RNG = np.random.default_rng(0)
QUERIES, KEYS, WIDTH = 3, 9, 4
QUERY, KEY = RNG.normal(size=(QUERIES, WIDTH)), RNG.normal(size=(KEYS, WIDTH))
VALUES = RNG.normal(size=(KEYS, 2))
WEIGHTS = RNG.dirichlet(np.ones(KEYS), size=QUERIES)


def in_float64(function, *arrays):
    with jax.enable_x64(True):
        return compiled(function)(*arrays)


def test_a_line_is_the_weighted_least_squares_fit_at_the_query():
    got = in_float64(local_line_weights, WEIGHTS, QUERY, KEY) @ VALUES
    for q in range(QUERIES):
        root = np.sqrt(WEIGHTS[q])[:, None]
        design = np.concatenate([np.ones((KEYS, 1)), KEY - QUERY[q]], axis=1)
        coefficients = np.linalg.lstsq(root * design, root * VALUES, rcond=None)[0]
        np.testing.assert_allclose(got[q], coefficients[0], rtol=1e-5)


def test_steps_of_conjugate_gradient_find_the_same_line():
    """Also its gradient, for keys far from the origin, and for one key that has all of the weight."""
    weights = np.concatenate([WEIGHTS, np.eye(KEYS)[:1]]).astype(np.float32)
    query = np.concatenate([QUERY, QUERY[:1]]).astype(np.float32)
    keys = (KEY + 3).astype(np.float32)

    def both(line):
        total = lambda *x: (jnp.sum(jnp.sin(line(*x))), line(*x))  # noqa: E731
        return compiled(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(weights, query, keys)

    exact = both(lambda *x: local_line_weights(*x, ridge=0.1))
    ours = both(lambda *x: local_line_by_steps(*x, ridge=0.1, steps=WIDTH))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)
    none = both(lambda w, *x: local_line_by_steps(0 * w, *x, ridge=0.1, steps=WIDTH))  # rows without keys
    assert not np.any(none[1]) and all(np.all(np.isfinite(x)) for x in none[0])


def test_a_line_keeps_the_sum_of_the_weights_where_one_key_has_nearly_all_of_them():
    """In float32, between points that are many widths apart."""
    x, query = jnp.sort(jnp.asarray(5 * RNG.random((40, 1)), jnp.float32), axis=0), jnp.arange(0, 5, 0.1)[:, None]
    for width in (0.05, 0.02):
        weights = jax.nn.softmax(-0.5 * ((query - x.T) / width) ** 2)
        lines = compiled(lambda w: local_line_weights(w, query, x, 0.01))(weights)
        np.testing.assert_allclose(lines.sum(axis=-1), 1, atol=1e-4)


def test_a_large_ridge_or_keys_that_span_no_line_leave_the_weights():
    np.testing.assert_allclose(in_float64(lambda *x: local_line_weights(*x, ridge=1e9), WEIGHTS, QUERY, KEY), WEIGHTS)
    for keys in (np.repeat(KEY[:1], KEYS, axis=0), np.zeros_like(KEY)):
        np.testing.assert_allclose(in_float64(local_line_weights, WEIGHTS, QUERY, keys), WEIGHTS, atol=1e-12)
    one = np.eye(KEYS)[:QUERIES]
    got, gradient = compiled(
        jax.value_and_grad(lambda w, q, k: jnp.sum(local_line_weights(w, q, k)[0]), argnums=(0, 1, 2))
    )(np.concatenate([one[:2], np.zeros((1, KEYS))]).astype(np.float32), *(x.astype(np.float32) for x in (QUERY, KEY)))
    np.testing.assert_allclose(got, 1)
    assert all(np.all(np.isfinite(leaf)) for leaf in gradient)


def test_keys_that_differ_by_their_rounding_alone_span_no_line():
    """The neighbours of 1e4 in float32 are 1e-3 apart; a slope that fitted them would be of the order of 1e6."""
    keys = jnp.asarray(1e4 + 1e-3 * np.arange(KEYS)[:, None] * np.ones(WIDTH), jnp.float32)
    assert len(np.unique(keys)) > 2
    lines = compiled(local_line_weights)(jnp.asarray(WEIGHTS, jnp.float32), keys[:QUERIES] + 1, keys)
    np.testing.assert_allclose(lines, WEIGHTS, atol=0.02)


def test_parallax_with_the_slope_of_the_line_is_the_line():
    mean = WEIGHTS @ KEY
    slope = np.zeros_like(QUERY)
    for q in range(QUERIES):
        covariance = np.cov(KEY.T, aweights=WEIGHTS[q], bias=True)
        slope[q] = np.linalg.solve(covariance, QUERY[q] - mean[q])
    lines = in_float64(local_line_weights, WEIGHTS, QUERY, KEY)
    np.testing.assert_allclose(in_float64(tilt, WEIGHTS, KEY, slope), lines, rtol=1e-5)
    s = slope @ KEY.T  # the formula of the paper, with r = -slope
    np.testing.assert_allclose(WEIGHTS * (1 - (WEIGHTS * s).sum(-1, keepdims=True) + s), lines, rtol=1e-5)


@pytest.mark.slow
def test_parallax_starts_as_the_mean_and_learns_one_slope_per_head():
    x = jnp.asarray(RNG.normal(size=(2, 5, 8)), jnp.float32)
    heads = lambda fit: MultiHead(attention=build_attention(score="scaled_dot", fit=fit), num_heads=2, features=8)  # noqa: E731
    params = jax.jit(heads(Parallax(num_heads=2)).init)(jax.random.key(0), x, x)
    assert params["params"]["attention"]["map"]["fit"]["kernel"].shape == (2, 4, 4)
    plain = {"params": {name: leaf for name, leaf in params["params"].items() if name != "attention"}}
    call = lambda fit: compiled(lambda p: heads(fit).apply(p, x, x).weights)  # noqa: E731
    np.testing.assert_allclose(call(Parallax(num_heads=2))(params), call(None)(plain), atol=1e-7)
    loss = lambda p: jnp.sum(jnp.sin(heads(Parallax(num_heads=2)).apply(p, x, x).context))  # noqa: E731
    gradient = compiled(jax.grad(loss))(params)
    assert np.all(np.any(gradient["params"]["attention"]["map"]["fit"]["kernel"] != 0, axis=(1, 2)))


def test_a_difference_is_two_maps_of_half_of_the_columns():
    query, keys, values = (jnp.asarray(x, jnp.float32) for x in (QUERY, KEY, VALUES))
    attention = build_attention(score="scaled_dot", difference=Subtract(initial=0.6))
    params = params_of(attention, query, keys, values)
    attended = compiled(lambda p: attention.apply({"params": p}, query, keys, values).weights)(params)
    p = params["map"]["subtract"]
    scale = np.exp(p["query_1"] @ p["key_1"]) - np.exp(p["query_2"] @ p["key_2"]) + 0.6
    maps = [np.asarray(softmax(query[:, c] @ keys[:, c].T / np.sqrt(2))) for c in (slice(0, 2), slice(2, 4))]
    np.testing.assert_allclose(attended, maps[0] - scale * maps[1], atol=1e-6)
    assert np.any(attended < 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        dict(score="scaled_dot", fit=LocalLine(ridge=0.2)),
        dict(score="dot", fit=Parallax(), normalize="stick_breaking"),
        dict(score="qk_norm", difference=Subtract(), normalize="entmax15", top_keys=3),
    ],
    ids=["line", "parallax", "difference"],
)
def test_masking_a_key_is_deleting_it(fields):
    attention = build_attention(**fields)
    query, keys, values = (jnp.asarray(x, jnp.float32) for x in (QUERY, KEY, VALUES))
    params = params_of(attention, query, keys, values)
    keep = np.array([1, 1, 0, 1, 1, 1, 0, 1, 1], bool)

    def read(params, query, keys, values, mask):
        attended = attention.apply({"params": params}, query, keys, values, key_mask=mask)
        return attended.context, attended.weights

    rubbish = jnp.where(keep[:, None], keys, 100.0)
    context, weights = compiled(read)(params, query, rubbish, values, keep)
    alone = compiled(read)(params, query, keys[keep], values[keep], np.ones(keep.sum(), bool))
    np.testing.assert_allclose(context, alone[0], rtol=1e-4, atol=1e-5)
    assert np.all(weights[:, ~keep] == 0)
    np.testing.assert_allclose(context, weights @ values, rtol=1e-4, atol=1e-5)
    nothing = compiled(read)(params, query, keys, values, np.zeros(KEYS, bool))
    assert all(np.all(x == 0) for x in nothing)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [dict(fit=LocalLine()), dict(difference=Subtract())], ids=["line", "difference"])
def test_heads_are_causal_with_shared_keys(fields):
    x = jnp.asarray(RNG.normal(size=(2, 6, 16)), jnp.float32)
    attention = build_attention(score="scaled_dot", **fields)
    heads = MultiHead(attention=attention, num_heads=4, features=16, num_kv_heads=2)
    params = params_of(heads, x, x)
    assert ("norm" in params.get("attention", {}).get("map", {})) == ("difference" in fields)
    run = compiled(lambda p, x: heads.apply({"params": p}, x, x, mask=causal_mask(6)).context)
    before, after = run(params, x), run(params, x.at[:, 4:].add(1.0))
    np.testing.assert_allclose(before[:, :4], after[:, :4], atol=1e-6)
    assert np.abs(before[:, 4:] - after[:, 4:]).max() > 1e-3


@pytest.mark.slow
def test_derivatives_in_float64():
    line = lambda w, q, k: jnp.sum(jnp.sin(local_line_weights(w, q, k, ridge=0.1)))  # noqa: E731
    check_derivatives(line, WEIGHTS, QUERY, KEY)
    attention = build_attention(score="scaled_dot", difference=Subtract())
    params = params_of(attention, *(jnp.asarray(x, jnp.float32) for x in (QUERY, KEY)))

    def total(query, keys):
        return jnp.sum(jnp.sin(attention.apply({"params": params}, query, keys).context))

    check_derivatives(total, QUERY, KEY)


def test_what_weights_of_both_signs_do_not_go_together_with():
    line = build_attention(score="dot", fit=LocalLine())
    assert not line.sums_to_one and SUMS_TO_ONE in line.map.promises
    with pytest.raises(ValueError, match="expected even, got 3"):
        build_attention(score="dot", difference=Subtract()).init(jax.random.key(0), jnp.ones((1, 3)), jnp.ones((2, 3)))
    with pytest.raises(ValueError, match="keys of its width, 4; those of this score have 5 columns"):
        build_attention(score="norm", fit=LocalLine()).apply({}, jnp.ones((1, 4)), jnp.ones((2, 5)))


@pytest.mark.slow
def test_a_line_is_fitted_at_the_last_query_of_a_hopfield_network():
    """Iterations move the query by the mean of the keys, also where the values are read by a line."""
    line, mean = (build_attention(score="dot", iterations=3, fit=fit) for fit in (LocalLine(ridge=0.2), None))
    query, keys, values = (jnp.asarray(x, jnp.float32) for x in (QUERY, KEY, VALUES))
    state = query
    for _ in range(2):
        state = build_attention(score="dot").apply({}, state, keys).context
    weights = mean.apply({}, query, keys, values).weights
    np.testing.assert_allclose(weights, softmax(state @ keys.T), atol=1e-6)
    expected = local_line_weights(weights, state, keys, ridge=0.2) @ values
    np.testing.assert_allclose(line.apply({}, query, keys, values).context, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_with_qk_norm_the_line_is_fitted_at_the_direction_of_the_query():
    attention = build_attention(score=Softcap(score=QKNorm(), softcap=9.0), fit=LocalLine(ridge=0.0))
    query, keys = (jnp.asarray(x, jnp.float32) for x in (QUERY, KEY))
    slope = jnp.asarray(RNG.normal(size=(WIDTH, 2)), jnp.float32)
    params = params_of(attention, query, keys, unit(keys) @ slope)
    for scale in (1.0, 10.0):
        context = attention.apply({"params": params}, scale * query, keys, unit(keys) @ slope).context
        np.testing.assert_allclose(context, unit(query) @ slope, rtol=2e-2, atol=2e-3)
