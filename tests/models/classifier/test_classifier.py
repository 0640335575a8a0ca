"""A class for a text: the loss is that of the class alone, padding changes nothing, the pooling is its formula."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_seq2seq import EOS, PAD, TARGET_VOCAB, build, random_params, sentences

from attn_jax.decoding.decode import greedy
from attn_jax.errors import UserError

LENGTHS = [(7, 2), (4, 2), (1, 2), (0, 0)]  # source; the class and eos; the last row is padding
BATCH = jax.tree.map(jnp.asarray, sentences(LENGTHS, 8, 3))
SMALL = dict(name="classifier", hidden_size=6, readout_size=5)
HEADS = dict(encoder="transformer", encoder__num_heads=2, encoder__feed_forward_size=7)
CASES = {
    "recurrent, structured": dict(
        encoder="lstm",
        pooling="structured",
        pooling__num_queries=3,
        pooling__penalty=0.5,
        attention=dict(score="tanh_key"),
    ),
    "convolutions": dict(encoder="conv"),
    "self-attention, structured sparsemax": dict(
        HEADS, pooling="structured", pooling__num_queries=2, attention=dict(score="dot", normalize="sparsemax")
    ),
}


def pooled(module, source):
    """The states of the encoder, and what pooling makes of them."""
    _, states = module.encoder(module.embedding(source) * module.embedding_size**0.5, source != PAD)
    return {"states": states, "pooled": module.pooling(states, key_mask=source != PAD)}


@functools.cache
def measured(name):
    model = build(**SMALL | CASES[name])
    params = random_params(model, BATCH)

    @compiled
    def run(params, batch):
        longer = {key: jnp.pad(value, ((0, 0), (0, 4))) for key, value in batch.items()}
        memory, state = model.start(params, batch["source"])
        state, first = model.step(params, memory, state, batch["target_in"][:, 0])
        _, second = model.step(params, memory, state, batch["target_in"][:, 1])
        options = dict(max_length=5, limits=jnp.full(4, 5), bos=2, eos=EOS, pad=PAD)
        return {
            "class": first,
            "after": second,
            "eval": model.eval_fn(params, batch),
            "longer": model.eval_fn(params, longer),
            "weights": model.attention_weights(params, batch),
            "train": jax.value_and_grad(lambda p: model.loss_fn(p, batch, jax.random.key(0))[0])(params),
            "metrics": model.loss_fn(params, batch, jax.random.key(0))[1],
            "decoded": greedy(
                functools.partial(model.step_top_k, params), *model.start(params, batch["source"]), **options
            ),
            "read": model.module.apply({"params": params}, batch["source"], method="read"),
            **model.module.apply({"params": params}, batch["source"], method=pooled),
        }

    return params, run(params, BATCH)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_class_is_a_sentence_of_one_word_whose_loss_is_that_of_the_class_alone(name):
    _, result = measured(name)
    nll = -result["class"][np.arange(3), BATCH["target_out"][:3, 0]]
    for metrics in (result["eval"]["loss"], result["longer"]["loss"], result["metrics"]["nll"]):
        assert metrics.count == 3
        np.testing.assert_allclose(metrics.total, nll.sum(), rtol=1e-5)
    np.testing.assert_allclose(result["train"][0], nll.sum(), rtol=1e-5)  # the penalty has a gradient, and no value
    correct = result["class"][:3].argmax(-1) == BATCH["target_out"][:3, 0]
    assert result["eval"]["accuracy"].total == correct.sum()
    np.testing.assert_allclose(np.exp(result["class"]).sum(-1), 1, rtol=1e-5)
    assert np.all(result["after"] == np.where(np.arange(TARGET_VOCAB) == EOS, 0.0, -np.inf))
    best = np.where(np.isin(np.arange(TARGET_VOCAB), (PAD, 2)), -np.inf, result["class"])
    np.testing.assert_array_equal(result["decoded"].tokens[:, 0], best.argmax(-1))
    np.testing.assert_allclose(result["decoded"].log_prob, best.max(-1), rtol=1e-5)
    # Weights are distributions over the source, and only a pooling with a penalty says so.
    np.testing.assert_allclose(result["weights"][:3, 0].sum(-1), 1, rtol=1e-5)
    assert np.all(result["weights"][:, 1:] == 0)
    assert np.all(np.moveaxis(result["weights"], 1, 2)[np.asarray(BATCH["source"]) == PAD] == 0)
    for leaf in jax.tree.leaves(result["train"]):
        assert np.all(np.isfinite(leaf))
    assert build(**SMALL | CASES[name]).module.pooling.has_penalty == bool(np.any(result["read"][2] != 0))


@pytest.mark.slow
def test_structured_pooling_is_its_formula():
    """A = softmax(Q tanh(W H + b)'), M = A H, and |A A' - I|^2."""
    params, result = measured("recurrent, structured")
    _, weights, penalty = result["read"]
    states, (vector, *_) = result["states"], result["pooled"]
    key = params["pooling"]["attention"]["map"]["score"]["key"]
    scores = np.einsum("qd,bsd->bqs", params["pooling"]["queries"], np.tanh(states @ key["kernel"] + key["bias"]))
    powers = np.exp(scores[:3]) * np.asarray(BATCH["source"] != PAD)[:3, None]
    expected = powers / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights[:3], expected, rtol=1e-5, atol=1e-7)
    contexts = np.einsum("bqs,bsd->bqd", expected, states[:3])
    np.testing.assert_allclose(vector[:3], contexts.reshape(3, -1), rtol=1e-4, atol=1e-6)
    overlap = np.einsum("bqs,bks->bqk", weights, weights) - np.eye(3)
    np.testing.assert_allclose(penalty, np.square(overlap).sum((1, 2)), rtol=1e-5)
    assert np.all(np.abs(result["train"][1]["pooling"]["queries"]) > 0)
    assert params["pooling"]["queries"].shape == (3, 3)  # the score of a small model has 3 features


@pytest.mark.slow
def test_the_penalty_moves_the_queries_and_nothing_else_would_not():
    params, result = measured("recurrent, structured")
    model = build(**SMALL | CASES["recurrent, structured"] | dict(pooling__penalty=0.0))
    run = compiled(jax.value_and_grad(lambda p: model.loss_fn(p, BATCH, jax.random.key(0))[0]))
    loss, gradient = run(params)
    assert loss == pytest.approx(result["train"][0], rel=1e-6)
    change = jax.tree.map(lambda a, b: np.abs(a - b).max(), gradient, result["train"][1])
    assert change["pooling"]["queries"] > 1e-4 and change["inner"]["kernel"] < 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(pooling="max"), "unknown model.pooling 'max'"),
        (dict(encoder="cnn"), "unknown model.encoder 'cnn'"),
        (dict(pooling="structured", attention=dict(normalize="monotonic")), "unknown model.attention.normalize"),
    ],
)
def test_errors(options, message):
    with pytest.raises(UserError, match=message):
        build(**SMALL | options)
