"""Gates of one are a GRU, gates of zero are nothing, and the gate network is its formula."""

import jax
import jax.numpy as jnp
import numpy as np
from arrays import compiled, params_of

from attn_jax.attention import Attended, build_attention
from attn_jax.attention.normalizers import hardmax
from attn_jax.layers.rnn import CELLS, Recurrence
from attn_jax.models.memory_networks.episodes import (
    EPISODE_CELLS,
    GatedEpisode,
    GateNetwork,
    SoftEpisode,
    independent_sigmoid,
    sigmoid_cross_entropy,
    softmax_cross_entropy,
)

B, N, D = 2, 5, 3
RNG = np.random.default_rng(0)
FACTS = jnp.asarray(RNG.normal(size=(B, N, D)), jnp.float32)
COUNT = np.array([5, 3])
MASK = jnp.arange(N) < COUNT[:, None]
GATES = {"one": [1.0] * N, "zero": [0.0] * N, "then zero": [1.0, 1.0, 0.0, 0.0, 0.0], "half": [0.5, 0.0, 0.0, 0.0, 0.0]}


def gru_params():
    return params_of(Recurrence(cell=CELLS["gru"], features=D), FACTS, MASK)


@compiled
def contexts(params, cell_params, facts, mask):
    """(the states of a GRU; of either cell, the context for each of GATES; that of no facts)."""
    _, states = Recurrence(cell=CELLS["gru"], features=D).apply({"params": params}, facts, mask)
    found = {}
    for name, cell in EPISODE_CELLS.items():
        variables = {"params": cell_params[name]}
        episode = GatedEpisode(cell=cell, features=D)
        prepared = episode.apply(variables, facts, method="prepare")
        for gates, values in GATES.items():
            weights = jnp.broadcast_to(jnp.array(values), (B, 1, N))
            attended = Attended(jnp.zeros((B, 1, D)), weights, jnp.zeros((B, 1)))
            found[name, gates] = episode.apply(variables, prepared, attended, mask)
        found[name, "nothing"] = episode.apply(variables, prepared, attended, jnp.zeros_like(mask))
    return states, list(found.values())


def all_contexts(params, cell_params):
    states, found = contexts(params, cell_params, FACTS, MASK)
    return states, dict(zip([(c, g) for c in EPISODE_CELLS for g in (*GATES, "nothing")], found, strict=True))


def test_gates_of_one_are_a_gru_and_gates_of_zero_leave_the_state():
    """The gates of the attention GRU take the place of 1 - z: of a GRU whose z is 0 where its gates are 1."""
    params = gru_params()
    without_z = [0, 2]
    take = lambda x: np.concatenate([np.split(np.asarray(x), 3, axis=-1)[i] for i in without_z], axis=-1)  # noqa: E731
    attention_gru = {"input": jax.tree.map(take, params["input"]), "kernel": take(params["kernel"])}
    attention_gru["candidate_bias"] = params["candidate_bias"]
    states, found = all_contexts(params, {"gated_gru": params, "attention_gru": attention_gru})
    np.testing.assert_allclose(found["gated_gru", "one"], states[np.arange(B), COUNT - 1], atol=1e-6)
    np.testing.assert_allclose(found["gated_gru", "then zero"], states[:, 1], atol=1e-6)
    np.testing.assert_allclose(found["gated_gru", "half"], states[:, 0] / 2, atol=1e-6)

    bias = np.array(params["input"]["bias"])
    bias[D : 2 * D] = -100.0
    states, found = all_contexts(
        params | {"input": params["input"] | {"bias": bias}}, {"gated_gru": params, "attention_gru": attention_gru}
    )
    np.testing.assert_allclose(found["attention_gru", "one"], states[np.arange(B), COUNT - 1], atol=1e-6)
    np.testing.assert_allclose(found["attention_gru", "then zero"], states[:, 1], atol=1e-6)
    np.testing.assert_allclose(found["attention_gru", "half"], states[:, 0] / 2, atol=1e-6)
    for cell in EPISODE_CELLS:
        assert np.all(found[cell, "zero"] == 0) and np.all(found[cell, "nothing"] == 0)
        assert np.abs(found[cell, "one"]).min() > 0


def test_soft_attention_to_one_fact_is_that_fact():
    score = GateNetwork(features=4)
    query = jnp.asarray(RNG.normal(size=(B, 1, 2 * D)), jnp.float32)
    params = params_of(score, query, FACTS)

    @compiled
    def run(query, facts, mask):
        attention = build_attention(score=GateNetwork(features=4), normalize=hardmax)
        variables = {"params": {"map": {"score": params}}}
        memory = attention.apply(variables, facts, key_mask=mask, method="prepare")
        attended = attention.apply(variables, query, memory)
        return (
            SoftEpisode().apply({}, facts, attended, mask),
            attended.weights,
            score.apply({"params": params}, query, facts),
        )

    context, weights, scores = run(query, FACTS, MASK)
    best = np.where(MASK, scores[:, 0], -np.inf).argmax(-1)
    assert np.all(weights[:, 0] == np.eye(N)[best])
    np.testing.assert_array_equal(context, np.asarray(FACTS)[np.arange(B), best])


def test_the_gate_network_is_its_formula():
    query = jnp.asarray(RNG.normal(size=(B, 1, 2 * D)), jnp.float32)
    f, (q, m) = np.asarray(FACTS), (x[:, 0][:, None] for x in np.split(np.asarray(query), 2, axis=-1))
    for all_terms in (False, True):
        score = GateNetwork(features=4, all_terms=all_terms)
        params = params_of(score, query, FACTS)
        p = jax.tree.map(np.asarray, params)
        parts = {"question": [f * q, np.abs(f - q)], "memory": [f * m, np.abs(f - m)]}
        if all_terms:
            for name, x in (("question", q), ("memory", m)):
                parts[name].append(np.einsum("bnd,bqd->bn", f, x @ p["bilinear"]["kernel"])[..., None])
        hidden = p["memory"]["bias"] + sum(np.concatenate(z, -1) @ p[name]["kernel"] for name, z in parts.items())
        if all_terms:
            for name, x in (("fact_alone", f), ("question_alone", q), ("memory_alone", m)):
                hidden = hidden + x @ p[name]["kernel"]
        expected = np.tanh(hidden) @ p["vector"]["kernel"] + p["vector"]["bias"]
        result = compiled(lambda p, q, f, s=score: s.apply({"params": p}, q, f))(params, query, FACTS)
        np.testing.assert_allclose(result[:, 0], expected[..., 0], atol=1e-5)
        # Every part has its weights: two of each product or distance, and what `all_terms` adds.
        assert params["question"]["kernel"].shape == (2 * D + all_terms, 4)


def test_gates_and_their_losses_are_those_of_sigmoids_and_of_a_softmax():
    scores = jnp.array(
        [[2.0, -1.0, 0.5, np.nan], [1.0, np.inf, 3.0, 2.0], [np.nan, 1.0, 2.0, 3.0], [200.0, 1.0, -200.0, 0]]
    )
    mask = jnp.array([[True, True, True, False], [True, False, False, False], [False] * 4, [True] * 4])
    slot = jnp.array([2, 0, -1, 1])

    @compiled
    def run(scores, mask, slot):
        losses = {}
        for loss in (softmax_cross_entropy, sigmoid_cross_entropy):
            for key, where in (("chosen", slot), ("none", jnp.full_like(slot, -1))):
                losses[loss.__name__, key] = jax.value_and_grad(lambda s, w=where, f=loss: jnp.sum(f(s, w, mask)))(
                    scores
                )
            losses[loss.__name__, "rows"] = loss(scores, slot, mask)
        gates, pull = jax.vjp(lambda s: independent_sigmoid(s, mask), scores)
        return gates, pull(jnp.ones_like(gates))[0], list(losses.values())

    gates, gradient, losses = run(scores, mask, slot)
    names = [
        (f.__name__, key) for f in (softmax_cross_entropy, sigmoid_cross_entropy) for key in ("chosen", "none", "rows")
    ]
    losses = dict(zip(names, losses, strict=True))
    sigmoid = lambda x: 1 / (1 + np.exp(-np.float64(x)))  # noqa: E731
    np.testing.assert_allclose(gates[0, :3], sigmoid([2.0, -1.0, 0.5]), rtol=1e-6)
    assert np.all(gates[~np.asarray(mask)] == 0) and np.all(gradient[~np.asarray(mask)] == 0)
    assert np.all(np.isfinite(gradient))

    row = np.array([2.0, -1.0, 0.5])
    one, each = losses["softmax_cross_entropy", "rows"], losses["sigmoid_cross_entropy", "rows"]
    np.testing.assert_allclose(one, [np.log(np.exp(row).sum()) - 0.5, 0, 0, 199.0], rtol=1e-5)
    expected = -np.log(1 - sigmoid(2.0)) - np.log(1 - sigmoid(-1.0)) - np.log(sigmoid(0.5))
    np.testing.assert_allclose(each[:3], [expected, -np.log(sigmoid(1.0)), 0], rtol=1e-5)
    np.testing.assert_allclose(each[3], 200 - np.log(sigmoid(1.0)) - np.log(0.5), rtol=1e-5)
    for name in ("softmax_cross_entropy", "sigmoid_cross_entropy"):
        assert np.all(np.isfinite(losses[name, "chosen"][1])) and np.any(losses[name, "chosen"][1] != 0)
        value, gradient = losses[name, "none"]
        assert value == 0 and np.all(gradient == 0)
