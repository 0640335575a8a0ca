"""The full softmax against its definition in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of
from tiny_seq2seq import build, sentences

from attn_jax.outputs import FullSoftmax, nll_and_correct

BATCH, TIME, WIDTH, VOCAB = 2, 3, 4, 7
RNG = np.random.default_rng(0)
HIDDEN = RNG.normal(size=(BATCH, TIME, WIDTH)).astype(np.float32)
EMBEDDING = RNG.normal(size=(VOCAB, WIDTH)).astype(np.float32)
TARGETS = RNG.integers(0, VOCAB, (BATCH, TIME), dtype=np.int32)


def built(**options):
    output = FullSoftmax(vocab_size=VOCAB, **options)
    params = params_of(output, HIDDEN, EMBEDDING, method="logits")
    call = lambda method, *args: compiled(lambda *args: output.apply({"params": params}, *args, method=method))(*args)  # noqa: E731
    return params, call


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.parametrize("tied", [False, True])
def test_log_probs_are_normalized_and_loss_agrees_with_them(tied):
    params, call = built(tied=tied)
    if tied:
        assert set(params) == {"bias"}
        logits = HIDDEN @ EMBEDDING.T + params["bias"]
    else:
        logits = HIDDEN @ params["dense"]["kernel"] + params["dense"]["bias"]
    log_probs = call("log_probs", HIDDEN, EMBEDDING)
    np.testing.assert_allclose(log_probs, log_softmax(logits), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-5)
    loss, nll = call("loss", HIDDEN, TARGETS, EMBEDDING)
    picked = np.take_along_axis(np.asarray(log_probs), TARGETS[..., None], -1)[..., 0]
    np.testing.assert_allclose(nll, -picked, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(loss, nll)  # no label smoothing


@pytest.mark.parametrize("tied", [False, True])
def test_top_k_are_the_largest_log_probs_in_order(tied):
    output = FullSoftmax(vocab_size=VOCAB, tied=tied)
    params = params_of(output, HIDDEN, EMBEDDING, method="logits")
    log_probs = built(tied=tied)[1]("log_probs", HIDDEN, EMBEDDING)
    top_k = lambda hidden, embedding: output.apply({"params": params}, hidden, 3, embedding=embedding, method="top_k")  # noqa: E731
    values, tokens = compiled(top_k)(HIDDEN, EMBEDDING)
    np.testing.assert_array_equal(tokens, np.argsort(-log_probs, axis=-1)[..., :3])
    np.testing.assert_allclose(values, -np.sort(-log_probs, axis=-1)[..., :3], rtol=1e-6)


def test_label_smoothing_is_the_cross_entropy_with_the_smoothed_distribution():
    _, call = built(label_smoothing=0.3)
    loss, nll = call("loss", HIDDEN, TARGETS)
    log_probs = np.asarray(call("log_probs", HIDDEN))
    smoothed = 0.7 * np.eye(VOCAB)[TARGETS] + 0.3 / VOCAB
    np.testing.assert_allclose(loss, -(smoothed * log_probs).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(nll, -np.take_along_axis(log_probs, TARGETS[..., None], -1)[..., 0], rtol=1e-5)


def test_bfloat16_computes_in_it_and_normalizes_in_float32():
    options = dict(tied=True, dtype=jnp.bfloat16)
    _, call = built(**options)
    log_probs = call("log_probs", HIDDEN.astype(jnp.bfloat16), EMBEDDING)
    assert log_probs.dtype == np.float32
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-5)
    exact = built(tied=True)[1]("log_probs", HIDDEN, EMBEDDING)
    np.testing.assert_allclose(log_probs, exact, atol=0.1)
    assert np.any(log_probs != exact)


def test_of_equally_probable_words_the_first_is_the_one_that_counts():
    log_probs = jnp.full((VOCAB, VOCAB), -np.log(VOCAB))
    nll, correct = nll_and_correct(log_probs, jnp.arange(VOCAB))
    np.testing.assert_allclose(nll, np.log(VOCAB), rtol=1e-6)
    np.testing.assert_array_equal(correct, np.arange(VOCAB) == 0)
    two = log_probs.at[:, (3, 5)].set(-1.0)
    np.testing.assert_array_equal(nll_and_correct(two, jnp.arange(VOCAB))[1], np.arange(VOCAB) == 3)


def test_large_logits_stay_finite():
    _, call = built()
    for array in call("loss", HIDDEN * 1e6, TARGETS):
        assert np.all(np.isfinite(array))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["seq2seq", "transformer", "language_model", "classifier"])
def test_training_gives_an_output_layer_an_rng_and_evaluation_does_not(name, monkeypatch):
    """For layers that sample words; the full softmax does not look at it."""
    given = []
    loss = FullSoftmax.loss

    def spy(self, hidden, targets, embedding=None, rng=None):
        given.append(rng)
        return loss(self, hidden, targets, embedding, rng)

    monkeypatch.setattr(FullSoftmax, "loss", spy)
    batch = jax.tree.map(jnp.asarray, sentences([(3, 2)], 4, 3))
    model = build(name=name, hidden_size=8)
    params = jax.eval_shape(model.init, jax.random.key(0), batch)
    given.clear()
    jax.eval_shape(model.loss_fn, params, batch, jax.random.key(0))
    assert [jnp.issubdtype(rng.dtype, jax.dtypes.prng_key) for rng in given] == [True]
    jax.eval_shape(model.eval_fn, params, batch)
    assert len(given) == 1
