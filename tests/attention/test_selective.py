"""Selective attention: what a query selects is left out by later queries, and by these alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled, params_of

from attn_jax import MultiHead
from attn_jax.attention.build import build_attention
from attn_jax.attention.caches import CAUSAL as CAUSAL_ORDER
from attn_jax.attention.caches import EVERYWHERE
from attn_jax.attention.selective import selected_before, selections
from attn_jax.attention.signed import Subtract

RNG = np.random.default_rng(0)
BATCH, LENGTH, WIDTH, HEADS = 2, 6, 8, 4
X = jnp.asarray(RNG.normal(size=(BATCH, LENGTH, WIDTH)), jnp.float32)
PLACES = jnp.broadcast_to(jnp.arange(LENGTH), (BATCH, LENGTH))
CAUSAL = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
SCORES = RNG.normal(0, 2, (LENGTH, LENGTH))


def heads_of(num_kv_heads=0, forgets=False, **options):
    forget_heads = (num_kv_heads or HEADS) if forgets else 0
    attention = build_attention(score="scaled_dot", forget_heads=forget_heads, **options)
    return MultiHead(
        attention=attention, num_heads=HEADS, features=WIDTH, num_kv_heads=num_kv_heads, order=CAUSAL_ORDER
    )


def both(scores):
    chosen = selections(scores, CAUSAL, jnp.arange(LENGTH))
    return chosen, selected_before(chosen)


def test_a_key_loses_the_positive_scores_that_earlier_queries_gave_it():
    chosen, left_out = compiled(both)(jnp.asarray(SCORES, jnp.float32))
    expected = np.zeros_like(SCORES)
    for i in range(LENGTH):
        for j in range(LENGTH):
            before = range(max(j + 1, 0), i)  # after the key itself, before the query
            expected[i, j] = sum(max(SCORES[q, j], 0) for q in before) if j else 0
    np.testing.assert_allclose(left_out, expected, atol=1e-5)
    assert np.all(chosen[:, 0] == 0) and np.all(np.diag(chosen) == 0) and np.any(chosen)
    assert np.all(left_out[:2] == 0)  # the first query that may select, at position 2, is not heard before position 3


def test_masking_a_position_is_deleting_it():
    keep = np.array([0, 1, 1, 0, 1, 1], bool)  # the first key that is left is not selected either
    mask = jnp.asarray(np.asarray(CAUSAL) & keep)
    got = compiled(lambda s: selected_before(selections(s, mask, jnp.arange(LENGTH))))(np.where(keep, SCORES, np.nan))
    few = np.tril(np.ones((4, 4), bool))
    alone = compiled(lambda s: selected_before(selections(s, jnp.asarray(few), jnp.arange(4))))(SCORES[keep][:, keep])
    np.testing.assert_allclose(got[keep][:, keep], alone, atol=1e-6)
    assert np.all(got[:, ~keep] == 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [dict(), dict(num_kv_heads=2, forgets=True)], ids=["own keys", "shared, forgetting"]
)
def test_steps_with_a_cache_are_the_whole_and_nothing_is_seen_of_later_positions(options):
    heads = heads_of(selective=True, **options)
    params = params_of(heads, X, X, positions=PLACES, scale=1.0)
    assert set(params) == set(params_of(heads_of(**options), X, X, positions=PLACES))  # nothing is learned besides

    def whole(params, x):
        mask = jnp.ones(x.shape[:2], bool)
        call = heads.bind({"params": params})
        entries, attended = call.extend(x, key_mask=mask, positions=PLACES)
        return attended.context, entries.keys[0]

    def steps(params, x):
        call = heads.bind({"params": params})
        cache, contexts = call.start(BATCH, LENGTH), []
        for i in range(LENGTH):
            one = dict(key_mask=jnp.ones((BATCH, 1), bool), positions=PLACES[:, i : i + 1])
            cache, attended = call.extend(x[:, i : i + 1], cache=cache, **one)
            contexts.append(attended.context)
        return jnp.concatenate(contexts, axis=1), cache.keys[0]

    def later(params, x):
        seen = lambda x: jnp.sum(jnp.sin(whole(params, x)[0][:, :4]))  # noqa: E731
        return jax.grad(seen)(x)

    params = jax.tree.map(jnp.asarray, params)
    context, selected = compiled(whole)(params, X)
    stepped, in_cache = compiled(steps)(params, X)
    np.testing.assert_allclose(stepped, context, atol=1e-5)
    np.testing.assert_allclose(in_cache, selected, atol=1e-5)
    assert np.all(selected[:, :, 0] == 0) and np.any(selected > 0)
    gradient = compiled(later)(params, X)
    assert np.all(gradient[:, 4:] == 0) and np.all(np.abs(gradient[:, :4]).max(-1) > 0)


def test_all_heads_leave_out_what_the_first_one_selected():
    heads = heads_of(selective=True)
    params = params_of(heads, X, X, positions=PLACES, scale=1.0)

    def run(params):
        call = heads.bind({"params": params})
        query, keys = (p.reshape(BATCH, LENGTH, HEADS, -1) for p in (call.query(X), call.key(X)))
        first = jnp.einsum("bqd,bkd->bqk", query[:, :, 0], keys[:, :, 0]) / jnp.sqrt(query.shape[-1])
        bias = -selected_before(selections(first, CAUSAL, PLACES))
        bias = jnp.broadcast_to(bias[:, None], (BATCH, HEADS, LENGTH, LENGTH))
        expected = heads_of().apply({"params": params}, X, X, mask=CAUSAL[None], bias=bias).weights
        return call(X, X, mask=CAUSAL[None], positions=PLACES).weights, expected

    got, expected = compiled(run)(params)
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_derivatives_in_float64():
    check_derivatives(lambda s: jnp.sum(jnp.sin(both(s)[1])), SCORES)


def test_what_cannot_select():
    heads, mask = heads_of(selective=True), jnp.ones((BATCH, LENGTH), bool)
    with pytest.raises(ValueError, match=r"Selective\(Map\(softmax\)\) needs causal keys"):
        everywhere = heads.clone(order=EVERYWHERE)
        everywhere.init(jax.random.key(0), X, key_mask=mask, positions=PLACES, method="extend")
    with pytest.raises(ValueError, match="selects by the first head of several; expected MultiHead"):
        build_attention(score="scaled_dot", selective=True).init(jax.random.key(0), X, X, positions=PLACES)
    with pytest.raises(ValueError, match="selective attention needs the positions of the queries"):
        heads.init(jax.random.key(0), X, X)
    two = MultiHead(
        attention=build_attention(score="scaled_dot", difference=Subtract(), selective=True),
        num_heads=2,
        features=WIDTH,
    )
    with pytest.raises(ValueError, match="two scores for each key; selective attention needs one"):
        two.init(jax.random.key(0), X, X, positions=PLACES)


@pytest.mark.slow
def test_in_bfloat16_many_small_selections_add_up():
    """Beside a sum of 16 a bfloat16 has steps of 1 / 8."""
    scores = jnp.full((2000, 2000), 0.01, jnp.bfloat16)
    mask = jnp.tril(jnp.ones((2000, 2000), bool))
    chosen = selections(scores, mask, jnp.arange(2000))
    assert chosen.dtype == jnp.float32
    np.testing.assert_allclose(selected_before(chosen)[-1, 1], 1997 * float(scores[0, 0]), rtol=1e-3)
