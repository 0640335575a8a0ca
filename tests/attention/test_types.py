"""Types of arrays: what comes out has the type of what went in, also where JAX has 64 bits, and the rest is told."""

import subprocess
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_derivatives import made

from attn_jax import attend, softmax
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
from attn_jax.attention.masks import joint_mask
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


@pytest.mark.slow
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", sorted(READINGS))
def test_rows_have_the_type_of_the_weights(name, wide):
    with jax.enable_x64(wide):
        for dtype in (jnp.bfloat16, jnp.float32):
            log_weights = log_of(jax.nn.softmax(normal(3, 5))).astype(dtype)
            sample = READINGS[name](jax.random.key(0), log_weights)
            assert sample.rows.dtype == dtype
            assert sample.log_prob.dtype == sample.importance_weights.dtype == jnp.float32


@pytest.mark.slow
def test_learned_entmax_by_blocks_with_64_bits():
    with jax.enable_x64(True):
        whole, blocks = (build_attention(score="scaled_dot", normalize="learned_entmax", block_size=n) for n in (0, 2))
        query, keys = normal(3, 4), normal(5, 4)
        params = whole.init(jax.random.key(0), query, keys)
        found = blocks.apply(params, query, keys).context
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, whole.apply(params, query, keys).context, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_keys_and_values_of_two_types_are_written_in_the_wider():
    with jax.enable_x64(True):
        writes = make_writes(normal(6, 3), normal(6, 2, dtype=np.float64))
        query = normal(6, 3)
        _, context = chunked(Delta(), query, writes, chunk_size=2)
        assert context.dtype == jnp.float64
        np.testing.assert_allclose(context, dense(Delta(), query, writes)[0], rtol=1e-12)


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
    params = Outer(0).init(jax.random.key(0), query, keys)
    loss = lambda params, size: jnp.sum(jnp.sin(Outer(size).apply(params, query, keys)))  # noqa: E731
    found, expected = (jax.value_and_grad(loss)(params, size) for size in (2, 0))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(5, 6), (2, 1, 5, 6), (2, 4, 5, 6), (4, 1, 6)])
def test_a_bias_of_all_heads_goes_to_heads_that_share_keys(shape):
    grouped = MultiHead(attention=build_attention(score="scaled_dot"), num_heads=4, num_kv_heads=2, features=8)
    plain = MultiHead(attention=build_attention(score="scaled_dot"), num_heads=4, features=8)
    query, keys, bias = normal(2, 5, 8), normal(2, 6, 8), normal(*shape)
    params = grouped.init(jax.random.key(0), query, keys)
    twice = lambda x: jnp.repeat(x.reshape(*x.shape[:-1], 2, 2), 2, axis=-2).reshape(*x.shape[:-1], 8)  # noqa: E731
    repeated = {
        "params": params["params"] | {name: jax.tree.map(twice, params["params"][name]) for name in ("key", "value")}
    }
    found = grouped.apply(params, query, keys, bias=bias)
    expected = plain.apply(repeated, query, keys, bias=bias)
    np.testing.assert_allclose(found.context, expected.context, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.float32])
def test_a_mask_that_is_not_boolean_is_told(dtype):
    with pytest.raises(ValueError, match=rf"mask must be boolean \(True = may attend\), got {jnp.dtype(dtype).name}$"):
        joint_mask(jnp.ones(3, bool), jnp.ones((2, 3), dtype), (2, 3))


@pytest.mark.slow
def test_a_bias_of_another_number_of_heads_is_told():
    grouped = MultiHead(attention=build_attention(score="scaled_dot"), num_heads=4, num_kv_heads=2, features=8)
    query, keys = normal(2, 5, 8), normal(2, 6, 8)
    params = grouped.init(jax.random.key(0), query, keys)
    bias = normal(2, 5, 6)
    for given in (bias, lambda query, key: bias[:, query, key]):
        with pytest.raises(ValueError, match=r"a bias of shape \(2, 5, 6\) .* expected 4 heads, or 1 for all"):
            grouped.apply(params, query, keys, bias=given)


@pytest.mark.slow
@pytest.mark.parametrize("score", [ScaledDot(), Gaussian(), Gaussian(per_column=True), Gaussian(width=(6.0,))])
def test_float16_does_not_overflow_before_scores_are_scaled(score):
    """60 x 60 x 32 is beyond 65504, the largest number of float16; the scores are not."""
    signs = jnp.sign(normal(3, 32))
    attention = build_attention(score=score, dropout=0.1)
    wide = 60 * signs[:2], 60 * signs
    params = attention.init(jax.random.key(0), *wide)
    half = [x.astype(jnp.float16) for x in wide]
    for train in (False, True):
        attended = attention.apply(params, *half, train=train, rngs={"dropout": jax.random.key(1)})
        expected = attention.apply(params, *wide, train=train, rngs={"dropout": jax.random.key(1)})
        np.testing.assert_allclose(attended.weights, expected.weights, atol=1e-3)
        np.testing.assert_allclose(attended.context, expected.context, atol=0.2)


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
    return jax.tree.map(lambda x: x.astype(dtype), tree)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("score", WIDENED, ids=lambda score: type(score).__name__)
def test_scores_of_half_precision_are_not_rounded_and_weights_have_the_type_of_query_and_keys(score, dtype):
    """They are those of the same numbers in float32; of QK norm the vectors that are multiplied are rounded."""
    query, keys = to(dtype, (4 * normal(3, 8), 4 * normal(5, 8)))
    call = lambda module, q, k: module(q, module.project_keys(k))  # noqa: E731
    params = to(dtype, score.init(jax.random.key(0), query, keys, method=call))
    projected = score.apply(params, keys, method="project_keys")
    scores = score.apply(params, query, projected)
    assert projected.dtype == dtype and scores.dtype == jnp.float32
    multiplied = score.apply(params, query, method="project_query")
    wide = to(jnp.float32, (multiplied, projected))
    expected = wide[0] @ wide[1].T if isinstance(score, QKNorm) else score.apply(to(jnp.float32, params), *wide)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    attention = build_attention(score=score, block_size=2)
    params = to(dtype, attention.init(jax.random.key(0), query, keys))
    attended = attention.apply(params, query, keys)
    assert attended.weights.dtype == attended.context.dtype == dtype


@pytest.mark.slow
@pytest.mark.parametrize("options", [dict(normalize=lambda *x, **y: softmax(*x, **y)), dict(block_size=2), {}])
def test_a_context_of_large_scores_in_bfloat16_is_that_of_the_scores_in_float32(options):
    """Scores up to 63, where neighbouring numbers of bfloat16 are 1 / 4 apart."""
    query, keys, values = to(jnp.bfloat16, (3 * normal(20, 64), 3 * normal(30, 64), normal(30, 8)))
    attention = build_attention(score="scaled_dot", **options)
    found = attention.apply({}, query, keys, values)
    expected = build_attention(score="scaled_dot").apply({}, *to(jnp.float32, (query, keys, values)))
    np.testing.assert_allclose(found.weights, expected.weights, atol=2e-3)
    np.testing.assert_allclose(found.context, expected.context, atol=0.02)


@pytest.mark.slow
def test_products_beyond_the_largest_number_of_float16():
    """40 x 40 x 64 is more than 65504."""
    query, keys, values = jnp.full((2, 64), 40, jnp.float16), jnp.full((3, 64), 40, jnp.float16), normal(3, 64)
    for part in (keys, keys.at[0].set(39)):
        found = attend(query, part, values.astype(jnp.float16), score="dot")
        expected = attend(*to(jnp.float32, (query, part, values)), score="dot")
        assert found.weights.dtype == jnp.float16
        np.testing.assert_allclose(found.weights, expected.weights, atol=1e-3)
        np.testing.assert_allclose(found.context, expected.context, atol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("score", [Dot(), Norm(), Gaussian(width=(1.0,))])
def test_a_bias_is_not_rounded_to_half_precision(score):
    """The neighbours of 1000 in bfloat16 are 4 apart."""
    query, keys = to(jnp.bfloat16, (normal(2, 4), normal(3, 4)))
    bias = jnp.array([1000.0, 1001.0, 999.0])
    weights = [build_attention(score=score).apply({}, query, keys, bias=b[None]).weights for b in (bias, bias - 1000)]
    np.testing.assert_allclose(*to(jnp.float32, weights), atol=5e-3)


@pytest.mark.slow
def test_weights_that_were_in_float32_stay_so():
    query, keys = to(jnp.bfloat16, (normal(2, 4), normal(3, 4)))
    weights = build_attention(score=Gaussian(width=(1.0,))).apply({}, query, keys).weights
    assert weights.dtype == jnp.float32
    attention = build_attention(score="dot", monotonic=MonotonicSelection())
    arguments = dict(mask=jnp.ones((2, 3), bool), previous=jnp.tile(initial_weights(jnp.ones(3, bool)), (2, 1)))
    params = attention.init(jax.random.key(0), query, keys, **arguments)
    assert attention.apply(params, query, keys, **arguments).weights.dtype == jnp.float32


def test_parallax_is_computed_in_float32():
    """A key and the mean of all keys, both near 100, differ by about a thousandth in bfloat16 or not at all."""
    query, keys, weights = to(jnp.bfloat16, (normal(2, 4), 100 + normal(6, 4), jax.nn.softmax(normal(2, 6))))
    kernel = {"params": {"kernel": 0.3 * normal(1, 4, 4)}}
    found = Parallax().apply(kernel, weights, query, keys)
    expected = Parallax().apply(kernel, *to(jnp.float32, (weights, query, keys)))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-3)


INTEGERS = """
import jax.numpy as jnp
from attn_jax import attend, entmax15, softmax
query, keys = jnp.array([[1, 2]]), jnp.array([[1, 0], [0, 3], [2, 2]])
for normalize in (softmax, entmax15):
    found, wide = attend(query, keys, normalize=normalize), attend(1.0 * query, 1.0 * keys, normalize=normalize)
    assert jnp.allclose(found.context, wide.context) and jnp.allclose(found.weights, wide.weights)
    assert jnp.allclose(normalize(keys), normalize(1.0 * keys)) and jnp.sum(wide.weights) > 0.99
"""


@pytest.mark.slow
def test_integers_are_numbers():
    """Where annotations are not checked, unlike in the tests."""
    subprocess.run([sys.executable, "-c", INTEGERS], check=True)


@pytest.mark.slow
def test_float16_is_computed_under_jit():
    query, keys, values = (normal(3, 8).astype(jnp.float16) for _ in range(3))
    found = jax.jit(lambda *x: attend(*x).context)(query, keys, values)
    expected = attend(*(x.astype(jnp.float32) for x in (query, keys, values))).context
    assert found.dtype == jnp.float16
    np.testing.assert_allclose(found, expected, atol=2e-3)


def normalized(name):
    """The weights by a normalizer of this name as a function of scores [2, 4, 5], some of which are masked."""
    normalize = from_name("normalize", name, NORMALIZERS)
    mask = jnp.asarray(RNG.random((2, 4, 5)) > 0.3)
    if not isinstance(normalize, nn.Module):
        return lambda scores: normalize(scores, mask)
    query = normal(2, 4, 3).astype(jnp.bfloat16)
    params = normalize.init(jax.random.key(0), normal(2, 4, 5), mask, query=query)
    return lambda scores: normalize.apply(params, scores, mask, query=query.astype(scores.dtype))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NORMALIZERS))
def test_weights_of_every_normalizer_have_the_type_of_the_scores(name):
    """Half precision is that of the same numbers in float32, rounded once; float64 stays."""
    weights, scores = normalized(name), (2 * normal(2, 4, 5)).astype(jnp.bfloat16)
    found, expected = (jax.jit(weights)(x) for x in (scores, scores.astype(jnp.float32)))
    assert found.dtype == jnp.bfloat16 and expected.dtype == jnp.float32
    np.testing.assert_array_equal(found, expected.astype(jnp.bfloat16))
    with jax.enable_x64(True):
        shape = lambda dtype: jax.eval_shape(weights, scores.astype(dtype)).dtype  # noqa: E731
        assert [shape(dtype) for dtype in (*HALF, jnp.float32, jnp.float64)] == [*HALF, jnp.float32, jnp.float64]


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
@pytest.mark.parametrize("name", sorted(set(KERNELS) - {"constant"}))
@pytest.mark.parametrize("width", [(2.1,), (2.1, 1.7, 2.3)])
def test_a_width_is_not_rounded_to_float32(name, width):
    with jax.enable_x64(True):
        query, keys = normal(2, 3, dtype=np.float64), normal(4, 3, dtype=np.float64)
        one, other = KERNELS[name](width=width, exact=True), KERNELS[name](width=(1.0,), exact=True)
        h = np.asarray(width)
        found, expected = one.apply({}, query, keys), other.apply({}, query / h, keys / h)
        assert np.isfinite(expected).any()
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float64])
@pytest.mark.parametrize("name", ["weights", "divergence", "entropy", "path"])
def test_probabilities_are_computed_in_float32_at_least(name, dtype):
    """Sums over 200 keys: each logarithm alone would have an error of 4e-3 in bfloat16."""
    with jax.enable_x64(True):
        p, q = (jax.nn.softmax(normal(3, 200)).astype(dtype) for _ in range(2))
        full = [jnp.asarray(np.asarray(x, np.float64)) for x in (p, q)]
        mask = jnp.ones((3, 200), bool)
        call = {
            "weights": lambda p, q: expected_weights(p, q, mask),
            "divergence": lambda p, q: kl_divergence(log_of(wide(q)), log_of(wide(p))),
            "entropy": lambda p, q: entropy(p),
            "path": lambda p, q: forward(log_transition(p, mask, monotonic=True), q, mask[:, 0]).nll,
        }[name]
        found, expected = call(p, q), call(*full)
        assert found.dtype == jnp.promote_types(dtype, jnp.float32)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("make", [random_directions, orthogonal_directions])
def test_random_directions_are_the_same_with_64_bits(make):
    """They are no parameters, and belong to a model all the same."""
    narrow = make(jax.random.key(0), 4, 3)
    with jax.enable_x64(True):
        found = make(jax.random.key(0), 4, 3)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, narrow, rtol=1e-5, atol=1e-6)
