"""What kernel attention is equal to, and what happens where no key is in reach."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled

from attn_jax.attention.build import build_attention
from attn_jax.attention.normalizers import NORMALIZERS, kernel_sum
from attn_jax.attention.normalizers.base import softmax
from attn_jax.attention.scores.kernels import KERNELS, Gaussian
from attn_jax.errors import UserError
from attn_jax.models.attention_options import AttentionOptions
from attn_jax.parts import recipe_of

RNG = np.random.default_rng(0)
QUERY, KEYS = RNG.normal(size=(5, 3)).astype(np.float32), RNG.normal(size=(7, 3)).astype(np.float32)
VALUES = RNG.normal(size=(7, 2)).astype(np.float32)
WIDTH = 1.7


def kernel(name, width=(WIDTH,), **fields):
    return KERNELS[name](**({"width": width, **fields} if name != "constant" else fields))


def weights_of(score, query=QUERY, keys=KEYS, normalize=kernel_sum):
    attention = build_attention(score=score, normalize=normalize)
    call = compiled(lambda q, k: attention.apply({}, q, k, method=lambda m, q, k: m(q, m.prepare(k)).weights))
    return call(query, keys)


def weights_of_masked(query, keys, mask):
    attention = build_attention(score=kernel("gaussian", (1.0,)), normalize=kernel_sum)
    call = lambda q, k: attention.apply({}, q, attention.prepare(k, k, key_mask=mask)).weights  # noqa: E731
    return compiled(call)(query, keys)


def weights(name, *args, **kwargs):
    return weights_of(kernel(name, exact=True), *args, **kwargs)


def test_gaussian_is_softmax_of_the_product_minus_half_the_square_of_the_key():
    products = (QUERY @ KEYS.T - np.square(KEYS).sum(-1) / 2) / WIDTH**2
    expected = np.asarray(softmax(jnp.asarray(products)))
    np.testing.assert_allclose(weights("gaussian"), expected, rtol=1e-5)
    np.testing.assert_allclose(weights_of(kernel("gaussian")), expected, rtol=1e-5)  # as a matrix product
    np.testing.assert_allclose(weights_of(kernel("gaussian"), normalize=softmax), expected, rtol=1e-5)


@pytest.mark.slow
def test_a_learned_width_starts_where_the_product_is_the_scaled_one():
    attention, init = Gaussian(), lambda m, q, k: m(q, k)
    params = attention.init(jax.random.key(0), *map(jnp.asarray, (QUERY, KEYS)), method=init)["params"]
    np.testing.assert_allclose(np.exp(-params["log_precision"] / 2), 3**0.25, rtol=1e-6)
    several = Gaussian(per_column=True, initial=(0.5,)).init(
        jax.random.key(0), *map(jnp.asarray, (QUERY, KEYS)), method=init
    )["params"]
    np.testing.assert_allclose(np.exp(-several["log_precision"] / 2), [0.5] * 3, rtol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_a_width_for_each_column_is_that_column_measured_in_it(name):
    several = (0.8, 1.7, 3.0)
    score = kernel(name, several, exact=True)
    scaled = [x / np.float32(several) for x in (QUERY, KEYS)]
    np.testing.assert_allclose(weights_of(score), weights_of(kernel(name, (1.0,), exact=True), *scaled), atol=1e-5)


def test_a_narrow_gaussian_reads_the_nearest_key_without_underflow():
    nearest = np.square(QUERY[:, None] - KEYS).sum(-1).argmin(-1)
    np.testing.assert_allclose(weights_of(kernel("gaussian", (1e-3,), exact=True)), np.eye(7)[nearest], atol=1e-6)


YEARS = np.arange(1990, 2025, dtype=np.float32)[:, None] + np.float32([[0.0, 0.25]])


def with_gradients(query, keys, block_size=0):
    """(weights, context, gradients) of a Gaussian kernel of width 1; the values are 0, 1, 2, ..."""
    attention = build_attention(score=kernel("gaussian", (1.0,)), block_size=block_size)
    values = jnp.arange(len(keys), dtype=jnp.float32)[:, None]

    def total(query, keys):
        attended = attention.apply({}, query, attention.prepare(keys, values))
        return jnp.sum(jnp.sin(attended.context)), (attended.weights, attended.context)

    (_, found), gradients = compiled(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))(query, keys)
    return *found, gradients


@pytest.mark.slow
@pytest.mark.parametrize("block_size", [0, 8])
def test_distances_far_from_the_origin_keep_their_digits(block_size):
    """The squares of years are 4e6, of which float32 has the half; those of their distances are what counts."""
    query, keys = YEARS[::2] + np.float32(0.125), YEARS
    weights, context, gradients = with_gradients(query, keys, block_size)
    near = with_gradients(query - 2007, keys - 2007, block_size)
    with jax.enable_x64(True):
        squares = np.square(query[:, None].astype(np.float64) - keys).sum(-1)
        expected = np.asarray(softmax(jnp.asarray(-squares / 2)))
    np.testing.assert_allclose(weights, expected, atol=2e-6)
    np.testing.assert_allclose(context, expected @ np.arange(35)[:, None], atol=2e-4)
    for found, same in zip(gradients, near[2], strict=True):
        np.testing.assert_allclose(found, same, atol=2e-3)


@pytest.mark.slow
def test_what_stands_beside_a_query_costs_it_no_digits():
    """Masked keys and other queries may be anywhere, and one of both may be shared by a batch of the other."""
    near = YEARS[:5] - 2007
    for query, keys in ((YEARS[:5], YEARS), (-YEARS[:5], -YEARS), (near, YEARS - 2007)):
        expected = weights_of(kernel("gaussian", (1.0,), exact=True), query, keys)
        for far in (1e6 * np.sign(query[0, 0]), np.nan, np.inf, -np.inf):
            padded = np.concatenate([np.full((3, 2), far), keys, np.full((2, 2), far)]).astype(np.float32)
            mask = (jnp.arange(40) < 38) & (jnp.arange(40) >= 3)
            np.testing.assert_allclose(weights_of_masked(query, padded, mask)[:, 3:38], expected, atol=1e-5)
            queries = np.concatenate([np.full((1, 2), far), query]).astype(np.float32)
            np.testing.assert_allclose(weights_of(kernel("gaussian", (1.0,)), queries, keys)[1:], expected, atol=1e-5)
        for shape in ((2, 1, 5, 2), (2, 3, 5, 2)):
            found = weights_of(kernel("gaussian", (1.0,)), np.broadcast_to(query, shape), keys)
            np.testing.assert_allclose(found, np.broadcast_to(expected, (*shape[:2], 5, 35)), atol=1e-5)
        found = weights_of(kernel("gaussian", (1.0,)), query, np.stack([keys, keys]))
        np.testing.assert_allclose(found, np.stack([expected] * 2), atol=1e-5)
    opposite = np.float32([[-1e6, 1e6], [0.5, -0.5]])
    found = weights_of(kernel("gaussian", (1.0,)), opposite, near)
    np.testing.assert_allclose(found[1], weights_of(kernel("gaussian", (1.0,)), opposite[1:], near)[0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KERNELS if KERNELS[name].compact])
def test_a_query_without_keys_in_reach_has_zero_weights_and_no_gradient(name):
    far = QUERY + np.float32([[0], [0], [100], [0], [0]])

    def context(query, keys, precision):
        attention = build_attention(score=KERNELS[name](initial=(1.0,), exact=True), normalize=kernel_sum)
        memory = lambda m, q, k, v: m(q, m.prepare(k, v)).context  # noqa: E731
        return attention.apply(
            {"params": {"map": {"score": {"log_precision": precision}}}},
            query,
            keys,
            jnp.asarray(VALUES),
            method=memory,
        )

    @compiled
    def both(*args):
        value, pull = jax.vjp(context, *args)
        return value, pull(jnp.ones_like(value))

    width = np.float32(-2 * np.log(WIDTH))
    value, gradient = both(far, KEYS, width)
    np.testing.assert_array_equal(value[2], 0)
    np.testing.assert_array_equal(gradient[0][2], 0)
    # A query on a key, at distance 0: no NaN either.
    for found in (*gradient, *both(KEYS, KEYS, width)[1]):
        assert np.all(np.isfinite(found))
    if name != "boxcar":
        assert np.abs(gradient[2]) > 1e-3


@pytest.mark.parametrize("name", ["gaussian", "boxcar", "triangular", "epanechnikov"])
@pytest.mark.parametrize("features", [1, 2])
def test_the_volume_is_the_integral(name, features):
    grid = np.linspace(-8, 8, 1601 if features == 1 else 801, dtype=np.float64)
    squares = grid**2 if features == 1 else np.add.outer(grid**2, grid**2)
    k = np.exp(np.asarray(KERNELS[name]().log_kernel(jnp.asarray(squares, jnp.float32)), np.float64))
    total = k.sum() * (grid[1] - grid[0]) ** features
    np.testing.assert_allclose(total, np.exp(KERNELS[name].log_volume(features)), rtol=0.01)


@pytest.mark.parametrize("width", [(0.0,), (-1.0,), (float("nan"),), (float("inf"),), (1.0, 2.0)])
def test_a_width_that_is_none_says_so(width):
    score = recipe_of(KERNELS["triangular"], width=width)
    options = AttentionOptions(score=score, normalize=recipe_of(NORMALIZERS["kernel_sum"]))
    with pytest.raises(UserError, match=r"attention.score.width .*expected one finite number above 0, or 3 of them"):
        options.build(3)


def test_a_compact_kernel_needs_kernel_sum():
    options = AttentionOptions(score=recipe_of(KERNELS["triangular"], width=(1.0,)))
    with pytest.raises(UserError, match=r"triangular is -inf .* needs model.attention.normalize kernel_sum"):
        options.build(3)
