"""Xu's three tricks: even use of keys, entropy, the selector, and mean contexts in some trajectories."""

import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_seq2seq import build, random_params, sentences

from attn_jax.errors import UserError
from attn_jax.models.seq2seq.objectives import ElboObjective
from attn_jax.models.seq2seq.penalties import Penalties

BATCH = jax.tree.map(jnp.asarray, sentences([(4, 3), (3, 2)], 4, 3))
BAHDANAU = dict(decoder="bahdanau", encoder="gru", encoder__bidirectional=False, decoder__cell="gru")
SAMPLED = dict(BAHDANAU, objective="trajectory", objective__baseline="none")


def total(weights, penalties):
    """The terms of one target whose tokens and keys are all real."""
    weights = jnp.asarray(weights, jnp.float32)[None]
    real, mask = jnp.ones(weights.shape[:2], bool), jnp.ones((1, weights.shape[2]), bool)
    return penalties(weights, real=real, key_mask=mask).sum()


@pytest.mark.parametrize(("keys", "tokens"), [(36, 5), (196, 12)])
def test_even_weights_different_keys_and_a_single_key(keys, tokens):
    call = compiled(lambda weights: total(weights, Penalties(doubly_stochastic=2.0)))
    for weights, expected in (
        (np.full((tokens, keys), 1 / keys), 2 * keys * (1 - tokens / keys) ** 2),
        (np.eye(tokens, keys), 2 * (keys - tokens)),
        (np.eye(1, keys).repeat(tokens, 0), 2 * (keys - 1 + (tokens - 1) ** 2)),
    ):
        np.testing.assert_allclose(call(weights), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["doubly_stochastic", "entropy", "coverage"])
def test_the_terms_of_weights_in_bfloat16_are_computed_in_float32(name):
    """Where the keys are read nearly evenly, the first is a sum of small differences."""
    scores = 0.1 * np.random.default_rng(0).normal(size=(2, 10, 10))
    half = jax.nn.softmax(jnp.asarray(scores)).astype(jnp.bfloat16)
    real = mask = jnp.ones((2, 10), bool)
    found, expected = (
        Penalties(**{name: 1.0})(weights, real=real, key_mask=mask) for weights in (half, half.astype(jnp.float32))
    )
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)


class Proposal(nn.Module):
    """The same weights whatever the target."""

    def __call__(self, readout, memory, *, targets, real, possible):
        return jnp.log(jnp.asarray([[[0.7, 0.3]]], jnp.float32))


def test_the_divergence_of_the_elbo_is_in_float32_for_weights_in_bfloat16():
    steps = types.SimpleNamespace(weights=jnp.asarray([[[0.703, 0.297]]], jnp.bfloat16))
    objective = ElboObjective(inference=Proposal())
    _, found = objective.apply({}, None, None, steps, targets=None, real=None, method="proposal")
    q, p = np.array([0.7, 0.3]), np.float64(np.asarray(steps.weights[0, 0]))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, [[np.sum(q * np.log(q / p))]], rtol=1e-2)


@pytest.mark.slow
def test_padding_of_tokens_and_keys_counts_nothing():
    weights = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(4), (1, 3)), jnp.float32)
    penalties = Penalties(doubly_stochastic=1.0, entropy=0.5)
    real, mask = jnp.ones((1, 3), bool), jnp.ones((1, 4), bool)
    pad = lambda x, *sizes: jnp.pad(x, [(0, size) for size in sizes])  # noqa: E731

    @compiled
    def run(weights):
        alone = penalties(weights, real=real, key_mask=mask)
        flat = Penalties(entropy=2.0)(jnp.full((1, 1, 4), 0.25), real=real[:, :1], key_mask=mask)
        return alone, penalties(pad(weights, 0, 2, 3), real=pad(real, 0, 2), key_mask=pad(mask, 0, 3)), flat

    alone, padded, flat = run(weights)
    np.testing.assert_allclose(padded[:, :3], alone, rtol=1e-6)
    assert not np.any(padded[:, 3:])
    np.testing.assert_allclose(flat, -2 * np.log(4), rtol=1e-6)


def gradients(model, params):
    @compiled
    def run(params):
        return jax.value_and_grad(lambda params: model.loss_fn(params, BATCH, jax.random.key(1))[0])(params)

    return run(params)


@pytest.fixture(scope="module")
def soft():
    model = build(**BAHDANAU)
    params = jax.tree.map(jnp.asarray, random_params(model, BATCH))
    return model, params, gradients(model, params)


@pytest.mark.slow
def test_the_loss_has_the_gradient_of_the_terms_and_its_own_value(soft):
    model, params, (value, plain) = soft
    penalties = Penalties(0.3, 0.2)
    weights = {"penalties__parts__doubly_stochastic__weight": 0.3, "penalties__parts__entropy__weight": 0.2}
    other = build(penalties=("doubly_stochastic", "entropy"), **weights, **BAHDANAU)
    assert other.module.penalties == penalties and model.module.penalties is None

    @compiled
    def terms(params):
        def of(params):
            weights = model.attention_weights(params, BATCH)
            real, mask = BATCH["target_out"] != 0, BATCH["source"] != 0
            return penalties(weights, real=real, key_mask=mask).sum()

        return jax.grad(of)(params)

    same, found = gradients(other, params)
    np.testing.assert_allclose(same, value, rtol=1e-5)
    expected = jax.tree.map(jnp.add, plain, terms(params))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5), found, expected)


@pytest.mark.slow
def test_a_selector_of_one_is_no_selector_and_of_zero_no_source():
    plain, model = (build(decoder__extras=x, decoder__bridge="zeros", **BAHDANAU) for x in ((), ("selector",)))
    params = jax.tree.map(jnp.asarray, random_params(model, BATCH))
    others = BATCH | {"source": jnp.where(BATCH["source"] != 0, 5, 0)}
    without = {name: part for name, part in params["decoder"].items() if name != "beta"}

    @compiled
    def run(params, without):
        def score(number, batch):
            beta = jax.tree.map(jnp.zeros_like, params["decoder"]["beta"]) | {"bias": jnp.full(1, number)}
            return model.score(params | {"decoder": params["decoder"] | {"beta": beta}}, batch)

        scores = [score(number, batch) for number in (60.0, -60.0) for batch in (BATCH, others)]
        return plain.score(params | {"decoder": without}, BATCH), *scores

    expected, one, other_source, zero, no_source = run(params, without)
    np.testing.assert_allclose(one, expected, rtol=1e-5)
    assert not np.allclose(one, other_source, rtol=1e-3)
    np.testing.assert_allclose(zero, no_source, rtol=1e-6)


@pytest.mark.slow
def test_trajectories_that_all_read_the_mean_are_soft_attention(soft):
    _, params, (value, plain) = soft
    model = build(objective__mean_probability=1.0, **SAMPLED)
    found, gradient = gradients(model, params)
    np.testing.assert_allclose(found, value, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5), gradient, plain)


@pytest.mark.slow
def test_a_coin_decides_for_a_sentence(soft):
    _, params, _ = soft
    rows = jax.tree.map(lambda x: jnp.repeat(x[:1], 40, axis=0), BATCH)
    models = {share: build(objective__mean_probability=share, **SAMPLED) for share in (0.0, 0.5, 1.0)}

    @compiled
    def run(params):
        arguments = rows["source"], rows["target_in"], rows["target_out"]
        rngs = {"sample": jax.random.key(3), "dropout": jax.random.key(4)}
        apply = lambda model: model.module.apply({"params": params}, *arguments, rngs=rngs, method="losses")  # noqa: E731
        return {share: apply(model).nll.sum(-1) for share, model in models.items()}

    losses = run(params)
    assert np.ptp(losses[1.0]) < 1e-5 < np.ptp(losses[0.0])
    like_soft = np.isclose(losses[0.5], losses[1.0][0], rtol=1e-5)
    assert 8 <= like_soft.sum() <= 32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            dict(BAHDANAU, objective="hard", decoder__extras=("selector",)),
            "model.decoder.extras selector acts on the mean context",
        ),
        (
            dict(decoder="none", penalties=("doubly_stochastic",)),
            "model.penalties; it is for a model.decoder that attends to the source",
        ),
        (
            dict(objective="markov", decoder__input_feeding=False, penalties=("entropy",)),
            "model.penalties need attention weights, which model.objective markov does not have",
        ),
    ],
)
def test_what_does_not_go_together(options, message):
    with pytest.raises(UserError, match=message):
        build(**options)
