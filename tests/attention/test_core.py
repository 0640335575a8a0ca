"""The formula of attention, for combinations of its parts, with masks, padding and windows."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

import attn_jax
from attn_jax.attention import NORMALIZERS, READINGS, build_attention
from attn_jax.attention.hard.monotonic import MonotonicSelection
from attn_jax.attention.hard.readings import log_of
from attn_jax.attention.local import LocalM, LocalP
from attn_jax.attention.scores import (
    Additive,
    Concat,
    Dot,
    General,
    Location,
    Norm,
    QKNorm,
    RandomFeatures,
    ScaledDot,
    TanhKey,
)
from attn_jax.attention.scores.kernels import Boxcar, Constant, Epanechnikov, Gaussian, Triangular
from attn_jax.attention.signed import Parallax

WIDTH, QUERIES, KEYS, SIZE = 4, 3, 9, 2
LENGTHS = np.array([9, 6, 1, 0])  # the last row has nothing to attend to
MASK = np.arange(KEYS) < LENGTHS[:, None]
RNG = np.random.default_rng(0)
QUERY = RNG.normal(size=(len(LENGTHS), QUERIES, WIDTH)).astype(np.float32)
MEMORY = RNG.normal(size=(len(LENGTHS), KEYS, WIDTH)).astype(np.float32)
POSITIONS = np.tile(np.array([0, 2, 7], np.int32), (len(LENGTHS), 1))

# Each score, normalizer and window at least once; their own tests say what each of them computes.
CASES = {
    "softmax of dot": (Dot(), "softmax", None),
    "sparsemax of additive": (Additive(features=5), "sparsemax", None),
    "hardmax of general": (General(query_features=WIDTH), "hardmax", None),
    "linear scaled dot": (ScaledDot(), "linear", None),
    "scalable entmax of dot": (Dot(), "scalable_entmax", None),
    "softmax of gaussian": (Gaussian(), "softmax", None),
    "boxcar": (Boxcar(width=(2.5,)), "kernel_sum", None),
    "triangular, a width for each column": (Triangular(per_column=True), "kernel_sum", None),
    "epanechnikov, three widths": (Epanechnikov(width=(2.0, 2.5, 3.0, 4.0)[:WIDTH]), "kernel_sum", None),
    "constant": (Constant(), "kernel_sum", None),
    "softmax of tanh key": (TanhKey(features=WIDTH), "softmax", None),
    "softmax of norm": (Norm(), "softmax", None),
    "softmax of random features": (RandomFeatures(num_features=8), "softmax", None),
    "stick-breaking of QK norm": (QKNorm(), "stick_breaking", None),
    "local-m concat": (Concat(features=5), "scalable_entmax", LocalM(size=SIZE)),
    "local-p location": (Location(max_length=20), "softmax", LocalP(size=SIZE, features=3)),
}


def read(attention, query, keys, mask, positions):
    attended = attention(query, attention.prepare(keys, key_mask=mask), positions=positions)
    return attended.context, attended.weights


@pytest.fixture(scope="module", params=CASES)
def attend(request):
    """(query, keys, mask, positions) -> (context, weights), compiled once for each shape."""
    score, name, window = CASES[request.param]
    normalize = NORMALIZERS[name]
    attention = build_attention(
        score=score, normalize=normalize() if isinstance(normalize, type) else normalize, window=window
    )
    params = jax.tree.map(jnp.asarray, params_of(attention, QUERY, MEMORY, MASK, POSITIONS, method=read))
    return compiled(lambda *args: attention.apply({"params": params}, *args, method=read))


@pytest.mark.slow
def test_context_is_the_mean_value_and_what_is_masked_has_no_weight(attend):
    context, weights = attend(QUERY, MEMORY, MASK, POSITIONS)
    for b, q in np.ndindex(len(LENGTHS), QUERIES):
        mean = sum((weights[b, q, k] * MEMORY[b, k] for k in np.flatnonzero(MASK[b])), start=np.zeros(WIDTH))
        np.testing.assert_allclose(context[b, q], mean, rtol=1e-5, atol=1e-6)
    assert np.all(np.moveaxis(weights, 1, 2)[~MASK] == 0)
    assert np.any(weights[:2] != 0)
    np.testing.assert_array_equal(context[3], 0)


@pytest.mark.slow
def test_masked_keys_may_hold_anything(attend):
    expected = attend(QUERY, MEMORY, MASK, POSITIONS)
    for got, want in zip(attend(QUERY, np.where(MASK[..., None], MEMORY, 1e3), MASK, POSITIONS), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.slow
def test_masking_is_deleting_and_a_batch_is_its_rows(attend):
    context, weights = attend(QUERY, MEMORY, MASK, POSITIONS)
    alone = attend(*(x[1:2] for x in (QUERY, MEMORY[:, :6], MASK[:, :6], POSITIONS)))
    np.testing.assert_allclose(context[1], alone[0][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(weights[1, :, :6], alone[1][0], rtol=1e-5, atol=1e-6)


def test_keys_outside_a_local_window_have_no_weight():
    attention = build_attention(score=Dot(), window=LocalM(size=SIZE))
    _, weights = compiled(lambda *args: attention.apply({}, *args, method=read))(QUERY, MEMORY, MASK, POSITIONS)
    outside = np.abs(np.arange(KEYS) - POSITIONS[..., None]) > SIZE
    assert np.all(weights[outside] == 0)
    # Within it the weights are those of attention to these keys alone; where none is left there is no weight at all.
    left = ~outside & MASK[:, None]
    scores = np.einsum("bqd,bkd->bqk", QUERY, MEMORY)
    for b, q in np.ndindex(len(LENGTHS), QUERIES):
        exp = np.exp(scores[b, q]) * left[b, q]
        np.testing.assert_allclose(weights[b, q], exp / max(exp.sum(), 1e-9), rtol=1e-4, atol=1e-6)


def test_local_p_multiplies_the_weights_and_does_not_normalize_again():
    attention = build_attention(score=Dot(), window=LocalP(size=SIZE, features=3))
    params = jax.tree.map(jnp.asarray, params_of(attention, QUERY, MEMORY, MASK, POSITIONS, method=read))

    def both(attention, query, keys, mask, positions):
        return read(attention, query, keys, mask, positions)[1], attention.map.normalize.window(
            query, positions, key_mask=mask
        )

    weights, (near, factor) = compiled(lambda *args: attention.apply({"params": params}, *args, method=both))(
        QUERY, MEMORY, MASK, POSITIONS
    )
    exp = np.exp(np.einsum("bqd,bkd->bqk", QUERY, MEMORY)) * near * MASK[:, None]
    expected = factor * exp / np.maximum(exp.sum(-1, keepdims=True), 1e-9)
    np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-6)


def test_a_mask_for_each_query_narrows_the_memory():
    causal = np.arange(KEYS) <= np.array([0, 4, 8])[:, None]
    attention = build_attention(score=ScaledDot())

    def masked(attention, query, keys, mask, causal):
        return attention(query, attention.prepare(keys, key_mask=mask), mask=causal).weights

    call = compiled(lambda *args: attention.apply({}, *args, method=masked))
    weights = call(QUERY, MEMORY, MASK, causal)
    for q, last in enumerate([1, 5, 9]):
        narrow = call(QUERY, MEMORY, MASK & (np.arange(KEYS) < last), np.ones_like(causal))
        np.testing.assert_array_equal(weights[:, q], narrow[:, q])


def read_once(reading, query, keys):
    attended = build_attention(score=ScaledDot(), read=reading).apply({}, query, keys, rng=jax.random.key(0))
    return attended.context, attended.weights


@pytest.mark.parametrize("name", READINGS)
def test_a_reading_of_several_rows_is_refused(name):
    """Each row has a loss, of which this class knows nothing."""
    reading = READINGS[name]
    if "num_samples" in inspect.signature(reading.function).parameters and name not in ("gumbel_rao", "top"):
        reading = reading.configure(num_samples=3)
    log_weights = jnp.zeros((len(LENGTHS), QUERIES, KEYS))
    count = jax.eval_shape(lambda x: reading(jax.random.key(0), x).rows, log_weights).shape[-2]
    call = lambda: jax.eval_shape(functools.partial(read_once, reading), QUERY, MEMORY)  # noqa: E731
    if count == 1:
        assert call()[0].shape == QUERY.shape
    else:
        with pytest.raises(ValueError, match=f"reads one row of weights, but read={name} samples {count}"):
            call()


@pytest.mark.parametrize("name", ["expectation", "top", "straight_through"])
def test_one_row_is_read_as_it_was_sampled(name):
    reading = READINGS[name]
    context, weights = compiled(functools.partial(read_once, reading))(QUERY, MEMORY)
    rows = reading(jax.random.key(0), log_of(jnp.asarray(weights))).rows[..., 0, :]
    np.testing.assert_allclose(context, np.asarray(rows) @ MEMORY, rtol=1e-4, atol=1e-5)
    if not reading.random:  # the weights are what was read
        np.testing.assert_allclose(context, weights @ MEMORY, rtol=1e-4, atol=1e-5)


def test_which_weights_sum_to_one():
    assert build_attention(score="scaled_dot", normalize="sparsemax", read="reinforce").sums_to_one
    with_options = functools.partial(NORMALIZERS["rela"])  # what holds for a function holds for a partial of it
    others = dict(normalize=with_options), dict(window=LocalP(size=2, features=3)), dict(monotonic=MonotonicSelection())
    assert not any(build_attention(score="dot", **options).sums_to_one for options in others)
    assert build_attention(score="dot", normalize="linear", fit=Parallax()).map.fit is not None  # of either sign


@pytest.mark.slow
@pytest.mark.parametrize("normalize", ["softmax", "sparsemax"])
def test_query_keys_and_values_may_have_different_dtypes(normalize):
    query, keys = jnp.asarray(QUERY[1:2]), jnp.asarray(MEMORY[1:2])
    expected = attn_jax.attend(query, keys, normalize=normalize).context
    for low in (0, 2):
        given = [x.astype(jnp.bfloat16 if i == low else jnp.float32) for i, x in enumerate((query, keys, keys))]
        found = attn_jax.attend(*given, normalize=normalize).context
        np.testing.assert_allclose(np.asarray(found, np.float32), expected, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("normalize", ["scalable_entmax", "contextual_softmax"])
def test_a_normalizer_that_reads_the_query_gets_it_with_the_axes_of_the_scores(normalize):
    """Queries of heads without a batch, and as many texts as heads: no axis is taken for another one."""
    rng = np.random.default_rng(3)
    query, keys = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((2, 3, 4), (2, 2, 5, 4)))
    attention = build_attention(score="dot", normalize=normalize)
    moved = lambda x: x + jnp.asarray(rng.normal(size=x.shape), jnp.float32)  # noqa: E731
    params = jax.tree.map(moved, params_of(attention, query, keys))
    expected = attention.apply({"params": params}, jnp.broadcast_to(query, (2, 2, 3, 4)), keys)
    np.testing.assert_allclose(attention.apply({"params": params}, query, keys).weights, expected.weights, atol=1e-6)


@pytest.mark.parametrize("normalize", ["softmax", "sparsemax", "entmax15", "kernel_sum", "sigmoid"])
def test_without_keys_the_context_is_zero(normalize):
    query, keys = jnp.ones((2, 3, WIDTH)), jnp.ones((2, 0, WIDTH))
    for block_size in (0, 4):
        attended = build_attention(score="dot", normalize=normalize, block_size=block_size).apply({}, query, keys)
        assert attended.weights.shape == (2, 3, 0) and not np.any(attended.context)


@pytest.mark.slow
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_of_nothing_every_normalizer_makes_nothing(normalize):
    """Neither of no batch nor of no queries nor of no keys."""
    attention = build_attention(score="scaled_dot", normalize=normalize)

    def context_and_weights(query, keys):
        attended = attention.init_with_output(jax.random.key(0), query, keys)[0]
        return attended.context, attended.weights

    for batch, queries, keys in ((0, 0, 3), (2, 3, 0)):
        given = jnp.ones((batch, queries, WIDTH)), jnp.ones((batch, keys, WIDTH))
        context, weights = jax.eval_shape(context_and_weights, *given)
        assert context.shape == (batch, queries, WIDTH) and weights.shape == (batch, queries, keys)
