"""Each rule against its definition: outer products, steps of descent, the minimum of a ridge regression."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled

from attn_jax.attention.recurrent import FEATURE_MAPS, Delta, Linear, Mesa, chunked, dense, make_writes, write_all
from attn_jax.attention.recurrent.features import check_feature_map
from attn_jax.attention.scores.base import unit

RNG = np.random.default_rng(1)
QUERY, KEYS, VALUES = (RNG.normal(size=shape) for shape in ((5, 3), (5, 3), (5, 2)))
RATES, GATES = RNG.uniform(0.2, 1.5, 5), -RNG.uniform(0, 1, (5, 1))
UNIT = KEYS / np.linalg.norm(KEYS, axis=-1, keepdims=True)


def run(rule, keys, query=QUERY, **writes):
    """(context, weights, contexts of keys without order, their weights or None) in float64."""

    def both(query, keys, values):
        written = make_writes(keys, values, **{name: jnp.asarray(x) for name, x in writes.items()})
        context = chunked(rule, query, written, 2)[1]
        if rule.ordered:
            return context, dense(rule, query, written)[1]
        return (
            context,
            dense(rule, query, written)[1],
            rule.read(write_all(rule, written), query),
            rule.weights(query, written, causal=False),
        )

    with jax.enable_x64(True):
        return compiled(both)(query, keys, VALUES)


def test_linear_attention_with_the_identity_is_a_sum_of_outer_products():
    context, weights, unordered, _ = run(Linear(), KEYS)
    memory = np.zeros((3, 2))
    for t in range(5):
        memory += np.outer(KEYS[t], VALUES[t])
        np.testing.assert_allclose(context[t], QUERY[t] @ memory, atol=1e-12)
    np.testing.assert_allclose(weights, np.tril(QUERY @ KEYS.T), atol=1e-12)
    np.testing.assert_allclose(unordered, QUERY @ memory, atol=1e-12)


def test_normalized_weights_sum_to_one_and_need_features_that_are_not_negative():
    positive = np.abs(KEYS)
    _, weights, unordered, all_weights = run(Linear(normalized=True), positive, query=np.abs(QUERY))
    np.testing.assert_allclose(weights.sum(-1), 1)
    expected = np.abs(QUERY) @ positive.T
    np.testing.assert_allclose(all_weights, expected / expected.sum(-1, keepdims=True))
    np.testing.assert_allclose(unordered, all_weights @ VALUES)
    for feature_map in FEATURE_MAPS.values():
        assert bool(np.all(np.asarray(feature_map.apply(jnp.linspace(-3, 3, 7))) >= 0)) == feature_map.non_negative
        if feature_map.non_negative:
            check_feature_map(feature_map, normalized=True)
    check_feature_map(FEATURE_MAPS["identity"], normalized=False)
    with pytest.raises(ValueError, match=r"cannot be normalized.* take feature_map elu_plus_one or relu"):
        check_feature_map(FEATURE_MAPS["identity"], normalized=True)


def test_a_query_that_reads_nothing_gets_zeros():
    """No feature in common with any key: the sum of the weights is zero."""
    query, keys = np.eye(3)[[0, 1, 0, 0, 0]], np.eye(3)[[1, 1, 1, 1, 1]]
    context, weights, *_ = run(Linear(normalized=True), keys, query=query)
    np.testing.assert_array_equal(context[[0, 2, 3, 4]], 0)
    np.testing.assert_array_equal(weights[0], 0)
    assert np.all(np.isfinite(context))


def test_the_delta_rule_is_one_step_of_descent_for_each_pair():
    context, _ = run(Delta(), UNIT, rates=RATES)
    loss = lambda memory, key, value: jnp.sum(jnp.square(key @ memory - value)) / 2  # noqa: E731
    with jax.enable_x64(True):
        slope, memory = jax.jit(jax.grad(loss)), np.zeros((3, 2))
        for t in range(5):
            memory = memory - RATES[t] * np.asarray(slope(memory, UNIT[t], VALUES[t]))
            np.testing.assert_allclose(context[t], QUERY[t] @ memory, atol=1e-12)


@pytest.mark.parametrize("gates", [np.zeros((5, 1)), GATES], ids=["open", "gated"])
def test_the_delta_rule_has_the_weights_of_one_triangular_system(gates):
    """W = tril(D Q K') (I + stril(diag(b) D K K'))^-1 diag(b), D_ij = exp(c_i - c_j), c the cumulative log decay."""
    context, weights = run(Delta(), UNIT, rates=RATES, log_decay=gates)
    total = np.cumsum(gates)
    fading = np.exp(total[:, None] - total)
    system = np.eye(5) + np.tril(RATES[:, None] * fading * (UNIT @ UNIT.T), -1)
    expected = np.tril(fading * (QUERY @ UNIT.T)) @ np.linalg.solve(system, np.diag(RATES))
    np.testing.assert_allclose(weights, expected, atol=1e-12)
    np.testing.assert_allclose(context, expected @ VALUES, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 3])
def test_mesa_is_ridge_regression_for_each_query(steps):
    """As least squares: a row sqrt(weight) (key, value) for each pair, and one of sqrt(ridge) for each column."""
    ridge = np.array([0.4, 1.0, 0.7])
    with jax.enable_x64(True):
        rule = Mesa(ridge=jnp.asarray(ridge), steps=steps)
    context, weights, *_ = run(rule, KEYS, rates=RATES, log_decay=GATES)
    for t in range(5):
        scale = np.sqrt(RATES * np.exp(np.cumsum(GATES)[t] - np.cumsum(GATES)))[: t + 1, None]
        rows = np.concatenate([scale * KEYS[: t + 1], np.diag(np.sqrt(ridge))])
        right = np.concatenate([scale * VALUES[: t + 1], np.zeros((3, 2))])
        fitted = np.linalg.lstsq(rows, right)[0]
        np.testing.assert_allclose(context[t], QUERY[t] @ fitted, atol=1e-10)
    np.testing.assert_allclose(weights @ VALUES, context, atol=1e-10)


def test_a_ridge_regression_of_keys_without_order():
    _, _, unordered, weights = run(Mesa(ridge=0.3), KEYS, rates=RATES)
    solved = np.linalg.solve((KEYS.T * RATES) @ KEYS + 0.3 * np.eye(3), QUERY.T).T
    np.testing.assert_allclose(weights, solved @ KEYS.T * RATES, atol=1e-10)
    np.testing.assert_allclose(unordered, weights @ VALUES, atol=1e-10)


def test_fewer_keys_than_columns_solve_smaller_systems():
    """An empty memory that is given, not None, takes the systems of all columns; a key of rate 0 is not written."""
    rng = np.random.default_rng(0)
    query, keys, values = rng.normal(size=(3, 4, 7))
    rates, fade = np.array([0.7, 0.0, 1.3, 0.2]), -rng.uniform(0.1, 2, (4, 1))
    with jax.enable_x64(True):
        arrays = [jnp.asarray(x) for x in (query, keys, values, rates, fade)]
        rule = Mesa(ridge=jnp.asarray(rng.uniform(0.3, 2, 7)))

        def contexts(query, keys, values, rates, fade, filled):
            writes = make_writes(keys, values, rates=rates, log_decay=fade)
            return jnp.sin(rule.chunk(rule.start(writes) if filled else None, query, writes)[1]).sum()

        found, expected = (
            compiled(jax.value_and_grad(partial(contexts, filled=filled), (0, 1, 2, 4)))(*arrays)
            for filled in (False, True)
        )
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.slow
def test_fewer_steps_of_conjugate_gradient_are_an_approximation():
    exact = run(Mesa(ridge=0.3), KEYS)[0]
    errors = [np.abs(run(Mesa(ridge=0.3, steps=n), KEYS)[0] - exact).max() for n in (1, 3)]
    assert errors[0] > 1e-2 and errors[1] < 1e-10


def test_mesa_refuses_a_decay_for_each_column_and_delta_keys_without_order():
    writes = make_writes(jnp.asarray(KEYS), jnp.asarray(VALUES), log_decay=jnp.zeros((5, 3)))
    with pytest.raises(ValueError, match="log_decay has 3 columns; expected 1 for all of a key"):
        Mesa().start(writes)
    with pytest.raises(ValueError, match="delta rule needs causal keys"):
        Delta().weights(jnp.asarray(QUERY), writes, causal=False)


@pytest.mark.parametrize("rule", [Linear(), Linear(normalized=True), Mesa()], ids=["linear", "divided", "mesa"])
def test_keys_without_order_fade_by_what_is_written_after_them(rule):
    positive = np.abs(KEYS)
    _, weights, unordered, all_weights = run(rule, positive, query=np.abs(QUERY), rates=RATES, log_decay=GATES)
    np.testing.assert_allclose(all_weights @ VALUES, unordered, atol=1e-12)
    np.testing.assert_allclose(all_weights[-1], weights[-1], atol=1e-12)  # the last position has all before it


def test_unit_keeps_zero():
    np.testing.assert_array_equal(unit(jnp.zeros(3)), 0)
    np.testing.assert_allclose(np.linalg.norm(unit(jnp.asarray(KEYS)), axis=-1), 1, rtol=1e-6)
