"""The softmax in chunks equals the full one: values, gradients, best words, for every size of a chunk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled

from attn_jax.outputs import ChunkedSoftmax, FullSoftmax

N, WIDTH, VOCAB = 5, 4, 11
RNG = np.random.default_rng(0)
HIDDEN = RNG.normal(size=(N, WIDTH)).astype(np.float32)
EMBEDDING = RNG.normal(size=(VOCAB, WIDTH)).astype(np.float32)
TARGETS = RNG.integers(0, VOCAB, N, dtype=np.int32)
OF_LOSS, OF_NLL = RNG.normal(size=(2, N)).astype(np.float32)


BIASES = np.linspace(-1, 1, VOCAB, dtype=np.float32)


def params_of(tied):
    return {"bias": BIASES} if tied else {"dense": {"kernel": EMBEDDING.T, "bias": BIASES}}


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_values_and_gradients_are_those_of_the_full_softmax(tied, smoothing):
    options = dict(vocab_size=VOCAB, tied=tied, label_smoothing=smoothing)
    layers = [FullSoftmax(**options), *(ChunkedSoftmax(chunk_size=size, **options) for size in (1, 4, 11, 100))]

    def total(params, hidden, embedding, layer):
        loss, nll = layer.apply({"params": params}, hidden, jnp.asarray(TARGETS), embedding, method="loss")
        return jnp.sum(OF_LOSS * loss + OF_NLL * nll), (loss, nll)

    of = lambda *given: [jax.value_and_grad(total, (0, 1, 2), has_aux=True)(*given, layer) for layer in layers]  # noqa: E731
    full, *chunked = compiled(of)(params_of(tied), HIDDEN, EMBEDDING)
    for found in chunked:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), full, found)


@pytest.mark.slow
@pytest.mark.parametrize(("tied", "chunk"), [(False, 2), (True, 4), (False, 11)])
def test_the_best_words_are_those_of_the_full_softmax(tied, chunk):
    params = {"params": params_of(tied)}
    full, chunked = (
        FullSoftmax(vocab_size=VOCAB, tied=tied),
        ChunkedSoftmax(vocab_size=VOCAB, tied=tied, chunk_size=chunk),
    )
    hidden, embedding = jnp.asarray(HIDDEN.reshape(1, N, WIDTH)), jnp.asarray(EMBEDDING)
    top_k = compiled(lambda h: [x.apply(params, h, 6, embedding, method="top_k") for x in (full, chunked)])
    expected, (values, words) = top_k(hidden)
    np.testing.assert_array_equal(words, expected[1])
    np.testing.assert_allclose(values, expected[0], rtol=1e-5, atol=1e-6)
    targets = TARGETS.reshape(1, N).copy()
    targets[0, :2] = expected[1][0, :2, 0]  # two that are right
    measure = lambda x, targets: x.apply(params, hidden, targets, embedding, method="nll_and_correct")  # noqa: E731
    exact, found = compiled(lambda targets: [measure(layer, targets) for layer in (full, chunked)])(targets)
    for a, b in zip(exact, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert np.sum(found[1]) >= 2


@pytest.mark.slow
def test_of_equal_words_the_first_are_taken():
    layer, params = ChunkedSoftmax(vocab_size=VOCAB, chunk_size=4), {"params": params_of(False)}
    params["params"]["dense"] = jax.tree.map(np.zeros_like, params["params"]["dense"])
    _, words = layer.apply(params, jnp.asarray(HIDDEN), 6, method="top_k")
    np.testing.assert_array_equal(words, np.broadcast_to(np.arange(6), (N, 6)))
    everyone = jnp.arange(VOCAB)
    hidden = jnp.broadcast_to(jnp.asarray(HIDDEN)[0], (VOCAB, WIDTH))
    _, correct = layer.apply(params, hidden, everyone, method="nll_and_correct")
    np.testing.assert_array_equal(correct, everyone == 0)


def test_large_logits_stay_finite():
    layer, params = ChunkedSoftmax(vocab_size=VOCAB, chunk_size=4), {"params": params_of(False)}
    for array in layer.apply(params, jnp.asarray(HIDDEN * 1e6), jnp.asarray(TARGETS), method="loss"):
        assert np.all(np.isfinite(array))


def test_memory_does_not_grow_with_the_vocabulary():
    """But for the gradient of the table itself."""

    def temporary(layer, size):
        params = {"dense": {"kernel": jnp.zeros((WIDTH, size)), "bias": jnp.zeros(size)}}
        hidden, targets = jnp.zeros((64, WIDTH)), jnp.zeros(64, jnp.int32)
        loss = lambda params, hidden: jnp.sum(layer.apply({"params": params}, hidden, targets, method="loss")[0])  # noqa: E731
        compiled = jax.jit(jax.grad(loss, (0, 1))).lower(params, hidden).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    small, large = (temporary(ChunkedSoftmax(vocab_size=size, chunk_size=256), size) for size in (4_096, 16_384))
    full = temporary(FullSoftmax(vocab_size=16_384), 16_384)
    assert large < 1.2 * small + 2**20
    assert large < full / 4
