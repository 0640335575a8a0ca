"""Types of arrays: what comes out has the type of what went in, also where JAX has 64 bits, and the rest is told."""

import functools
import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled, params_of
from test_derivatives import made

from attn_jax import attend, entmax15, softmax
from attn_jax.attention import NORMALIZERS, SCORES, MultiHead, build_attention
from attn_jax.attention.hard.monotonic import (
    MonotonicSelection,
    expected_weights,
    forward,
    initial_weights,
    log_transition,
)
from attn_jax.attention.hard.readings import READINGS, log_of
from attn_jax.attention.information import entropy, kl_divergence
from attn_jax.attention.names import from_name
from attn_jax.attention.random_features import orthogonal_directions, random_directions
from attn_jax.attention.recurrent import Delta, chunked, dense, make_writes
from attn_jax.attention.scores import (
    KERNELS,
    Additive,
    Dot,
    Gaussian,
    General,
    Norm,
    QKNorm,
    RandomFeatures,
    ScaledDot,
    Softcap,
    TanhKey,
)
from attn_jax.attention.signed import Parallax
from attn_jax.outputs.adaptive import for_rows
from attn_jax.types import wide

RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return jnp.asarray(RNG.normal(size=shape).astype(dtype))


def assert_close(found, expected, **tolerance):
    jax.tree.map(functools.partial(np.testing.assert_allclose, **tolerance), found, expected)


@pytest.mark.parametrize("wide", [False, True])
def test_rows_have_the_type_of_the_weights(wide):
    def fields(reading, log_weights):
        sample = reading(jax.random.key(0), log_weights)
        return sample.rows, sample.log_prob, sample.importance_weights

    with jax.enable_x64(wide):
        for name, dtype in itertools.product(READINGS, (jnp.bfloat16, jnp.float32)):
            shapes = jax.eval_shape(functools.partial(fields, READINGS[name]), jax.ShapeDtypeStruct((3, 5), dtype))
            assert [x.dtype for x in shapes] == [dtype, jnp.float32, jnp.float32], name


@pytest.mark.slow
def test_learned_entmax_by_blocks_with_64_bits():
    with jax.enable_x64(True):
        both = [build_attention(score="scaled_dot", normalize="learned_entmax", block_size=n) for n in (0, 2)]
        given = normal(3, 4), normal(5, 4)
        params = {"params": params_of(both[0], *given)}
        whole, blocks = compiled(lambda *x: [each.apply(params, *x).context for each in both])(*given)
        assert blocks.dtype == jnp.float32
        np.testing.assert_allclose(blocks, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_keys_and_values_of_two_types_are_written_in_the_wider():
    with jax.enable_x64(True):
        writes = make_writes(normal(6, 3), normal(6, 2, dtype=np.float64))
        query = normal(6, 3)
        run = lambda query, writes: (chunked(Delta(), query, writes, 2)[1], dense(Delta(), query, writes)[0])  # noqa: E731
        context, expected = compiled(run)(query, writes)
        assert context.dtype == jnp.float64
        np.testing.assert_allclose(context, expected, rtol=1e-12)


def test_rows_of_a_loss_have_its_type_with_64_bits():
    with jax.enable_x64(True):
        x, own = normal(4, 3), jnp.array([True, False, True, False])
        found = for_rows(lambda params, x, index: jnp.sum(x, axis=-1), {}, x, jnp.zeros(4, jnp.int32), own)
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, np.where(own, np.sum(x, axis=-1), 0), rtol=1e-6)


@pytest.mark.slow
def test_a_score_within_a_score_by_blocks_in_a_compact_method():
    class Outer(nn.Module):
        block_size: int

        @nn.compact
        def __call__(self, query, keys):
            score = Softcap(score=Additive(features=3), softcap=2.0)
            return build_attention(score=score, block_size=self.block_size)(query, keys).context

    query, keys = normal(3, 4), normal(5, 4)
    params = {"params": params_of(Outer(0), query, keys)}
    loss = lambda params, size: jnp.sum(jnp.sin(Outer(size).apply(params, query, keys)))  # noqa: E731
    found, expected = compiled(lambda params: [jax.value_and_grad(loss)(params, size) for size in (2, 0)])(params)
    assert_close(found, expected, rtol=1e-4, atol=1e-6)


@functools.cache
def grouped():
    """(query, keys, parameters, call) of four heads that share two keys."""
    heads = MultiHead(attention=build_attention(score="scaled_dot"), num_heads=4, num_kv_heads=2, features=8)
    query, keys = normal(2, 5, 8), normal(2, 6, 8)
    params = params_of(heads, query, keys)
    return query, keys, params, lambda bias: heads.apply({"params": params}, query, keys, bias=bias).context


@pytest.mark.slow
def test_a_bias_of_all_heads_goes_to_heads_that_share_keys():
    query, keys, params, call = grouped()
    plain = MultiHead(attention=build_attention(score="scaled_dot"), num_heads=4, features=8)
    twice = lambda x: np.repeat(x.reshape(*x.shape[:-1], 2, 2), 2, axis=-2).reshape(*x.shape[:-1], 8)  # noqa: E731
    repeated = {"params": params | {name: jax.tree.map(twice, params[name]) for name in ("key", "value")}}
    biases = [normal(*shape) for shape in ((5, 6), (2, 1, 5, 6), (2, 4, 5, 6), (4, 1, 6))]
    alone = lambda bias: plain.apply(repeated, query, keys, bias=bias).context  # noqa: E731
    found, expected = compiled(lambda biases: ([call(b) for b in biases], [alone(b) for b in biases]))(biases)
    assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_bias_of_another_number_of_heads_is_told():
    bias = normal(2, 5, 6)
    for given in (bias, lambda query, key: bias[:, query, key]):
        with pytest.raises(ValueError, match=r"a bias of shape \(2, 5, 6\) .* expected 4 heads, or 1 for all"):
            jax.eval_shape(lambda: grouped()[-1](given))  # noqa: B023


@pytest.mark.slow
@pytest.mark.parametrize("score", [ScaledDot(), Gaussian(), Gaussian(per_column=True), Gaussian(width=(6.0,))])
def test_float16_does_not_overflow_before_scores_are_scaled(score):
    """60 x 60 x 32 is beyond 65504, the largest number of float16; the scores are not."""
    signs = jnp.sign(normal(3, 32))
    attention = build_attention(score=score, dropout=0.1)
    wide = 60 * signs[:2], 60 * signs
    params = jax.jit(attention.init)(jax.random.key(0), *wide)

    def run(*given):
        read = lambda train: attention.apply(params, *given, train=train, rngs={"dropout": jax.random.key(1)})  # noqa: E731
        return [(x.weights, x.context) for x in (read(False), read(True))]

    half = run(*(x.astype(jnp.float16) for x in wide))  # not compiled, which would leave out some rounding
    for (weights, context), (exact_weights, exact_context) in zip(half, compiled(run)(*wide), strict=True):
        np.testing.assert_allclose(weights, exact_weights, atol=1e-3)
        np.testing.assert_allclose(context, exact_context, atol=0.2)


HALF = (jnp.bfloat16, jnp.float16)
WIDENED = [
    Dot(),
    ScaledDot(),
    General(query_features=8),
    TanhKey(features=8),
    QKNorm(),
    Norm(),
    RandomFeatures(num_features=16),
    Softcap(score=Dot(), softcap=50.0),
]


def to(dtype, tree):
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


def read_by(attention):
    """(query, keys, values) -> (weights, context) of attention without parameters."""

    def read(*given):
        attended = attention.apply({}, *given)
        return attended.weights, attended.context

    return read


@pytest.mark.slow
@pytest.mark.parametrize("score", WIDENED, ids=lambda score: type(score).__name__)
def test_scores_of_half_precision_are_not_rounded_and_weights_have_the_type_of_query_and_keys(score):
    """They are those of the same numbers in float32; of QK norm the vectors that are multiplied are rounded."""
    query, keys = to(jnp.bfloat16, (4 * normal(3, 8), 4 * normal(5, 8)))
    params = {"params": params_of(score, query, keys, method=lambda module, q, k: module(q, module.project_keys(k)))}
    params = to(jnp.bfloat16, params)

    projected = score.apply(params, keys, method="project_keys")
    multiplied, scores = score.apply(params, query, method="project_query"), score.apply(params, query, projected)
    exact = to(jnp.float32, (multiplied, projected))
    expected = exact[0] @ exact[1].T if isinstance(score, QKNorm) else score.apply(to(jnp.float32, params), *exact)
    assert projected.dtype == jnp.bfloat16 and scores.dtype == jnp.float32
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    attention = build_attention(score=score, block_size=2)
    wide = jax.eval_shape(attention.init, jax.random.key(0), *to(jnp.float32, (query, keys)))

    def attended(*given):
        found = attention.apply(*given)
        return found.weights, found.context

    for dtype in HALF:
        given = jax.tree.map(lambda x: jnp.zeros(x.shape, dtype), (wide, query, keys))  # noqa: B023
        found = jax.eval_shape(attended, *given)
        assert {x.dtype for x in found} == {jnp.dtype(dtype)}


@pytest.mark.slow
@pytest.mark.parametrize("options", [dict(normalize=lambda *x, **y: softmax(*x, **y)), dict(block_size=2), {}])
def test_a_context_of_large_scores_in_bfloat16_is_that_of_the_scores_in_float32(options):
    """Scores up to 63, where neighbouring numbers of bfloat16 are 1 / 4 apart."""
    query, keys, values = to(jnp.bfloat16, (3 * normal(20, 64), 3 * normal(30, 64), normal(30, 8)))
    weights, context = read_by(build_attention(score="scaled_dot", **options))(query, keys, values)
    expected = compiled(read_by(build_attention(score="scaled_dot")))(*to(jnp.float32, (query, keys, values)))
    np.testing.assert_allclose(weights, expected[0], atol=2e-3)
    np.testing.assert_allclose(context, expected[1], atol=0.02)


@pytest.mark.slow
def test_products_beyond_the_largest_number_of_float16():
    """40 x 40 x 64 is more than 65504."""
    query, keys, values = jnp.full((2, 64), 40, jnp.float16), jnp.full((3, 64), 40, jnp.float16), normal(3, 64)
    read = read_by(build_attention(score="dot"))
    for part in (keys, keys.at[0].set(39)):
        weights, context = read(query, part, values.astype(jnp.float16))
        expected = read(*to(jnp.float32, (query, part, values)))
        assert weights.dtype == jnp.float16
        np.testing.assert_allclose(weights, expected[0], atol=1e-3)
        np.testing.assert_allclose(context, expected[1], atol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("score", [Dot(), Norm(), Gaussian(width=(1.0,))])
def test_a_bias_is_not_rounded_to_half_precision(score):
    """The neighbours of 1000 in bfloat16 are 4 apart."""
    query, keys = to(jnp.bfloat16, (normal(2, 4), normal(3, 4)))
    bias = jnp.array([1000.0, 1001.0, 999.0])
    weights = [build_attention(score=score).apply({}, query, keys, bias=b[None]).weights for b in (bias, bias - 1000)]
    np.testing.assert_allclose(*to(jnp.float32, weights), atol=5e-3)


def test_weights_that_were_in_float32_stay_so():
    query, keys = to(jnp.bfloat16, (normal(2, 4), normal(3, 4)))
    arguments = dict(mask=jnp.ones((2, 3), bool), previous=jnp.tile(initial_weights(jnp.ones(3, bool)), (2, 1)))
    for options, given in [
        (dict(score=Gaussian(width=(1.0,))), {}),
        (dict(score="dot", monotonic=MonotonicSelection()), arguments),
    ]:
        made = lambda: build_attention(**options).init_with_output(jax.random.key(0), query, keys, **given)  # noqa: B023, E731
        assert jax.eval_shape(lambda: made()[0].weights).dtype == jnp.float32  # noqa: B023


def test_parallax_is_computed_in_float32():
    """A key and the mean of all keys, both near 100, differ by about a thousandth in bfloat16 or not at all."""
    query, keys, weights = to(jnp.bfloat16, (normal(2, 4), 100 + normal(6, 4), jax.nn.softmax(normal(2, 6))))
    kernel = {"params": {"kernel": 0.3 * normal(1, 4, 4)}}
    found = Parallax().apply(kernel, weights, query, keys)
    expected = Parallax().apply(kernel, *to(jnp.float32, (weights, query, keys)))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_integers_are_numbers(without_type_checks):
    query, keys = jnp.array([[1, 2]]), jnp.array([[1, 0], [0, 3], [2, 2]])
    for normalize in (softmax, entmax15):
        found, wide = attend(query, keys, normalize=normalize), attend(1.0 * query, 1.0 * keys, normalize=normalize)
        np.testing.assert_allclose(found.context, wide.context, rtol=1e-5)
        np.testing.assert_allclose(found.weights, wide.weights, rtol=1e-5)
        np.testing.assert_allclose(normalize(keys), normalize(1.0 * keys), rtol=1e-5)
        assert np.sum(wide.weights) > 0.99


@pytest.mark.slow
def test_float16_is_computed_under_jit():
    given = [normal(3, 8).astype(jnp.float16) for _ in range(3)]
    attended = compiled(lambda *x: attend(*x).context)
    found, expected = attended(*given), attended(*to(jnp.float32, given))
    assert found.dtype == jnp.float16
    np.testing.assert_allclose(found, expected, atol=2e-3)


def normalized(name):
    """The weights by a normalizer of this name as a function of scores [2, 4, 5], some of which are masked."""
    normalize = from_name("normalize", name, NORMALIZERS)
    mask = jnp.asarray(RNG.random((2, 4, 5)) > 0.3)
    if not isinstance(normalize, nn.Module):
        return lambda scores: normalize(scores, mask)
    query = normal(2, 4, 3).astype(jnp.bfloat16)
    params = {"params": jax.tree.map(jnp.asarray, params_of(normalize, normal(2, 4, 5), mask, query=query))}
    return lambda scores: normalize.apply(params, scores, mask, query=query.astype(scores.dtype))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NORMALIZERS))
def test_weights_of_every_normalizer_have_the_type_of_the_scores(name):
    """Half precision is that of the same numbers in float32, rounded once; float64 stays."""
    weights, scores = normalized(name), (2 * normal(2, 4, 5)).astype(jnp.bfloat16)
    found, expected = jax.jit(lambda x: (weights(x), weights(x.astype(jnp.float32))))(scores)
    assert found.dtype == jnp.bfloat16 and expected.dtype == jnp.float32
    np.testing.assert_array_equal(found, expected.astype(jnp.bfloat16))
    with jax.enable_x64(True):
        shape = lambda dtype: jax.eval_shape(weights, scores.astype(dtype)).dtype  # noqa: E731
        assert [shape(dtype) for dtype in (*HALF, jnp.float64)] == [*HALF, jnp.float64]


@pytest.mark.parametrize("name", sorted(SCORES))
def test_of_every_score_float64_stays_and_parameters_are_float32(name):
    """That float64 is computed in float64 is told by derivatives, in test_derivatives.py."""
    score = made(SCORES[name])
    attention = build_attention(score=score, normalize="kernel_sum" if score.compact else "softmax")

    def made_with_output(*given):
        attended, params = attention.init_with_output(*given)
        return (attended.context, attended.weights, attended.log_prob), params

    with jax.enable_x64(True):
        given = jax.random.key(0), normal(2, 3, dtype=np.float64), normal(4, 3, dtype=np.float64)
        found, params = jax.eval_shape(made_with_output, *given)
    assert {x.dtype for x in jax.tree.leaves(params)} <= {jnp.dtype(jnp.float32)}
    assert {x.dtype for x in found} == {jnp.dtype(jnp.float64)}


@pytest.mark.slow
@pytest.mark.parametrize("width", [(2.1,), (2.1, 1.7, 2.3)])
@pytest.mark.parametrize("name", ["gaussian", "triangular"])
def test_a_width_is_not_rounded_to_float32(name, width):
    with jax.enable_x64(True):
        query, keys = normal(2, 3, dtype=np.float64), normal(4, 3, dtype=np.float64)
        one, other = KERNELS[name](width=width, exact=True), KERNELS[name](width=(1.0,), exact=True)
        h = np.asarray(width)
        both = compiled(lambda q, k, h: (one.apply({}, q, k), other.apply({}, q / h, k / h)))
        found, expected = both(query, keys, h)
        assert np.isfinite(expected).any()
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float64])
def test_probabilities_are_computed_in_float32_at_least(dtype):
    """Sums over 200 keys: each logarithm alone would have an error of 4e-3 in bfloat16."""

    def run(p, q):
        mask = jnp.ones((3, 200), bool)
        divergence = kl_divergence(log_of(wide(q)), log_of(wide(p)))
        path = forward(log_transition(p, mask, monotonic=True), q, mask[:, 0]).nll
        return expected_weights(p, q, mask), divergence, entropy(p), path

    with jax.enable_x64(True):
        given = [jax.nn.softmax(normal(3, 200)).astype(dtype) for _ in range(2)]
        exact = compiled(run)(*(np.asarray(x, np.float64) for x in given))
        for found, expected in zip(run(*given), exact, strict=True):
            assert found.dtype == jnp.promote_types(dtype, jnp.float32)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("make", [random_directions, orthogonal_directions])
def test_random_directions_are_the_same_with_64_bits(make):
    """They are no parameters, and belong to a model all the same."""
    directions = compiled(lambda rng: make(rng, 4, 3))
    narrow = directions(jax.random.key(0))
    with jax.enable_x64(True):
        found = directions(jax.random.key(0))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, narrow, rtol=1e-5, atol=1e-6)
