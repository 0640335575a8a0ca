"""Forget gates are an ALiBi of data, contexts are multiplied by their gates, and nothing is seen of later positions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import check_derivatives, compiled, params_of

from attn_jax import MultiHead
from attn_jax.attention.build import build_attention
from attn_jax.attention.caches import CAUSAL
from attn_jax.attention.forgetting import ForgetGates, forgetting_bias
from attn_jax.attention.masks import causal_mask
from attn_jax.layers.positions import Alibi

RNG = np.random.default_rng(0)
BATCH, LENGTH, WIDTH, HEADS = 2, 6, 8, 4
X = jnp.asarray(RNG.normal(size=(BATCH, LENGTH, WIDTH)), jnp.float32)
PLACES = jnp.broadcast_to(jnp.arange(LENGTH), (BATCH, LENGTH))


def test_the_bias_is_the_logarithm_of_the_product_of_the_gates_between():
    gates = RNG.uniform(0.2, 1, size=(3, LENGTH))
    places = np.array([1, 4, 5])
    bias = compiled(forgetting_bias)(np.log(gates).astype(np.float32), places)
    for h, (i, q), k in ((h, iq, k) for h in range(3) for iq in enumerate(places) for k in range(LENGTH)):
        between = gates[h, min(q, k) + 1 : max(q, k) + 1]
        np.testing.assert_allclose(bias[h, i, k], np.log(between).sum(), atol=1e-5)


def test_equal_gates_are_alibi():
    alibi = Alibi(num_heads=HEADS)
    log_gates = jnp.asarray(-np.broadcast_to(alibi.slopes()[:, None], (BATCH, HEADS, LENGTH)))
    bias = compiled(forgetting_bias)(log_gates, PLACES[:, None])
    np.testing.assert_allclose(
        bias, np.broadcast_to(alibi.of_distance(PLACES[:, None] - PLACES[..., None]), bias.shape), atol=1e-5
    )


def test_derivatives_in_float64():
    total = lambda x: jnp.sum(jnp.sin(forgetting_bias(jax.nn.log_sigmoid(x), jnp.asarray([0, 2, 4]))))  # noqa: E731
    check_derivatives(total, RNG.normal(size=(2, 5)))


def test_a_position_after_the_last_key_counts_as_that_of_the_last():
    log_gates = jnp.log(jnp.array([0.5, 0.25, 0.5]))
    np.testing.assert_array_equal(
        forgetting_bias(log_gates, jnp.array([2, 9]))[0], forgetting_bias(log_gates, jnp.array([2, 9]))[1]
    )


@pytest.mark.slow
def test_a_masked_key_forgets_nothing_as_if_it_were_not_there():
    heads = heads_of(forgets=True)
    params = {"params": params_of(heads, X, X, positions=PLACES)}

    @compiled
    def run(x):
        masked = heads.apply(params, x, method="prepare", key_mask=jnp.arange(LENGTH) != 1)
        deleted = heads.apply(params, jnp.delete(x, 1, axis=1), method="prepare")
        last = lambda memory, place: heads.apply(params, x[:, -1:], memory, positions=jnp.full((BATCH, 1), place))  # noqa: E731
        return last(masked, LENGTH - 1).context, last(deleted, LENGTH - 2).context

    np.testing.assert_allclose(*run(X), rtol=1e-5)


def heads_of(groups=0, forgets=False, normalize="softmax", **options):
    forget_heads = (groups or HEADS) if forgets else 0
    attention = build_attention(score="scaled_dot", normalize=normalize, forget_heads=forget_heads)
    return MultiHead(attention=attention, num_heads=HEADS, features=WIDTH, num_kv_heads=groups, order=CAUSAL, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "normalize"), [(0, "softmax"), (2, "stick_breaking")])
def test_steps_with_a_cache_are_the_whole_and_nothing_is_seen_of_later_positions(groups, normalize):
    heads = heads_of(groups, forgets=True, gate=True, normalize=normalize)
    params = params_of(heads, X, X, positions=PLACES)
    assert params["attention"]["map"]["gates"]["Dense_0"]["kernel"].shape == (WIDTH, groups or HEADS)

    def whole(params, x):
        return heads.apply({"params": params}, x, x, mask=causal_mask(LENGTH), positions=PLACES).context

    def steps(params, x):
        call = heads.bind({"params": params})
        cache, contexts = call.start(BATCH, LENGTH), []
        for i in range(LENGTH):
            one = dict(key_mask=jnp.ones((BATCH, 1), bool), positions=PLACES[:, i : i + 1])
            cache, attended = call.extend(x[:, i : i + 1], cache=cache, **one)
            contexts.append(attended.context)
        return jnp.concatenate(contexts, axis=1)

    params = jax.tree.map(jnp.asarray, params)
    together = compiled(whole)(params, X)
    np.testing.assert_allclose(compiled(steps)(params, X), together, atol=1e-5)
    later = X.at[:, 4:].add(RNG.normal(size=(2, WIDTH)).astype(np.float32))
    changed = compiled(whole)(params, later)
    np.testing.assert_array_equal(changed[:, :4], together[:, :4])
    assert np.all(np.abs(changed[:, 4:] - together[:, 4:]).max(-1) > 1e-4)


@pytest.mark.slow
def test_weights_are_those_of_the_scores_with_the_bias():
    heads = heads_of(forgets=True)
    params = params_of(heads, X, X, positions=PLACES)

    def run(module, params, **options):
        return compiled(lambda p: module.apply({"params": p}, X, X, **options).weights)(params)

    gates = (
        X @ params["attention"]["map"]["gates"]["Dense_0"]["kernel"]
        + params["attention"]["map"]["gates"]["Dense_0"]["bias"]
    )
    bias = forgetting_bias(jnp.swapaxes(jax.nn.log_sigmoid(gates), 1, 2), PLACES[:, None])
    plain = {name: leaf for name, leaf in params.items() if name != "attention"}
    expected = run(heads_of(), plain, bias=bias)
    np.testing.assert_allclose(run(heads, params, positions=PLACES), expected, atol=1e-6)
    with pytest.raises(ValueError, match="a memory with forget gates needs the positions of the queries"):
        heads.apply({"params": params}, X, X)


def test_a_gate_multiplies_the_context():
    query, keys = X[:, :3], X
    gated, plain = build_attention(score="dot", gate=True), build_attention(score="dot")
    params = params_of(gated, query, keys, jnp.ones((BATCH, LENGTH, 5)))
    values = jnp.asarray(RNG.normal(size=(BATCH, LENGTH, 5)), jnp.float32)
    attended = compiled(lambda p: gated.apply({"params": p}, query, keys, values).context)(params)
    dense = params["read"]["context_gate"]["Dense_0"]
    factor = 1 / (1 + np.exp(-(query @ dense["kernel"] + dense["bias"])))
    np.testing.assert_allclose(attended, plain.apply({}, query, keys, values).context * factor, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_gate_of_heads_is_made_of_the_input_of_all_heads():
    heads, plain = heads_of(gate=True), heads_of()
    params = params_of(heads, X, X)
    rest = {name: leaf for name, leaf in params.items() if name != "context_gate"}
    rest["out"] = {"kernel": jnp.eye(WIDTH), "bias": jnp.zeros(WIDTH)}
    got, contexts = compiled(
        lambda p, rest: (heads.apply({"params": p}, X, X).context, plain.apply({"params": rest}, X, X).context)
    )(params, rest)
    dense = params["context_gate"]["Dense_0"]
    factor = 1 / (1 + np.exp(-(X @ dense["kernel"] + dense["bias"])))
    np.testing.assert_allclose(got, (contexts * factor) @ params["out"]["kernel"] + params["out"]["bias"], atol=1e-5)


@pytest.mark.parametrize(("decay_time", "gate"), [(0.0, 0.5), (128.0, np.exp(-1 / 128)), (0.02, np.exp(-50.0))])
def test_gates_start_at_one_half_or_by_their_decay_time(decay_time, gate):
    gates = ForgetGates(num_heads=HEADS, decay_time=decay_time)
    nothing = jnp.zeros((1, 3, WIDTH))
    np.testing.assert_allclose(np.exp(gates.apply(gates.init(jax.random.key(0), nothing), nothing)), gate, rtol=1e-5)
