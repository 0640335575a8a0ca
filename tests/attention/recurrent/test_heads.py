"""Memories that are written, in language model and Transformer: cached decoding, padding, causality, options."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of
from tiny_seq2seq import PAD, build, random_params, sentences

from attn_jax.attention.caches import CAUSAL, latest
from attn_jax.attention.recurrent.heads import RECURRENT, RecurrentHeads
from attn_jax.errors import UserError
from attn_jax.models.module import TO_SOURCE

BATCH = sentences([(7, 3), (4, 6), (1, 5), (0, 0)], 8, 7)  # source, target; the last row is padding
REAL = BATCH["target_out"] != PAD
ON_DEVICE = jax.tree.map(jnp.asarray, BATCH)
WIDTH, HEADS = 8, 2
LAYERS = dict(num_heads=HEADS, feed_forward_size=12, num_layers=1)
CHUNK = dict(chunk_size=4)
LANGUAGE = dict(name="language_model", hidden_size=WIDTH, **LAYERS)
ENCODED = dict(name="transformer", hidden_size=WIDTH, encoder=dict(name="transformer", **LAYERS), decoder=LAYERS)
# One by itself; that every kind may be cut anywhere is in test_mixer.py.
CASES = {"delta": dict(**LANGUAGE, attention=dict(name="delta", **CHUNK))}
CASES |= {
    "convolution, gate, two layers": dict(
        **LANGUAGE | dict(num_layers=2), attention=dict(name="gated_delta", gate=True, convolution=4, **CHUNK)
    ),
    "transformer, linear in all places": dict(**ENCODED, attention=dict(name="linear", **CHUNK)),
    "transformer, mesa decoder, ridge to the source": dict(
        **ENCODED,
        attention=dict(score="dot"),
        decoder__attention=dict(name="mesa", steps=4, **CHUNK),
        decoder__source_attention=dict(name="ridge", steps=4, **CHUNK),
    ),
}


def whole(model, params, batch):
    """log_probs [b, t, v] of one pass over the target."""

    def run(module, batch):
        states, _ = module.unroll(batch["source"], batch["target_in"])
        return module.log_probs(states)

    return model.module.apply({"params": params}, batch, method=run)


@functools.cache
def measured(name):
    model = build(**CASES[name])
    params = random_params(model, BATCH, scale=0.4)

    @compiled
    def run(params, batch):
        memory, state = model.start(params, batch["source"])
        last, steps = jax.lax.scan(functools.partial(model.step, params, memory), state, batch["target_in"].T)
        later = batch | {"target_in": batch["target_in"].at[:, 4].set(9)}
        longer = jax.tree.map(lambda *x: jnp.pad(jnp.concatenate(x), ((0, 0), (0, 3))), batch, later)
        both = jnp.split(whole(model, params, longer)[:, :7], 2)
        return both, jnp.swapaxes(steps, 0, 1), jax.tree.leaves(last.caches), model.maps(params, batch)

    return run(params, ON_DEVICE)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_decoding_with_a_memory_of_fixed_size_is_teacher_forcing(name):
    (expected, later), steps, caches, _ = measured(name)
    assert expected[REAL].std() > 0.1
    np.testing.assert_allclose(steps[REAL], expected[REAL], atol=2e-5)
    np.testing.assert_allclose(later[:, :4], expected[:, :4], atol=1e-5)
    assert np.abs(later[1, 4:6] - expected[1, 4:6]).max() > 1e-3
    width = WIDTH // HEADS
    for cache in caches:  # a state, or the last inputs of a convolution: nothing has an axis of positions
        assert cache.shape[2:] in ((width, width), (width, width + 1), (24,))
    assert sum(cache[..., 0].size for cache in caches if cache.shape[-1] == 24) == (2 * 4 * 3 if "conv" in name else 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["delta", "transformer, linear in all places"])
def test_a_model_has_maps_as_of_other_attention(name):
    weights = measured(name)[-1]
    if name == "delta":
        (inside,) = weights.values()
        assert inside.shape == (4, 1, 2, 15, 15) and np.all(np.triu(inside[0, 0, 0], 1) == 0)
    else:
        assert len(weights) == 3
        to_source = weights[TO_SOURCE][:, 0]
        np.testing.assert_allclose(np.moveaxis(to_source, 1, 2)[REAL].sum(-1), 1, rtol=1e-5)
        assert np.all(np.moveaxis(to_source, 3, 1)[BATCH["source"] == PAD] == 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(**ENCODED, attention=dict(name="delta")), "needs causal keys.* expected map, linear, ridge there"),
        (dict(**ENCODED, decoder__source_attention="gated_linear"), "gated_linear needs causal keys"),
        (dict(**LANGUAGE, positions="rotary", attention=dict(name="mesa")), "positions rotary"),
        (dict(**LANGUAGE, num_kv_heads=1, attention=dict(name="mesa")), "num_kv_heads is 1"),
        (
            dict(**LANGUAGE, attention=dict(name="linear", feature_map="identity")),
            "cannot be normalized by the sum of its weights; take feature_map elu_plus_one or relu",
        ),
        (
            dict(**LANGUAGE, attention=dict(name="linear", chunk_size=0)),
            "model.attention.chunk_size is 0; expected at least 1",
        ),
    ],
)
def test_what_does_not_go_together_is_told_in_one_line(options, message):
    with pytest.raises(UserError, match=message) as raised:
        build(**options)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "gated_linear", "gated_delta", "mesa"])
def test_heads_are_their_formula_from_the_input_to_the_output(name):
    """f(q), f(k), v, rate and decay of the input; a write and a read at each position; norm, gate, projection."""
    kind, n, width = RECURRENT[name], 5, 3
    heads = RecurrentHeads(kind=kind, num_heads=2, features=2 * width, chunk_size=2, gate=True, order=CAUSAL)
    x, real = np.random.default_rng(0).normal(size=(1, n, 2 * width)).astype(np.float32), jnp.ones((1, n), bool)
    options = dict(method="extend")
    params = params_of(heads, x, key_mask=real, scale=1.0, **options)
    found = compiled(lambda x, real: heads.apply({"params": params}, x, key_mask=real, **options)[1].context)(x, real)

    def dense(layer, y=x[0]):
        return y @ layer["kernel"] + layer.get("bias", 0)

    sigmoid = lambda y: 1 / (1 + np.exp(-y))  # noqa: E731
    query, keys, values = (dense(params[part]).reshape(n, 2, width) for part in ("query", "key", "value"))
    if kind.maps:
        query, keys = (np.where(y > 0, y + 1, np.exp(y)) for y in (query, keys))
    else:
        query, keys = (y * sigmoid(y) for y in (query, keys))
        query, keys = (y / np.linalg.norm(y, axis=-1, keepdims=True) for y in (query, keys))
    rates = sigmoid(dense(params["rates"]["Dense_0"])) if kind.rated else np.ones((n, 2))
    kept = sigmoid(dense(params["decay"]["Dense_0"])) ** (1 / 16) if kind.decay else np.ones((n, 2))
    kept = kept.reshape(n, 2, -1)

    contexts = np.zeros((n, 2, width))
    for h in range(2):
        of_keys, memory, total = np.zeros((width, width)), np.zeros((width, width)), np.zeros(width)
        for t in range(n):
            q, k, v, rate, keep = query[t, h], keys[t, h], values[t, h], rates[t, h], kept[t, h][:, None]
            memory, of_keys, total = keep * memory, keep * of_keys, total + k
            v = v - k @ memory if name == "gated_delta" else v
            memory, of_keys = memory + rate * np.outer(k, v), of_keys + rate * np.outer(k, k)
            if name == "linear":
                contexts[t, h] = q @ memory / (q @ total)
            elif name == "mesa":
                ridge = 0.25 + np.log1p(np.exp(params["ridge"][h]))
                contexts[t, h] = np.linalg.solve(of_keys + np.diag(ridge), q) @ memory
            else:
                contexts[t, h] = q @ memory
    if name != "linear":
        contexts /= np.sqrt(np.mean(contexts**2, axis=-1, keepdims=True) + 1e-5)
        contexts *= params["norm"]["scale"]
    gated = contexts.reshape(n, -1) * sigmoid(dense(params["context_gate"]["Dense_0"]))
    np.testing.assert_allclose(found[0], dense(params["out"], gated), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_system_of_a_ridge_regression_is_solved_exactly_by_default():
    x = np.random.default_rng(0).normal(size=(1, 9, 8)).astype(np.float32)
    options = dict(key_mask=jnp.ones((1, 9), bool), method="extend")
    heads = lambda **steps: RecurrentHeads(kind=RECURRENT["mesa"], num_heads=2, features=8, order=CAUSAL, **steps)  # noqa: E731
    params = {"params": params_of(heads(), x, **options)}
    several = heads(), heads(steps=0), heads(steps=1)
    default, exact, few = compiled(lambda x: [each.apply(params, x, **options)[1].context for each in several])(x)
    np.testing.assert_array_equal(default, exact)
    assert np.abs(exact - few).max() > 1e-3


@pytest.mark.slow
def test_the_module_refuses_what_the_options_refuse():
    with pytest.raises(ValueError, match="chunk_size is 0; expected at least 1"):
        RecurrentHeads(kind=RECURRENT["delta"], num_heads=1, features=4, chunk_size=0)
    heads = functools.partial(RecurrentHeads, kind=RECURRENT["retention"], num_heads=1, features=4)
    given = jax.random.key(0), jnp.ones((1, 3, 4))
    options = dict(key_mask=jnp.ones((1, 3), bool), method="extend")
    with pytest.raises(ValueError, match="needs causal keys"):
        heads().init(*given, **options)
    with pytest.raises(ValueError, match="is read in causal order or as a whole"):
        heads(order=latest(2))
    with pytest.raises(ValueError, match="expected no bias"):
        heads(order=CAUSAL).init(*given, bias=jnp.abs, **options)


def test_other_features_reach_the_model():
    """Without the division by the sum, any feature map will do."""
    model = build(**LANGUAGE, attention=dict(name="linear", feature_map="identity", normalized=False))
    heads = model.module.stack.make_layer().make_attention()
    assert not heads.normalized and not heads.feature_map.non_negative


def test_the_heads_divide_the_width():
    with pytest.raises(ValueError, match="num_heads 3 does not divide the width 8"):
        RecurrentHeads(kind=RECURRENT["delta"], num_heads=3, features=8)
