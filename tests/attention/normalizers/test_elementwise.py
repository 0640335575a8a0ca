"""The contract of every normalizer, and what each of them is."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of

from attn_jax.attention.normalizers import NORMALIZERS, hardmax, linear, rela, sigmoid
from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.normalizers.entmax import sparsemax

UNNORMALIZED = {"linear", "rela", "unnormalized_sigmoid", "chain", "segments"}  # any sum
SHIFTED = {
    *UNNORMALIZED,
    "softmax_one",
    "learned_sink",
    "softpick",
    "stick_breaking",
    "sigmoid",
    "contextual_softmax",
}  # not shift invariant
RNG = np.random.default_rng(0)
SCORES = RNG.normal(0, 1.5, (6, 5)).astype(np.float32)
MASK = np.array(
    [[1, 1, 0, 1, 1], [0, 1, 0, 1, 0], [0, 0, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 1, 1], [0, 0, 0, 0, 0]], bool
)
SENSES = RNG.normal(size=SCORES.shape).astype(np.float32)  # what the weights are multiplied with before the gradient
QUERY = RNG.normal(size=(6, 3)).astype(np.float32)


@functools.cache
def normalizer(name):
    """normalize(scores, mask); a module with its own default fields, and with random parameters."""
    entry = NORMALIZERS[name]
    if not isinstance(entry, type):
        return entry
    module = entry()
    query = jnp.asarray(QUERY)
    params = jax.tree.map(jnp.asarray, params_of(module, SCORES, MASK, query=query))
    return lambda scores, mask=None: module.apply({"params": params}, scores, mask, query=query)


@functools.cache
def weights_and_gradient_of(normalize):
    """(scores, mask) -> (weights, gradient of sum(weights * SENSES)), compiled once for all tests of a normalizer."""

    def both(scores, mask):
        weights, pull = jax.vjp(lambda scores: normalize(scores, mask), scores)
        return weights, pull(jnp.asarray(SENSES, scores.dtype))[0]

    return compiled(both)


@pytest.fixture(scope="module", params=NORMALIZERS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def weights_and_gradient(name):
    return weights_and_gradient_of(normalizer(name))


@pytest.mark.slow
def test_weights_are_a_distribution_over_the_keys_that_the_mask_keeps(name, weights_and_gradient):
    weights, gradient = weights_and_gradient(SCORES, MASK)
    assert weights.shape == SCORES.shape and weights.dtype == SCORES.dtype
    assert np.all(weights[~MASK] == 0) and np.all(gradient[~MASK] == 0)
    if name != "linear":
        assert np.all(weights >= 0)
    if NORMALIZERS[name].sums_to_one:
        np.testing.assert_allclose(weights.sum(-1), MASK.any(-1), rtol=1e-6)
    elif name not in UNNORMALIZED:
        assert np.all(weights.sum(-1) < 1) and np.any(weights.sum(-1) > 0)


@pytest.mark.slow
@pytest.mark.parametrize("rubbish", [np.nan, np.inf, -np.inf, 3e38])
def test_the_score_of_a_masked_key_changes_nothing(weights_and_gradient, rubbish):
    expected = weights_and_gradient(SCORES, MASK)
    for got, want in zip(weights_and_gradient(np.where(MASK, SCORES, rubbish), MASK), expected, strict=True):
        np.testing.assert_array_equal(got, want)
        assert np.all(np.isfinite(got))


@pytest.mark.slow
def test_a_mask_that_is_added_or_has_another_shape_is_refused(name, without_type_checks):
    normalize = normalizer(name)
    for mask in (np.where(MASK, 0, -np.inf).astype(np.float32), MASK.astype(np.int32)):
        with pytest.raises(ValueError, match=f"mask must be boolean .*, got {mask.dtype}"):
            normalize(SCORES, mask)
    with pytest.raises(ValueError, match=r"mask of shape \(6, 4\) does not fit \(6, 5\)"):
        normalize(SCORES, MASK[:, :4])


@pytest.mark.slow
def test_masking_a_key_is_deleting_it_and_a_vmap_over_rows_is_the_whole(name, weights_and_gradient):
    kept, normalize = MASK[0], normalizer(name)
    of_rows = name not in ("scalable_entmax", "contextual_softmax")  # their query has the rows, too

    @compiled
    def run(scores, mask):
        weights, pull = jax.vjp(normalize, scores[:, kept])
        rows = jax.vmap(normalize)(scores, mask) if of_rows else normalize(scores, mask)
        return weights, pull(jnp.asarray(SENSES[:, kept]))[0], rows

    weights, gradient = weights_and_gradient(SCORES, kept)  # one mask for all rows
    expected_weights, expected_gradient, rows = run(SCORES, MASK)
    np.testing.assert_allclose(weights[:, kept], expected_weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient[:, kept], expected_gradient, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows, weights_and_gradient(SCORES, MASK)[0], atol=1e-6)


@pytest.mark.slow
def test_shifting_all_scores_changes_nothing(name, weights_and_gradient):
    if name in SHIFTED:
        pytest.skip(f"{name} is not shift invariant")
    expected = weights_and_gradient(SCORES, MASK)
    for shift in [7.0, -300.0]:
        for got, want in zip(weights_and_gradient(SCORES + np.float32(shift), MASK), expected, strict=True):
            np.testing.assert_allclose(got, want, atol=2e-4)


@pytest.mark.slow
def test_large_scores_stay_finite(weights_and_gradient):
    for array in weights_and_gradient(SCORES * 1e30, MASK):
        assert np.all(np.isfinite(array))


def test_softmax_is_its_formula():
    for row, mask, weights in zip(SCORES, MASK, weights_and_gradient_of(softmax)(SCORES, MASK)[0], strict=True):
        np.testing.assert_allclose(weights[mask], np.exp(row[mask]) / np.exp(row[mask]).sum(), rtol=1e-5)


@pytest.mark.slow
def test_half_precision_is_computed_in_single(weights_and_gradient, dtype=jnp.float16):
    """The weights in bfloat16 are in test_types.py."""
    scores = SCORES.astype(dtype)
    rounding = float(jnp.finfo(dtype).eps)
    weights, gradient = weights_and_gradient(scores, MASK)
    expected, expected_gradient = weights_and_gradient(scores.astype(np.float32), MASK)
    assert weights.dtype == gradient.dtype == dtype
    # The gradient's own senses are rounded, too, before they are added.
    np.testing.assert_allclose(weights.astype(np.float32), expected, rtol=rounding, atol=rounding / 100)
    np.testing.assert_allclose(gradient.astype(np.float32), expected_gradient, atol=8 * rounding)
    for array in weights_and_gradient(np.where(MASK, scores * dtype(1000), dtype(np.nan)), MASK):
        assert np.all(np.isfinite(array.astype(np.float32)))


def test_hardmax_is_one_at_the_first_of_the_best_keys_and_has_no_gradient():
    scores = np.round(SCORES)  # with ties
    weights, gradient = weights_and_gradient_of(hardmax)(scores, MASK)
    best = np.argmax(np.where(MASK, scores, -np.inf), axis=-1)
    np.testing.assert_array_equal(weights, np.eye(5)[best] * MASK.any(-1, keepdims=True))
    np.testing.assert_array_equal(gradient, 0)


def test_linear_is_the_scores():
    weights, gradient = weights_and_gradient_of(linear)(SCORES, MASK)
    np.testing.assert_array_equal(weights, SCORES * MASK)
    np.testing.assert_array_equal(gradient, SENSES * MASK)


def test_sigmoid_is_normalized_also_where_all_scores_are_low():
    weights, _ = weights_and_gradient_of(sigmoid)(SCORES, MASK)
    raised = np.where(MASK, 1 / (1 + np.exp(-SCORES)), 0)
    np.testing.assert_allclose(weights[:5], (raised / raised.sum(-1, keepdims=True).clip(1e-9))[:5], rtol=1e-5)
    low, _ = weights_and_gradient_of(sigmoid)(SCORES - 200, MASK)
    np.testing.assert_allclose(low, weights_and_gradient_of(softmax)(SCORES, MASK)[0], rtol=1e-4)


def test_rela_is_the_positive_part():
    weights, gradient = weights_and_gradient_of(rela)(SCORES, MASK)
    np.testing.assert_array_equal(weights, np.maximum(SCORES, 0) * MASK)
    np.testing.assert_array_equal(gradient, SENSES * (SCORES > 0) * MASK)


def test_sparsemax_gradient_by_finite_differences():
    rng = np.random.default_rng(3)
    scores, direction = rng.normal(size=(2, 40, 5)).astype(np.float32)
    mask = rng.random((40, 5)) < 0.8
    step = 1e-2
    call = compiled(sparsemax)
    ahead, behind = call(scores + step * direction, mask), call(scores - step * direction, mask)
    _, tangent = compiled(lambda s, d, mask: jax.jvp(lambda s: sparsemax(s, mask), (s,), (d,)))(scores, direction, mask)
    # Linear between its kinks: where the support is the same on both sides, the difference quotient is exact.
    smooth = np.all((ahead > 0) == (behind > 0), axis=-1)
    assert smooth.sum() > 20
    np.testing.assert_allclose(tangent[smooth], (ahead - behind)[smooth] / (2 * step), atol=1e-4)
